"""What a server refuses to start on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.engine.home import Home
from headwater.engine.serve.server import Server
from headwater.errors import MachineError
from headwater.ownership import lease
from support.owned import serving


@pytest.mark.parametrize("folder", ["warehouse/1", "changelog/1", "runs/7", "aside/2"])
def test_a_lake_whose_meta_is_new_is_left_alone(tmp_path: Path, folder: str) -> None:
    """The meta that describes it was lost, or is not the one that was named: nothing in it was dropped."""
    home = Home.open(tmp_path)
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "rows.parquet").write_bytes(b"rows")
    with pytest.raises(MachineError) as e:
        Server(home)._acquire()
    assert e.value.code == "home.foreign" and (tmp_path / folder / "rows.parquet").exists()
    with home.meta.write() as c:
        lease.release(c, serving(c).server)  # a server of this meta has been here, so the files may be its own
    Server(home)._acquire()
    home.meta.close()


def test_an_empty_home_may_have_a_new_meta(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    assert Server(home)._acquire().fence
    home.meta.close()
