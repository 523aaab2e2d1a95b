"""Settings: where a value may stand, which one wins, and what is said of a wrong one."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater import config
from headwater.cli import envelope
from headwater.cli.app import app
from headwater.engine.home import Home
from headwater.engine.serve import remote, wire
from headwater.engine.serve.supervisor import Supervisor
from headwater.errors import InputError
from headwater.rundir import SOCKET
from headwater.settings.load import Given, load
from headwater.settings.table import CONF, DEFAULTS, NAMED_BY_SPARK, OURS, TABLE, Line, SetBy, Settings, lines

FILE = """\
# what was chosen for this home
[flush]
interval = "500ms"
bytes = 1048576

[fold]
age = 90
budget = "50%"

[spark.conf]
spark.executor.memory = "2g"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a settings file, and an environment without settings."""
    for _, setting in TABLE.values():
        for name in (setting.environment, setting.older_environment):
            if name:
                monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HEADWATER_CONFIG", raising=False)
    made = tmp_path / "home"
    made.mkdir()
    write(made, FILE)
    return made


def write(home: Path, text: str) -> None:
    (home / "headwater.toml").write_text(text, encoding="utf-8")


def line(settings: Settings, name: str) -> Line:
    (found,) = (x for x in lines(settings) if x.name == name)
    return found


def refused(home: Path, text: str | None = None, **values: str) -> InputError:
    if text is not None:
        write(home, text)
    with pytest.raises(InputError) as caught:
        load(home, Given(values={name.replace("__", "."): value for name, value in values.items()}))
    assert caught.value.exit_status == 2 and caught.value.hint.endswith((".", "?"))
    return caught.value


def test_without_a_file_everything_is_the_default(home: Path) -> None:
    (home / "headwater.toml").unlink()
    assert load(home) == DEFAULTS == Settings()
    assert {x.set_by for x in lines(load(home))} == {SetBy.DEFAULT}
    assert [x.name for x in lines(load(home))] == list(TABLE)
    assert all(x.value == x.default for x in lines(DEFAULTS))


def test_the_file_of_the_home_holds_with_or_without_units(home: Path) -> None:
    found = load(home)
    assert (found.flush_interval_s, found.flush_bytes, found.fold_age_s, found.fold_budget) == (0.5, 1 << 20, 90.0, 0.5)
    assert found.spark_conf == {"spark.executor.memory": "2g"}
    shown = line(found, "flush.interval")
    assert (shown.value, shown.default, shown.set_by, shown.location) == (
        "500ms",
        "250ms",
        "file",
        "headwater.toml line 3",
    )
    assert line(found, "fold.budget").location == "headwater.toml line 8"
    assert line(found, "spark.conf.spark.executor.memory").value == "2g"
    assert line(found, "base.files").set_by is SetBy.DEFAULT


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_FLUSH_INTERVAL", "1s")
    monkeypatch.setenv("HEADWATER_FOLD_AGE", "2h")
    monkeypatch.setenv("HEADWATER_SPARK_CONF", "spark.executor.memory=3g 'spark.executor.extraJavaOptions=-Da=1 -Db=2'")
    found = load(home, Given.of(None, ["fold.age=5min", "spark.conf.spark.cores.max=7"], master="spark://here:7077"))
    assert (found.flush_interval_s, found.fold_age_s, found.flush_bytes) == (1.0, 300.0, 1 << 20)
    assert found.spark_master == "spark://here:7077"
    assert found.spark_conf == {
        "spark.executor.memory": "3g",
        "spark.executor.extraJavaOptions": "-Da=1 -Db=2",
        "spark.cores.max": "7",
    }
    assert (line(found, "flush.interval").set_by, line(found, "flush.interval").location) == (
        SetBy.ENVIRONMENT,
        "HEADWATER_FLUSH_INTERVAL",
    )
    assert line(found, "fold.age").set_by is SetBy.COMMAND_LINE
    assert line(found, "flush.bytes").set_by is SetBy.FILE


@pytest.mark.parametrize(
    ("variable", "text", "attribute", "value"),
    [
        ("HEADWATER_TAIL_CHANGES", "100", "tail_changes", 100),
        ("HEADWATER_FOLD_AGE_S", "1", "fold_age_s", 1.0),
        ("HEADWATER_REPLACED_BYTES", "4000000", "replaced_bytes", 4_000_000),
        ("HEADWATER_SEGMENT_AGE_S", "1", "segment_age_s", 1.0),
        ("HEADWATER_BASE_FILES", "3", "base_files", 3),
        ("HEADWATER_HISTORY_S", "0.5", "history_s", 0.5),
        ("HEADWATER_CAPTURE_SILENCE_S", "3", "capture_silence_s", 3.0),
        ("HEADWATER_META", "postgresql://u:p@h/d", "meta_url", "postgresql://u:p@h/d"),
    ],
)
def test_names_in_the_environment_from_before_there_was_a_file_still_hold(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, attribute: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    assert getattr(load(home), attribute) == value
    monkeypatch.setenv(variable, "")
    assert getattr(load(home), attribute) == getattr(Settings(fold_age_s=90), attribute)


def test_the_name_of_today_wins_over_an_older_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_FOLD_AGE_S", "1")
    monkeypatch.setenv("HEADWATER_FOLD_AGE", "2h")
    assert load(home).fold_age_s == 7200.0 and line(load(home), "fold.age").location == "HEADWATER_FOLD_AGE"


@pytest.mark.parametrize("name", [*OURS, *NAMED_BY_SPARK])
def test_what_is_reserved_or_has_a_setting_of_its_own_is_no_pair_of_the_user(home: Path, name: str) -> None:
    with pytest.raises(InputError) as e:
        load(home, Given(values={f"{CONF}{name}": "file:x"}))
    assert e.value.code == "settings.value" and name in e.value.message


def test_another_file_may_be_named(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.toml").write_text("base.files = 5\n")
    (tmp_path / "third.toml").write_text("base.files = 6\n")
    monkeypatch.setenv("HEADWATER_CONFIG", str(tmp_path / "other.toml"))
    assert (load(home).base_files, load(home).flush_bytes) == (5, 8 << 20), "the home's own is not read"
    assert load(home, Given(str(tmp_path / "third.toml"))).base_files == 6
    for gone in (Given(str(tmp_path / "gone.toml")), Given(str(tmp_path))):
        with pytest.raises(InputError) as caught:
            load(home, gone)
        assert caught.value.code == "settings.file" and str(gone.file) in caught.value.message


def test_an_unknown_name_gets_the_nearest_and_its_line(home: Path) -> None:
    found = refused(home, '[base]\nfiles = 3\n\n[flush]\nintervall = "1s"\n')
    assert (found.code, found.message) == (
        "settings.unknown",
        "headwater.toml line 5: there is no setting flush.intervall",
    )
    assert found.hint == "Did you mean flush.interval?"
    assert refused(home, "", fold__bugdet="1").hint == "Did you mean fold.budget?"
    assert "headwater settings" in refused(home, "", zzzzz="1").hint
    assert refused(home, "base = 3").message == "headwater.toml line 1: there is no setting base"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('flush.interval = "soon"', "must be a duration from 0.01 to 60 seconds"),
        ("flush.interval = true", "must be a duration from 0.01 to 60 seconds"),
        ("flush.interval = -1", "must be a duration from 0.01 to 60 seconds"),
        ('flush.bytes = "8 bananas"', "must be a size from 64KB to 256MB"),
        ('flush.bytes = "1TB"', "must be a size from 64KB to 256MB"),
        ("fold.budget = 2", "must be a share from 0.01 to 1"),
        ("base.files = 1.5", "must be a whole number from 1 to 1000000"),
        ("base.files = [1]", "must be a string or a number"),
        ("base.files = 2024-01-01", "must be a string or a number"),
        ('meta.url = "mysql://u@h/d"', "must be a PostgreSQL URL, like 'postgresql://user@host/database'"),
        ('meta.url = "h/d"', "must be a PostgreSQL URL"),
        ('meta.url = "postgresql://u:p@h:54a2/d"', "must be a PostgreSQL URL"),
        ('spark.master = "locl[2]"', "is 'locl[2]', and must be local[N]"),
        ('spark.master = "local[0]"', "is 'local[0]', and must be local[N]"),
        ('spark.master = "spark://host"', "is 'spark://host', and must be local[N]"),
        ('spark.conf.memory = "1g"', "is not a Spark setting"),
        ('spark.conf.spark.master = "x"', "has its own setting"),
        ('spark.conf.spark.sql.extensions = "x"', "is reserved by Headwater"),
    ],
)
def test_a_wrong_value_is_reported_with_its_place_and_what_is_expected(home: Path, text: str, expected: str) -> None:
    found = refused(home, f"\n\n{text}\n")
    assert found.code == "settings.value"
    assert found.message.startswith(f"headwater.toml line 3: {text.split(' ')[0]} {expected}")


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[2]", "local[*]", "local[4,3]", "local[*, 3]", "local-cluster[2,1,1024]", "yarn"),
        *("spark://host:7077", "spark://a-1.example:7077,b_2:7078", "spark://[::1]:7077", "k8s://https://host:6443"),
    ],
)
def test_every_master_that_spark_knows_is_accepted(home: Path, master: str) -> None:
    assert load(home, Given(values={"spark.master": f" {master} "})).spark_master == master


def test_meta_may_be_named_as_libpq_allows_or_by_reference(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, 'meta.url = "postgres://u:p@h/d"')
    assert load(home).meta_url == "postgresql://u:p@h/d"
    write(home, 'meta.url = "postgresql://u:p@[::1]:5432/d"')
    assert load(home).meta_url == "postgresql://u:p@[::1]:5432/d"
    given = load(home, Given(values={"meta.url": "env:META_URL"}))
    monkeypatch.setenv("META_URL", "postgres://u:p@h/d")
    assert config.meta_url(home, given.meta_url) == "postgresql://u:p@h/d"
    monkeypatch.setenv("META_URL", "mysql://u:hush@h/d")
    with pytest.raises(InputError, match=r"env:META_URL: meta[.]url must be a PostgreSQL URL") as caught:
        config.meta_url(home, given.meta_url)
    assert caught.value.exit_status == 2 and "hush" not in str(caught.value)


def test_the_place_is_right_behind_a_value_of_several_lines(home: Path) -> None:
    found = refused(home, 'spark.python = """/a\n/b"""\nbase.files = "x"\n')
    assert found.message.startswith("headwater.toml line 3: base.files ")


@pytest.mark.parametrize("content", [b"[flush\n", b"flush.interval = 1s\n", b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(home: Path, content: bytes) -> None:
    (home / "headwater.toml").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(home)
    assert caught.value.code == "settings.file" and str(home / "headwater.toml") in caught.value.message


def test_a_wrong_value_in_the_environment_names_the_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_FOLD_AGE_S", "never")
    assert refused(home).message.startswith("HEADWATER_FOLD_AGE_S: fold.age must be a duration")
    monkeypatch.delenv("HEADWATER_FOLD_AGE_S")
    monkeypatch.setenv("HEADWATER_SPARK_CONF", "spark.cores.max")
    assert refused(home).message == "HEADWATER_SPARK_CONF: spark.conf.spark.cores.max has no value"


def test_no_secret_is_shown_or_taken_from_a_command_line(home: Path) -> None:
    write(
        home,
        'meta.url = "postgresql://u:p@ss/w@h/d?password=x"\nspark.secret = "hush"\nspark.conf.spark.my.token = "t"',
    )
    found = load(home)
    assert (found.meta_url, found.spark_secret) == ("postgresql://u:p@ss/w@h/d?password=x", "hush")
    shown = {x.name: x.value for x in lines(found)}
    assert shown["meta.url"] == "postgresql://***@h/d?***"
    assert shown["spark.secret"] == shown["spark.conf.spark.my.token"] == "***"
    assert "hush" not in repr(found) and "p@ss" not in repr(found)
    for name in ("meta__url", "spark__secret", "spark__conf__spark__my__token"):
        assert "every user of the machine" in refused(home, "", **{name: "hush"}).message
    assert load(home, Given(values={"spark.secret": "env:HUSH"})).spark_secret == "env:HUSH"


def test_an_open_home_has_its_settings_and_a_capture_gets_the_same(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Home.open(home)
    opened.meta.close()
    assert opened.settings.flush_interval_s == 0.5 and opened.settings.arguments == ()
    (tmp_path / "other.toml").write_text("base.files = 5\n")
    monkeypatch.chdir(tmp_path)
    settings = load(home, Given.of("other.toml", ["flush.bytes=2MB"]))
    started: list[list[str]] = []

    def start(command: list[str], **_: object) -> object:
        started.append(command)
        raise OSError("enough")

    monkeypatch.setattr("subprocess.Popen", start)
    again = Home.open(home, settings)
    with pytest.raises(OSError, match="enough"):
        Supervisor(again, lambda: None).want({1})
    again.meta.close()
    (command,) = started
    assert command[-4:] == ["--config", str(tmp_path / "other.toml"), "--set", "flush.bytes=2MB"]


def test_settings_survive_pickling(home: Path) -> None:
    found = load(home)
    assert pickle.loads(pickle.dumps(found)) == found


def command(*arguments: str) -> int:
    return envelope.guarded(lambda: app(list(arguments), standalone_mode=False, prog_name="headwater"))


def test_the_command_shows_each_setting_its_value_its_origin_and_its_meaning(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Home.open(home).meta.close()
    assert command("settings", "--home", str(home), "--set", "base.files=3") == 0
    out, err = capsys.readouterr()
    shown = {row.split()[0]: row for row in out.splitlines() if "." in row.split(" ")[0]}
    assert list(shown) == [*TABLE, "spark.conf.spark.executor.memory"] and err == ""
    assert "500ms" in shown["flush.interval"] and "headwater.toml line 3" in shown["flush.interval"]
    assert "command line" in shown["base.files"] and " 3 " in shown["base.files"]
    assert "default" in shown["upkeep.budget"] and TABLE["upkeep.budget"][1].doc in shown["upkeep.budget"]
    assert "the Python that runs Headwater" in shown["spark.python"]
    assert command("settings", "--home", str(home), "--json") == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["ok"] and reply["result"]["running"] is False and reply["result"]["home"] == str(home)
    assert {"name": "flush.interval", "value": "500ms", "default": "250ms", "from": "file"}.items() <= reply["result"][
        "settings"
    ][1].items()


def test_where_there_is_no_home_the_command_says_so_and_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("settings", "--home", str(tmp_path / "new")) == 0
    out, err = capsys.readouterr()
    assert "250ms" in out and f"there is no home in {tmp_path / 'new'}" in err
    assert not (tmp_path / "new").exists()


def test_the_running_server_is_asked_for_what_it_works_with(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hw = headwater.open(home, settings={"fold.age": "7min"})  # type: ignore[operator]
    found: list[Line] = hw.settings()
    assert {x.name: x.value for x in found}["fold.age"] == "7min"
    listener = wire.serve(home / SOCKET, lambda m: remote.answer(_Only(hw, found), m))  # type: ignore[arg-type]
    try:
        assert command("settings", "--home", str(home), "--json") == 0
        asked = json.loads(capsys.readouterr().out)["result"]
        assert asked["changed"] == [] and asked["refusal"] is None
        assert asked["running"] and {x["name"]: x["value"] for x in asked["settings"]}["fold.age"] == "7min"
        assert command("settings", "--home", str(home), "--json", "--set", "fold.age=8min") == 0
        own = json.loads(capsys.readouterr().out)["result"]
        assert not own["running"] and {x["name"]: x["value"] for x in own["settings"]}["fold.age"] == "8min"
    finally:
        listener.close()


class _Only:
    """A server that was started with these settings, and answers only questions about them."""

    def __init__(self, hw: headwater.Headwater, found: list[Line]) -> None:
        self.settings = lambda: found
        self.given = hw._settings_given.anywhere


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[str]:
    """The home of a server that was started with a command line of its own."""
    (tmp_path / "given.toml").write_text("base.files = 5\nspark.conf.spark.executor.memory = '2g'\n")
    hw = headwater.open(home, config=tmp_path / "given.toml", settings={"fold.age": "7min"})  # type: ignore[operator]
    only = _Only(hw, hw.settings())
    listener = wire.serve(home / SOCKET, lambda m: remote.answer(only, m))  # type: ignore[arg-type]
    yield str(home)
    listener.close()


def changed(home: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert command("settings", "--home", home) == 0
    return capsys.readouterr().err.splitlines()


def test_what_has_changed_since_the_server_read_it_is_reported(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert changed(server, capsys) == [], "the home's own file is not what this server uses"
    (tmp_path / "given.toml").write_text("\nbase.files = 6\nfold.age = '9min'\n")
    monkeypatch.setenv("HEADWATER_FLUSH_INTERVAL", "1s")
    path = tmp_path / "given.toml"
    assert changed(server, capsys) == [
        "⚠ flush.interval: the server uses 250ms (default), "
        "a restart from here would use 1s (HEADWATER_FLUSH_INTERVAL)",
        f"⚠ base.files: the server uses 5 ({path} line 1), a restart from here would use 6 ({path} line 2)",
        f"⚠ spark.conf.spark.executor.memory: the server uses 2g ({path} line 2), "
        "a restart from here would use what Headwater or Spark chooses (default)",
    ]
    assert command("settings", "--home", server, "--json") == 0
    told = json.loads(capsys.readouterr().out)["result"]["changed"]
    assert [(x["name"], x["value"]) for x in told] == [
        ("flush.interval", "1s"),
        ("base.files", "6"),
        ("spark.conf.spark.executor.memory", ""),
    ]


def test_a_file_that_would_not_start_a_server_again_is_reported(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "given.toml").write_text("bse.files = 6\n")
    (said,) = changed(server, capsys)
    assert said.startswith("⚠ the server could not be restarted from here: ")
    assert said.endswith("given.toml line 1: there is no setting bse.files")


def test_a_wrong_file_ends_a_run_before_it_makes_a_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wrong.toml").write_text("[flsh]\ninterval = 1\n")
    made = tmp_path / "home"
    assert command("run", "--home", str(made), "--config", str(tmp_path / "wrong.toml")) == 2
    said = capsys.readouterr().err
    assert "wrong.toml line 2: there is no setting flsh.interval" in said and "Did you mean flush.interval?" in said
    assert not made.exists()
    assert command("run", "--home", str(made), "--set", "flush.interval") == 2
    assert "--set flush.interval is not NAME=VALUE" in capsys.readouterr().err
