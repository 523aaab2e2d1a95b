"""Compiles the kernels ahead of their first use."""

from __future__ import annotations

import importlib

from headwater.decode import dialects

MODULES = ("kernels_number", "kernels_time", "kernels_bytes")


def compile_kernels() -> None:
    """Fills the kernels' disk cache: their signatures are explicit, so importing them compiles them."""
    for name in MODULES:
        importlib.import_module(f"headwater.decode.{name}")
    dialects.load()


if __name__ == "__main__":
    compile_kernels()
