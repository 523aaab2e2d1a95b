"""Code that was compiled is used again only while nothing that was compiled into it has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headwater
from headwater import kernel
from headwater.source.mysql.binlog import kernels as mysql_kernels

CALLEE = """from headwater.kernel import kernel
@kernel("int64(int64)")
def scaled(x):
    return x * {}
"""
CALLER = """from headwater.kernel import kernel
from headwater.kernel_test.callee import scaled
@kernel("int64(int64)")
def answer(x):
    return scaled(x) + 2
"""
RUN = """import sys
import headwater.kernel as k
from pathlib import Path
import headwater
folder = Path(sys.argv[1])
headwater.__path__.append(str(folder))
k.PACKAGE = folder
from headwater.kernel_test.caller import answer
print(answer(20), sum(answer.stats.cache_hits.values()))
"""


def run(folder: Path) -> list[int]:
    """What the kernel answers in a process of its own, and how much of it came from the disk."""
    done = subprocess.run([sys.executable, "-c", RUN, str(folder)], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_a_kernel_is_compiled_again_when_another_file_that_it_uses_has_changed(tmp_path: Path) -> None:
    package = tmp_path / "kernel_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "caller.py").write_text(CALLER)
    (package / "callee.py").write_text(CALLEE.format(2))
    assert run(tmp_path) == [42, 0]
    assert run(tmp_path) == [42, 1]
    (package / "callee.py").write_text(CALLEE.format(3))
    assert run(tmp_path) == [62, 0]


def test_every_kernel_of_the_package_is_kept_so() -> None:
    package = Path(headwater.__file__).parent
    elsewhere = [p.name for p in package.rglob("*.py") if "njit" in p.read_text() and p.name != "kernel.py"]
    assert not elsewhere, "use headwater.kernel"
    locator = mysql_kernels.walk._cache._impl.locator  # type: ignore[attr-defined]
    assert locator.get_source_stamp() == kernel.stamp(package / "source" / "mysql")
