"""Where an upstream is, as defined by CREATE CONNECTION; each source adds how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to reach an upstream. Its repr hides the password, so it may appear in a traceback."""

    default_port: ClassVar[int]

    host: str
    port: int
    user: str
    database: str
    password: str = field(repr=False, default="")
    ssl_mode: str = "prefer"
    ssl_root_cert: str = ""
    connect_timeout_s: int = 10

    @classmethod
    def of(cls, options: Mapping[str, str], password: str) -> Self:
        """The endpoint that a CREATE CONNECTION describes."""
        return cls(
            host=options["hostname"],
            port=int(options.get("port", cls.default_port)),
            user=options["username"],
            database=options["database.name"],
            password=password,
            ssl_mode=options.get("ssl.mode", "prefer"),
            ssl_root_cert=options.get("ssl.root.cert", ""),
            connect_timeout_s=int(options.get("connect.timeout", "10")),
        )
