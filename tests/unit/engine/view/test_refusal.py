"""What a user reads when a view cannot be computed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from headwater.engine.view.refusal import refused
from headwater.meta.relations import BESIDE
from support.relation import columns_of, relation_of


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("[DIVIDE_BY_ZERO] Division by 17.", "DIVIDE_BY_ZERO", "Correct the rows; "),
        (
            "[UNRESOLVED_COLUMN] A column 'secret' cannot be resolved.",
            "A column … cannot be resolved.",
            "Headwater retri",
        ),
    ],
)
def test_only_errors_of_rows_ask_for_other_rows_and_no_name_of_ours_is_shown(text: str, reason: str, hint: str) -> None:
    view = replace(relation_of(columns_of(), ("k",)), name=f"{BESIDE}v")
    found = refused(view, PySparkException(text))
    assert found.message.startswith("v could not be computed: ") and found.message.endswith(reason)
    assert found.hint.startswith(hint) and BESIDE not in found.hint and "secret" not in found.message
