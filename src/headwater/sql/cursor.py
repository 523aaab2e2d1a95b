"""A cursor over a statement's tokens: peeks, takes, and reports what was expected."""

from __future__ import annotations

from headwater.errors import SqlError
from headwater.sql.tokens import Kind, Piece, Token, location, syntax_error


class Cursor:
    """Walks over the tokens of one statement. `take`, `name`, … advance or raise an error that shows the location."""

    def __init__(self, tokens: list[Token], text: str, piece: Piece) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = piece.head.end
        self.piece = piece
        self.text = text
        self.statement_text = text[piece.start : piece.end]
        self.line = location(text, piece.start)[0]

    @property
    def here(self) -> Token | None:
        """The next token; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    @property
    def word(self) -> str:
        """The next token's word in upper case, or empty."""
        return self.here.word if self.here else ""

    @property
    def word_after(self) -> str:
        return self._tokens[self._at + 1].word if self.more_after else ""

    @property
    def symbol_after(self) -> str:
        token = self._tokens[self._at + 1] if self.more_after else None
        return token.text if token is not None and token.kind is Kind.SYMBOL else ""

    @property
    def more_after(self) -> bool:
        """Whether there is a token after the next one."""
        return self._at + 1 < len(self._tokens)

    @property
    def offset(self) -> int:
        return self.here.start if self.here else self._end

    @property
    def at_string(self) -> bool:
        """Whether the next token is a string."""
        return self.here is not None and self.here.kind is Kind.STRING

    def at(self, symbol: str) -> bool:
        """Whether the next token is this symbol."""
        return self.here is not None and self.here.kind is Kind.SYMBOL and self.here.text == symbol

    def next(self) -> Token:
        token = self.here
        if token is None:
            raise self.expected("more")
        self._at += 1
        return token

    def accept(self, word: str) -> bool:
        """Takes the word if it is next."""
        if self.word != word:
            return False
        self._at += 1
        return True

    def accept_symbol(self, symbol: str) -> bool:
        if not self.at(symbol):
            return False
        self._at += 1
        return True

    def take(self, word: str, expected: str = "") -> Token:
        if self.word != word:
            raise self.expected(expected or word)
        return self.next()

    def take_symbol(self, symbol: str, expected: str = "") -> Token:
        if not self.at(symbol):
            raise self.expected(expected or symbol)
        return self.next()

    def name(self, what: str) -> str:
        """A name: a word as written, or "quoted" or `quoted`."""
        token = self.here
        if token is None or token.kind not in (Kind.WORD, Kind.QUOTED) or not token.text:
            raise self.expected(what, "Put a name with other characters in double quotes.")
        return self.next().text

    def whole_number(self, what: str) -> int:
        """A number without a sign or a fraction."""
        token = self.here
        if token is None or token.kind is not Kind.NUMBER or not token.text.isdigit():
            raise self.expected(what)
        return int(self.next().text)

    def expect_end(self) -> None:
        if self.here is not None:
            raise self.expected("the end of the statement", "End the statement with ; before the next one.")

    def expected(self, what: str, hint: str = "") -> SqlError:
        """`expected what, found …` at the next token."""
        return self.error(f"expected {what}, found {self._found()}", hint)

    def error(self, message: str, hint: str = "", code: str = "sql.syntax", offset: int | None = None) -> SqlError:
        return syntax_error(self.text, self.offset if offset is None else offset, message, hint, code)

    def _found(self) -> str:
        token = self.here
        if token is None:
            return "the end of the statement"
        if token.kind is Kind.STRING:
            return "a string"  # it may be a misplaced password
        return f"'{token.text}'"
