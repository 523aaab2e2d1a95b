"""`make bench`: runs every benchmark in turn, each in its own process, then prints one table of ratios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = (
    *("capture", "scan", "backfill", "impact", "recovery", "read", "share", "freshness", "cost"),
    *("many", "views", "view_lag", "view_fill", "debezium", "decode"),
    *("my_log", "my_decode", "my_scan", "my_debezium"),
)


def main() -> int:
    """Runs the named benchmarks (default: all) and prints their output."""
    failed = []
    for name in sys.argv[1:] or ALL:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False).returncode:
            failed.append(name)
    print(json.dumps({"failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
