"""A statement's tokens, read from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.source.mysql.ddl.lexer import Kind, Token, unreadable

_NAMES = (Kind.WORD, Kind.NAME, Kind.TEXT)  # a string in place of a name is a name: its session had ANSI_QUOTES


class Words:
    """Tokens and how far they have been read. Unqualified table names are in `schema`."""

    def __init__(self, tokens: Sequence[Token], schema: str) -> None:
        self._tokens = tokens
        self._at = 0
        self._schema = schema

    @property
    def more(self) -> bool:
        return self._at < len(self._tokens)

    def peek(self, ahead: int = 0) -> str:
        """A bare word in upper case, punctuation unchanged; '' for a quoted name, a string or the end."""
        at = self._at + ahead
        return self._tokens[at].word if at < len(self._tokens) else ""

    def take(self) -> Token:
        """The next token; there must be one."""
        self._at += 1
        return self._tokens[self._at - 1]

    def take_word(self) -> str:
        word = self.peek()
        self._at += 1
        return word

    def take_any(self, *words: str) -> bool:
        """Takes the next word if it is one of these."""
        if self.more and self.peek() in words:
            self._at += 1
            return True
        return False

    def take_all(self, *words: str) -> bool:
        """Takes the next words if they are these."""
        if all(self.peek(i) == w for i, w in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def take_exists(self) -> bool | None:
        """True for IF EXISTS, False for IF NOT EXISTS, None if neither comes next."""
        if self.take_all("IF", "EXISTS"):
            return True
        return False if self.take_all("IF", "NOT", "EXISTS") else None

    def take_wait(self) -> None:
        """MariaDB's WAIT n or NOWAIT."""
        if self.take_any("WAIT"):
            self.take_word()
        else:
            self.take_any("NOWAIT")

    def take_part(self) -> str | None:
        """A single name; None, and nothing is taken, if the next token is not a readable name."""
        if not self.more:
            return None
        token = self._tokens[self._at]
        if token.kind not in _NAMES or not token.text or unreadable(token.text):
            return None
        self._at += 1
        return token.text

    def peek_part(self) -> str:
        """The single name that comes next; '' if the next token is not a readable name."""
        name = self.take_part()
        self._at -= name is not None
        return name or ""

    def take_value(self) -> str:
        """A value of any content: a string may be empty. '' and nothing taken if the next token is not one."""
        if not self.more or self._tokens[self._at].kind not in _NAMES:
            return ""
        return self.take().text

    def take_name(self) -> tuple[str, str] | None:
        """A table's schema and name, if both can be read."""
        self.take_any(".")  # .t is t
        first = self.take_part()
        if first is None or not self.take_any("."):
            return None if first is None else (self._schema, first)
        second = self.take_part()
        return None if second is None else (first, second)

    def take_group(self) -> list[Token]:
        """The tokens between the opening parenthesis that comes next and its closing one."""
        depth, inside = 0, list[Token]()
        while self.more:
            token = self.take()
            depth += (token.word == "(") - (token.word == ")")
            if depth == 0:
                break
            inside.append(token)
        return inside[1:]

    def group(self) -> Words:
        """The same, to be read separately."""
        return Words(self.take_group(), self._schema)

    def skip_to(self, *words: str) -> bool:
        """Skips past the next of these words that is outside parentheses; False if there is none."""
        while self.more:
            if self.peek() == "(":
                self.take_group()
            elif self.take_any(*words):
                return True
            else:
                self._at += 1
        return False

    def outside(self) -> list[str]:
        """The remaining words outside parentheses; '' for other tokens. Takes nothing."""
        found, depth = list[str](), 0
        for token in self._tokens[self._at :]:
            depth += token.word == "("
            if not depth:
                found.append(token.word)
            depth -= token.word == ")"
        return found

    def everything(self) -> list[str]:
        """The remaining words. Takes nothing."""
        return [t.word for t in self._tokens[self._at :]]

    def items(self) -> list[Words]:
        """The rest as the items of a comma-separated list."""
        items, depth = [list[Token]()], 0
        for token in self._tokens[self._at :]:
            depth += (token.word == "(") - (token.word == ")")
            if token.word == "," and not depth:
                items.append([])
            else:
                items[-1].append(token)
        return [Words(item, self._schema) for item in items if item]
