"""One-time set-up after installing: fetches Delta's jars, compiles the kernels, archives Spark's classes."""

from __future__ import annotations

import importlib
import subprocess
import sys

from headwater.errors import HeadwaterError


def main() -> int:
    """Prepares a machine so that nothing is fetched or compiled at run time."""
    from headwater.decode.warm import compile_kernels
    from headwater.engine.spark import machine
    from headwater.source import kinds

    try:
        machine.check_java()
        print("fetching Delta's jars …", flush=True)
        found = machine.fetch_jars()
        print(f"✓ {len(found)} jars")
        print("compiling kernels …", flush=True)
        compile_kernels()
        importlib.import_module("headwater.changelog.segment")  # the capture's kernels compile when imported
        kinds.compile_kernels()
        print("✓ kernels")
        print("archiving Spark's classes …", flush=True)
        if subprocess.run([sys.executable, "-m", "headwater.engine.spark.archive"], check=False).returncode == 0:
            print("✓ classes")
    except HeadwaterError as e:
        print(f"✗ {e.message}\n  → {e.hint}", file=sys.stderr)
        return e.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
