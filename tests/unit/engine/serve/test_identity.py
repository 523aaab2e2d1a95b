"""What a server refuses to start on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.engine.home import Home
from headwater.engine.serve import identity
from headwater.engine.serve.server import Server
from headwater.errors import MachineError
from headwater.meta import lake, tables
from headwater.ownership import lease
from headwater.rundir import LAKE, META
from headwater.settings.table import DEFAULTS, Settings
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


def used(path: Path, settings: Settings = DEFAULTS) -> Home:
    """A home on which a server has run."""
    home = Home.open(path, settings)
    acquired = Server(home)._acquire()
    with home.meta.write() as c:
        lease.release(c, acquired)
    return home


def refused(home: Home) -> str:
    with pytest.raises(MachineError) as e:
        Server(home)._acquire()
    assert e.value.code == "home.foreign"
    return e.value.message


def test_a_second_start_has_nothing_to_say_about_the_home(tmp_path: Path) -> None:
    used(tmp_path / "home").meta.close()
    again = Home.open(tmp_path / "home")
    assert again.notices == ()
    again.meta.close()


def test_a_lake_is_left_alone_by_the_meta_of_another(tmp_path: Path) -> None:
    """That meta is in use, too; to it, everything here would be the files of dropped tables."""
    ours, theirs = used(tmp_path / "ours"), used(tmp_path / "theirs")
    (tmp_path / "ours/warehouse/1").mkdir()
    url = replace(DEFAULTS, meta_url=f"sqlite:///{tmp_path / 'theirs' / META}")
    wrong = Home.open(tmp_path / "ours", url)
    assert "another lake" in refused(wrong)
    (tmp_path / "ours" / LAKE).unlink()
    assert LAKE in refused(wrong) and LAKE in refused(ours)
    Server(theirs)._acquire()
    for home in (ours, theirs, wrong):
        home.meta.close()


def test_a_lake_of_an_earlier_version_gets_its_id_when_its_own_meta_is_used(tmp_path: Path) -> None:
    home = used(tmp_path)
    with home.meta.write() as c:
        c.execute(sa.update(tables.home).values(lake=None))
    (tmp_path / LAKE).unlink()
    (tmp_path / "warehouse/1").mkdir()
    used(tmp_path).meta.close()
    with home.meta.read() as c:
        assert f"{lake.known(c)}\n" == (tmp_path / LAKE).read_text()
    home.meta.close()


def test_of_two_first_starts_at_once_the_later_takes_the_id_of_the_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, found = Home.open(tmp_path), identity._found

    def late(home: Home) -> str | None:
        monkeypatch.setattr(identity, "_found", found)
        (tmp_path / LAKE).write_text("another's\n")  # by a server that looked at the same time
        return None

    monkeypatch.setattr(identity, "_found", late)
    Server(home)._acquire()
    with home.meta.read() as c:
        assert lake.known(c) == "another's"
    home.meta.close()


def test_a_first_start_that_ended_between_lake_and_meta_is_repeated(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    (tmp_path / LAKE).write_text("given\n")
    Server(home)._acquire()
    with home.meta.read() as c:
        assert lake.known(c) == "given"
    home.meta.close()
