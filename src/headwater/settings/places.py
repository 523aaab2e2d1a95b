"""Checks of settings that say where something is: meta, and Spark's master."""

from __future__ import annotations

import re


def meta_url(value: str) -> str:
    """The URL of a PostgreSQL database, or where it is to be found (`env:NAME`, `file:PATH`); empty: none."""
    given = value.strip()
    if not given or given.startswith(("env:", "file:")):
        return given
    scheme, _, rest = given.partition("://")
    place = rest.partition("?")[0].rpartition("@")[2].partition("/")[0]
    if scheme not in ("postgresql", "postgres") or not rest or re.search(r":(?!\d{1,5}$)[^\]]*$", place):
        raise ValueError("must be a PostgreSQL URL, like 'postgresql://user@host/database'")
    return f"postgresql://{rest}"


_HOST = r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}"
_MASTERS = (
    r"local",
    r"local\[(\*|[1-9]\d*)\]",
    r"local\[(\*|[1-9]\d*), *[1-9]\d*\]",  # with the number of failures that a task may have
    r"local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]",
    rf"spark://({_HOST})(,({_HOST}))*",
    r"yarn",
    r"k8s://\S+",
)


def spark_master(value: str) -> str:
    """A master as Spark accepts it; empty: none. Spark itself would refuse a mistyped one only after it has started."""
    given = value.strip()
    if given and not any(re.fullmatch(pattern, given) for pattern in _MASTERS):
        raise ValueError(f"is {given!r}, and must be local[N], local[*], spark://host:port, yarn or k8s://host:port")
    return given
