"""What Spark is told by the settings: a local master keeps everything here, a cluster's workers get what they need."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headwater.engine.spark import conf
from headwater.errors import MachineError
from headwater.settings.load import Given, load
from headwater.settings.table import Settings

HOME = Path("/h")
JARS = ["/jars/a.jar", "/jars/b.jar"]
CLUSTER = Settings(spark_master="spark://master:7077", spark_secret="hush")


def told(settings: Settings) -> dict[str, str]:
    return conf.conf_of(HOME, settings, JARS)


def test_by_default_spark_is_this_machine_alone() -> None:
    cores = os.cpu_count() or 2
    found = told(Settings())
    assert found["spark.master"] == f"local[{6 * cores}]"
    assert found["spark.default.parallelism"] == found["spark.sql.files.maxPartitionNum"] == str(2 * cores)
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.driver.memory"] == "2048m" and found["spark.authenticate"] == "true"
    assert found["spark.broadcast.compress"] == "false" and "spark.jars" not in found
    assert conf.environment_of(Settings())["PYSPARK_PYTHON"] == sys.executable
    assert conf.secrets_of(Settings()) == {}


@pytest.mark.parametrize(
    ("settings", "master", "share"),
    [
        (Settings(spark_slots=12), "local[12]", 4),
        (Settings(spark_slots=2), "local[2]", 1),
        (Settings(spark_master="local[9]"), "local[9]", 3),
        (Settings(spark_master="local[9,3]"), "local[9,3]", 3),
        (Settings(spark_master="spark://m:7077"), "spark://m:7077", None),
        (Settings(spark_master="spark://m:7077", spark_slots=30), "spark://m:7077", 10),
        (Settings(spark_master="local-cluster[2,1,1024]"), "local-cluster[2,1,1024]", None),
    ],
)
def test_a_query_is_cut_by_the_settings_or_by_what_a_cluster_has(
    settings: Settings, master: str, share: int | None
) -> None:
    assert (conf.master_of(settings), conf.share_of(settings)) == (master, share)
    assert told(settings).get("spark.default.parallelism") == (None if share is None else str(share))


def test_the_workers_of_a_cluster_get_jars_and_python_and_no_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/here/src")
    found = told(CLUSTER)
    assert found["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert found["spark.executorEnv.PYTHONPATH"] == "/here/src"
    assert "spark.broadcast.compress" not in found, "what leaves the process is compressed"
    assert found["spark.network.crypto.enabled"] == "true", "and encrypted: tasks carry passwords"
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & found.keys()
    assert "SPARK_LOCAL_IP" not in conf.environment_of(CLUSTER)
    there = Settings(
        spark_master="spark://master:7077",
        spark_driver_host="driver.example",
        spark_driver_bind="0.0.0.0",
        spark_python="/opt/python",
        spark_python_path="/opt/headwater",
        spark_driver_memory=512 << 20,
    )
    assert told(there)["spark.driver.host"] == "driver.example"
    assert told(there)["spark.driver.bindAddress"] == "0.0.0.0"
    assert told(there)["spark.driver.memory"] == "512m"
    assert told(there)["spark.executorEnv.PYTHONPATH"] == "/opt/headwater"
    assert conf.environment_of(there)["PYSPARK_PYTHON"] == "/opt/python"
    assert conf.environment_of(there)["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_pairs_of_the_user_win_over_ours() -> None:
    found = told(Settings(spark_conf={"spark.sql.shuffle.partitions": "16", "spark.cores.max": "4"}))
    assert (found["spark.sql.shuffle.partitions"], found["spark.cores.max"]) == ("16", "4")


def test_no_secret_is_among_what_stands_on_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("hush\n")
    monkeypatch.setenv("KEY_PASSWORD", "quiet")
    settings = load(
        tmp_path,
        Given(
            values={
                "spark.master": "spark://m:7077",
                "spark.secret": f"file:{tmp_path}/secret",
                "spark.conf.spark.ssl.keyPassword": "env:KEY_PASSWORD",
            }
        ),
    )
    assert conf.secrets_of(settings) == {"spark.authenticate.secret": "hush", "spark.ssl.keyPassword": "quiet"}
    public = " ".join(f"{k}={v}" for k, v in told(settings).items())
    assert "hush" not in public and "quiet" not in public and "keyPassword" not in public


def test_a_standalone_cluster_without_its_secret_is_refused_before_anything_starts() -> None:
    with pytest.raises(MachineError) as caught:
        conf.secrets_of(Settings(spark_master="spark://m:7077"))
    assert caught.value.code == "spark.failed" and "spark.secret" in caught.value.hint
    open_cluster = Settings(spark_master="spark://m:7077", spark_conf={"spark.authenticate": "false"})
    assert conf.secrets_of(open_cluster) == {}
    assert conf.secrets_of(Settings(spark_master="yarn")) == {}, "it makes a secret for each application"
