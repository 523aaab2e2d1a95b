"""A start of Spark beside other threads, and what makes it fast."""

from __future__ import annotations

from pathlib import Path

from headwater.engine import spark as engine_spark


def test_a_start_adds_no_name_to_an_environment_that_was_prepared(started) -> None:  # type: ignore[no-untyped-def]
    """A new name would move the environment in memory, under a process that another thread is just starting."""
    assert started.added == set()


def test_the_class_archive_of_the_set_up_is_used(started) -> None:  # type: ignore[no-untyped-def]
    archive = engine_spark.class_archive()
    assert archive.exists(), "make setup makes it"
    (jvm,) = engine_spark.processes()
    assert str(archive) in Path(f"/proc/{jvm}/maps").read_text()
