"""What every embedded server needs from the machine: a free port, and an account other than root."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from pathlib import Path

from headwater.errors import MachineError


def account(*names: str) -> pwd.struct_passwd | None:
    """The account to run a server under if we are root, which is not allowed to; None otherwise."""
    if os.geteuid() != 0:
        return None
    for name in (*names, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise MachineError(
        "demo.server",
        "a database server cannot run as root",
        f"Run as another user, or create the account `{names[0] if names else 'nobody'}`.",
    )


def reachable(path: Path) -> bool:
    """Whether any account can enter every parent directory (root's home directory often blocks others)."""
    return all(p.stat().st_mode & 0o001 for p in path.parents)


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def link_tree(source: Path, target: Path) -> None:
    """The same files in another directory, as hard links where the file system allows it."""
    shutil.copytree(source, target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, target, follow_symlinks=False)
    return target
