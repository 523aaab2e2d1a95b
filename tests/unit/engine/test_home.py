"""A home: who makes one, who may read it, and what is said where there is none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import headwater
from headwater import rundir
from headwater.cli import envelope
from headwater.cli.app import app
from headwater.engine.home import Home, is_home
from headwater.engine.serve import wire
from headwater.engine.spark import conf
from headwater.errors import DefinitionError, HeadwaterError
from headwater.rundir import FILES, FOLDERS, files
from headwater.rundir.lock import ServerLock, owner
from headwater.source.postgres.upstream import PostgresUpstream

READING = (
    ("status",),
    ("status", "--json"),
    ("verify",),
    ("sql", "-c", "SELECT 1"),
    ("sql", "-c", "SHOW TABLES"),
    ("sql", "-c", "CREATE TABLE t FROM CONNECTION c"),
    ("sql", "-c", "DROP TABLE IF EXISTS t"),
)


def run(*arguments: str) -> int:
    return envelope.guarded(lambda: app(list(arguments), standalone_mode=False, prog_name="headwater"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("command", [("run", "--once"), *READING], ids=" ".join)
def test_a_mistyped_home_is_named_and_not_created(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, typo = tmp_path / "lake", tmp_path / "laek"
    Home.open(lake).meta.close()
    assert run(*command, "--home", str(typo)) == 3
    said = "".join(capsys.readouterr())
    assert f"there is no home in {typo}" in said and "home.missing" in said
    assert f"Did you mean --home {lake}?" in said and "Ctrl-C stops" not in said
    assert not typo.exists()


@pytest.mark.parametrize("command", [("run",), *READING], ids=" ".join)
def test_an_object_store_is_refused_as_a_home(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*command, "--home", "s3://bucket/lake") == 3
    assert "home.unusable" in "".join(capsys.readouterr())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_a_home_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_HOME", raising=False)
    assert run("status", "--home", str(tmp_path)) == run("status") == 3
    assert list(tmp_path.iterdir()) == []
    assert "`headwater run FILE.sql --home" in capsys.readouterr().err


def test_a_program_is_told_too_and_creates_a_home_only_with_a_connection(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "home") as hw:
        for ask in (
            hw.status,
            hw.verify,
            lambda: hw.run(once=True),
            lambda: hw.table("t"),
            lambda: hw.sql("SHOW TABLES"),
        ):
            with pytest.raises(HeadwaterError) as e:
                ask()
            assert e.value.code == "home.missing"
        assert not (tmp_path / "home").exists()


WRONG_PASSWORD = (
    "CREATE CONNECTION c WITH (type='postgres-cdc', hostname='h', username='u', database.name='d', "
    "password='env:HW_NO_SUCH_NAME')"
)


def test_a_connection_that_cannot_be_created_leaves_no_home_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "new" / "home"
    assert run("sql", "-c", WRONG_PASSWORD, "--home", str(home)) == DefinitionError.exit_status
    said = capsys.readouterr().err
    assert "HW_NO_SUCH_NAME" in said and "created the home" not in said
    assert list(tmp_path.iterdir()) == []


class _Session:
    """A Spark session that nothing asks for more than its configuration."""

    def __init__(self) -> None:
        self.conf = {"spark.sql.extensions": conf.EXTENSION, "spark.sql.catalog.spark_catalog": conf.CATALOG}


@pytest.mark.spark  # a session that only looks like one: none is started
def test_a_run_that_can_define_nothing_leaves_no_home_behind(tmp_path: Path) -> None:
    said: list[str] = []
    with headwater.open(tmp_path / "home", spark=_Session()) as hw:  # type: ignore[arg-type]
        hw.on_notice = said.append
        with pytest.raises(DefinitionError, match="HW_NO_SUCH_NAME"):
            hw.run(WRONG_PASSWORD)
    assert said == [] and list(tmp_path.iterdir()) == []


def test_what_was_in_the_directory_before_stays(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("notes.txt", "headwater.toml", "logs/mine.log"):
        (tmp_path / name).touch()
    with headwater.open(tmp_path) as hw:
        for _ in range(2):  # a home that was removed can be created again
            with pytest.raises(DefinitionError):
                hw.sql(WRONG_PASSWORD)
            assert sorted(p.name for p in tmp_path.rglob("*")) == ["headwater.toml", "logs", "mine.log", "notes.txt"]


def test_an_empty_directory_stays_as_open_as_it_was(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with headwater.open(tmp_path) as hw, pytest.raises(DefinitionError):
        hw.sql(WRONG_PASSWORD)
    assert mode(tmp_path) == 0o755 and list(tmp_path.iterdir()) == []


def test_a_new_home_that_another_server_uses_stays(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    lock = ServerLock(home.path)
    lock.take()
    assert home.is_new
    home.discard()
    assert (home.path / "meta.db").exists()
    lock.release()
    home.discard()
    assert not home.path.exists()


def test_a_home_with_a_connection_stays_and_is_announced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresUpstream, "check", lambda self: ())
    said: list[str] = []
    with headwater.open(tmp_path / "home") as hw:
        hw.on_notice = said.append
        hw.sql(WRONG_PASSWORD.replace("env:HW_NO_SUCH_NAME", "p"))
        with pytest.raises(HeadwaterError):
            hw.sql(WRONG_PASSWORD.replace("CONNECTION c", "CONNECTION d"))
        assert hw.sql("SHOW CONNECTIONS")[0].rows.num_rows == 1
    assert said == [f"created the home {tmp_path / 'home'}"]


@pytest.mark.parametrize("found", [("lock",), ("meta.db",), ("lock", "warehouse/", "lake.id"), ("headwater.toml",)])
@pytest.mark.parametrize("command", [*READING, ("settings",)], ids=" ".join)
def test_a_command_that_reads_creates_nothing(
    found: tuple[str, ...], command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a directory that is no home, or a home whose meta is lost, or elsewhere."""
    for name in found:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    status = run(*command, "--home", str(tmp_path))
    assert status == (0 if command == ("settings",) else 3)
    said = "".join(capsys.readouterr())
    assert ("home.missing" in said) == (command != ("settings",))
    assert ("has a lake, but its meta is not there" in said) == ("lake.id" in found and command != ("settings",))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(name.rstrip("/") for name in found)
    assert all(p.stat().st_size == 0 for p in tmp_path.iterdir() if p.is_file())


def test_a_report_of_something_unexpected_is_not_written_to_a_directory_that_is_not_a_home(tmp_path: Path) -> None:
    where = envelope.write_report(RuntimeError("a defect"), tmp_path)
    where.unlink()
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_without_a_server_says_at_once_that_it_needs_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Home.open(tmp_path / "home").meta.close()
    with headwater.open(tmp_path / "home") as hw, pytest.raises(HeadwaterError) as e:
        hw.verify()
    assert (e.value.code, e.value.exit_status) == ("server.none", 3)
    assert run("verify", "--home", str(tmp_path / "home")) == 3
    said = "".join(capsys.readouterr())
    assert "server.none" in said and "Start `headwater run` on this home" in said


def test_only_its_owner_can_read_a_home(tmp_path: Path) -> None:
    before = os.umask(0)  # the most open that a user may have set
    try:
        home = Home.open(tmp_path / "home")
        with home.meta.write():  # SQLite makes its other files
            pass
        assert mode(home.path) == 0o700
        for entry in home.path.iterdir():
            assert mode(entry) == (0o700 if entry.is_dir() else 0o600), entry
        assert {"meta.db", "meta.db-wal", "changelog", "logs"} <= {e.name for e in home.path.iterdir()}
        home.meta.close()
    finally:
        os.umask(before)


def test_a_new_home_outlives_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "fsync", synced.append)
    rundir.usable_home(tmp_path / "new" / "home")
    assert {tmp_path, tmp_path / "new"} <= set(synced), "the names that lead to it are durable"


def test_everything_that_a_server_puts_into_a_home_is_known(tmp_path: Path) -> None:
    """What is not known there would be taken for somebody else's, and the directory would stay open."""
    home = Home.open(tmp_path / "home")
    lock = ServerLock(home.path)
    lock.take()
    owner(home.path)
    listener = wire.serve(home.socket, lambda m: m)
    assert {e.name for e in home.path.iterdir()} <= {*FOLDERS, *FILES}
    listener.close()
    lock.release()
    home.meta.close()
    again = Home.open(home.path)
    again.meta.close()
    assert again.notices == ()  # and none of it was ever open to others


def test_an_open_home_is_closed_to_others_once_and_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Home.open(home).meta.close()
    (home / "logs").chmod(0o755)
    (home / "meta.db").chmod(0o644)
    home.chmod(0o755)
    opened = Home.open(home)
    opened.meta.close()
    assert opened.notices == (f"{home} was open to other users; from now on only its owner can read it",)
    assert (mode(home), mode(home / "meta.db"), mode(home / "logs")) == (0o700, 0o600, 0o700)
    again = Home.open(home)
    again.meta.close()
    assert again.notices == ()


def test_a_settings_file_in_a_closed_home_was_never_open(tmp_path: Path) -> None:
    Home.open(tmp_path / "home").meta.close()
    file = tmp_path / "home" / "headwater.toml"
    file.touch(0o644)
    again = Home.open(tmp_path / "home")
    again.meta.close()
    assert again.notices == () and mode(file) == 0o600


def test_a_meta_that_is_not_a_database_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.db").write_text("anything but a database" * 100)
    assert run("status", "--home", str(tmp_path)) == 3
    said = capsys.readouterr().err
    assert "meta cannot be read: file is not a database" in said and "Restore meta.db from a backup" in said


def test_a_directory_that_holds_more_than_a_home_keeps_its_mode(tmp_path: Path) -> None:
    """`--home .` in a project, or `--home /tmp` as root, must not lock others out of what is not ours."""
    (tmp_path / "notes.txt").touch()
    tmp_path.chmod(0o755)
    Home.open(tmp_path).meta.close()
    assert is_home(tmp_path)
    assert (mode(tmp_path), mode(tmp_path / "meta.db"), mode(tmp_path / "warehouse")) == (0o755, 0o600, 0o700)
