"""Headwater: live PostgreSQL, MySQL and MariaDB tables in a Delta lake, lock-free and exact, fresh to the second.

hw = headwater.open("./headwater-data")
hw.sql("SELECT count(*) FROM orders")
"""

from headwater.errors import HeadwaterError, IncompleteWarning, StaleWarning

__version__ = "0.1.0"
__all__ = ["HeadwaterError", "IncompleteWarning", "StaleWarning", "__version__", "open"]


def __getattr__(name: str) -> object:
    if name == "open":  # late, so that a capture does not load Spark
        from headwater.facade import open_home

        return open_home
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
