"""Statements grouped as they are executed: each alone, those of a BEGIN … COMMIT block together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import SqlError
from headwater.sql import statements as st


@dataclass(frozen=True, slots=True)
class Step:
    """One statement, or the definitions of a block, which are stored all or none. Lines count from 1."""

    statements: tuple[st.Statement, ...]
    line: int
    last_line: int
    block: bool = False

    @property
    def location(self) -> str:
        """Its location in words."""
        return f"lines {self.line} to {self.last_line}" if self.last_line > self.line else f"line {self.line}"

    @property
    def text(self) -> str:
        """Its text, to send it elsewhere for execution."""
        texts = [statement.text for statement in self.statements]
        return ";\n".join(["BEGIN", *texts, "COMMIT"] if self.block else texts)


def steps(statements: Sequence[st.Statement]) -> list[Step]:
    """The steps of a text, in order; raises if a block does not begin, end or contain what it should."""
    found: list[Step] = []
    begin: st.Statement | None = None
    inside: list[st.Statement] = []
    for statement in statements:
        if isinstance(statement, st.Begin):
            if begin is not None:
                raise _misplaced(statement, "BEGIN inside BEGIN", "COMMIT the first block first.")
            begin, inside = statement, []
        elif isinstance(statement, st.Commit):
            if begin is None:
                raise _misplaced(statement, "COMMIT without BEGIN", "Remove it, or start the block with BEGIN.")
            found.append(Step(tuple(inside), begin.line, statement.line, block=True))
            begin = None
        elif begin is None:
            found.append(Step((statement,), statement.line, statement.line))
        elif isinstance(statement, st.Definition):
            inside.append(statement)
        else:
            raise _misplaced(statement, "only CREATE statements are allowed in a block", "COMMIT the block first.")
    if begin is not None:
        raise _misplaced(begin, "BEGIN without COMMIT; nothing was executed", "End the block with COMMIT;")
    return found


def _misplaced(statement: st.Statement, message: str, hint: str) -> SqlError:
    return SqlError("sql.syntax", f"line {statement.line}: {message}", hint, line=statement.line)
