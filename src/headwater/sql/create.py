"""CREATE CONNECTION and CREATE TABLE: names, columns, key, options."""

from __future__ import annotations

import re
from collections.abc import Callable

from headwater.config import Secret
from headwater.errors import DefinitionError
from headwater.source.options import SECRET
from headwater.sql.cursor import Cursor
from headwater.sql.options import Location, OptionKind, validate, validate_change
from headwater.sql.statements import ColumnSpec, CreateConnection, CreateTable
from headwater.sql.tokens import Kind, location

_ONE_NAME = "Name it without a schema; TABLE 'schema.table' says where it comes from."
_UPSTREAM_RULES = "Remove it: the upstream enforces such constraints, and the rows satisfy them."
_TYPE_ENDS = frozenset(
    {"PRIMARY", "NOT", "NULL", "DEFAULT", "UNIQUE", "REFERENCES", "CHECK", "GENERATED", "CONSTRAINT", "COMMENT"}
)
_OTHER_CONSTRAINTS = frozenset({"FOREIGN", "UNIQUE", "CHECK", "EXCLUDE", "INDEX"})
_PART = r'(?:"(?:[^"]|"")+"|[^".]+)'


def create_connection(c: Cursor) -> CreateConnection:
    """CREATE CONNECTION [IF NOT EXISTS] name WITH (…); the cursor is at CONNECTION."""
    c.take("CONNECTION")
    exists = if_not_exists(c)
    name = own_name(c, "a name for the connection")
    if c.word != "WITH":
        raise c.expected("WITH (…)")
    options = with_options(c, "connection")
    secret = options.pop(SECRET, None)
    return CreateConnection(
        text=c.statement_text,
        line=c.line,
        name=name,
        options=options,
        secret=None if secret is None else Secret(secret),
        if_not_exists=exists,
    )


def create_table(c: Cursor) -> CreateTable:
    """CREATE TABLE [IF NOT EXISTS] name [(…)] [WITH (…)] FROM CONNECTION name [TABLE …] [WITH (…)]."""
    c.take("TABLE")
    exists = if_not_exists(c)
    name = own_name(c, "a name for the table")
    columns, key = _body(c) if c.at("(") else (None, ())
    options = with_options(c, "table") if c.word == "WITH" else None
    if c.word == "AS":
        hint = "Run the query with SELECT, or write CREATE TABLE name FROM CONNECTION …."
        raise c.error("CREATE TABLE … AS is not supported", hint, "sql.unsupported")
    if c.word != "FROM" or c.word_after != "CONNECTION":
        if c.word == "FROM":
            c.next()
        raise c.expected("FROM CONNECTION" if c.word != "CONNECTION" else "FROM")
    c.next(), c.next()
    connection = c.name("the name of a connection")
    upstream = _upstream(c) if c.accept("TABLE") else None
    if c.word == "WITH":
        if options is not None:
            raise c.error("a second WITH (…)", "Put all options into one WITH (…).")
        options = with_options(c, "table")
    return CreateTable(
        text=c.statement_text,
        line=c.line,
        name=name,
        connection=connection,
        columns=columns,
        key=key,
        upstream=upstream,
        options=validate("table", {}) if options is None else options,
        if_not_exists=exists,
    )


def if_not_exists(c: Cursor) -> bool:
    """Takes IF NOT EXISTS if it is next."""
    if c.word != "IF" or c.word_after != "NOT":
        return False
    c.next(), c.next()
    c.take("EXISTS")
    return True


def own_name(c: Cursor, what: str) -> str:
    """A name for something new, which has no schema."""
    name = c.name(what)
    if c.at("."):
        raise c.error(f"the name {name}.… has a schema", _ONE_NAME)
    return name


def alter_options(c: Cursor, kind: OptionKind) -> dict[str, str]:
    """SET (…) of ALTER: the given options, validated."""
    values, where = _given(c, "SET")
    if not values:
        raise c.error("no option is given", "Write, for example, SET (backfill.parallelism = 2).")
    return validate_change(kind, values, where)


def with_options(c: Cursor, kind: OptionKind) -> dict[str, str]:
    """WITH (dotted.name = value, … [,]), validated; values are strings, numbers or single words."""
    return validate(kind, *_given(c, "WITH"))


def _given(c: Cursor, word: str) -> tuple[dict[str, str], Callable[[str | None], Location]]:
    """The options in parentheses after a word, as written, with the location of each."""
    begin = c.take(word).start
    c.take_symbol("(", f"( after {word}")
    values: dict[str, str] = {}
    offsets: dict[str, int] = {}
    while not c.accept_symbol(")"):
        offset = c.offset
        name = _option_name(c)
        if name.lower() in {n.lower() for n in values}:
            raise c.error(f"option {name} is given twice", "Keep one of them.", offset=offset)
        if not c.accept_symbol("="):
            raise c.expected(f"= after {name}")
        values[name], offsets[name] = _option_value(c, name), offset
        if not c.at(")"):
            c.take_symbol(",", ", or )")

    def where(name: str | None) -> Location:
        line, column, text = location(c.text, begin if name is None else offsets[name])
        return Location(line=line, column=column, text=text)

    return values, where


def _option_name(c: Cursor) -> str:
    if c.at("["):  # copied from a page that turned dotted names into links
        offset = c.offset
        c.next()
        name = _option_name(c)
        raise c.error(f"[{name}](…) is a link, not a name", f"Write {name} = '…'.", offset=offset)
    name = c.name("an option's name")
    while c.accept_symbol("."):
        name += "." + c.name("the rest of the option's name")
    return name


def _option_value(c: Cursor, name: str) -> str:
    token = c.here
    if token is None or token.kind not in (Kind.STRING, Kind.NUMBER, Kind.WORD):
        raise c.expected(f"a value for {name}", "Put the value in single quotes.")
    return c.next().text


def _body(c: Cursor) -> tuple[tuple[ColumnSpec, ...] | None, tuple[str, ...]]:
    """(columns, constraints) or (*): columns None = the upstream's."""
    c.take_symbol("(")
    star = False
    columns: list[ColumnSpec] = []
    keys: list[tuple[str, ...]] = []
    begin = c.offset
    while not c.accept_symbol(")"):
        if c.at("*") and not columns and not star:
            c.next()
            star = True
        elif c.word in ("PRIMARY", "CONSTRAINT") and _is_constraint(c):
            keys.append(_key_constraint(c))
        elif c.word in _OTHER_CONSTRAINTS and (c.word_after == "KEY" or c.symbol_after == "("):
            raise c.error(f"{c.word} is not supported", _UPSTREAM_RULES, "sql.unsupported")
        elif star:
            raise c.expected(", PRIMARY KEY or )", "Write only (*), or list all columns that you want.")
        else:
            column, is_key = _column(c)
            columns.append(column)
            if is_key:
                keys.append((column.name,))
        if not c.at(")"):
            c.take_symbol(",", ", or )")
    if len(keys) > 1:
        raise c.error("the key is declared twice", "Keep one PRIMARY KEY; for two columns write PRIMARY KEY (a, b).")
    key = keys[0] if keys else ()
    if not columns and not star:
        raise c.error("the column list is empty", "List the columns, write (*), or omit the list.", offset=begin)
    _check_names(c, columns, key, star, begin)
    return (None if star else tuple(columns)), _as_declared(key, columns)


def _is_constraint(c: Cursor) -> bool:
    """PRIMARY KEY … or CONSTRAINT name PRIMARY KEY …, not a column with such a name."""
    return c.word_after == "KEY" if c.word == "PRIMARY" else c.word == "CONSTRAINT"


def _key_constraint(c: Cursor) -> tuple[str, ...]:
    if c.accept("CONSTRAINT"):
        c.name("the constraint's name")
    if c.word != "PRIMARY":
        raise c.error("PRIMARY KEY is the only supported constraint", _UPSTREAM_RULES, "sql.unsupported")
    c.next()
    c.take("KEY")
    c.take_symbol("(", "( after PRIMARY KEY")
    names = [c.name("a key column's name")]
    while c.accept_symbol(","):
        names.append(c.name("a key column's name"))
    c.take_symbol(")", ", or )")
    return tuple(names)


def _column(c: Cursor) -> tuple[ColumnSpec, bool]:
    """name type [NOT NULL | NULL] [PRIMARY KEY]."""
    line = location(c.text, c.offset)[0]
    name = c.name("a column's name")
    column = ColumnSpec(name, _type(c, name), line)
    is_key = False
    while c.here is not None and not c.at(",") and not c.at(")"):
        if c.accept("PRIMARY"):
            c.take("KEY")
            is_key = True
        elif c.accept("NOT"):
            c.take("NULL")
        elif not c.accept("NULL"):
            raise c.error(f"{c.word or 'this'} is not supported", _UPSTREAM_RULES, "sql.unsupported")
    return column, is_key


def _type(c: Cursor, column: str) -> str:
    """A type's text as written: words, (n, m), <…>, []."""
    if c.here is None or c.here.kind not in (Kind.WORD, Kind.QUOTED) or c.word in _TYPE_ENDS:
        raise c.expected(f"a type for column {column}", "Give each column a type, or write (*) for the upstream's.")
    begin, depth, end = c.offset, 0, c.offset
    while c.here is not None:
        if depth == 0 and (c.at(",") or c.at(")") or c.word in _TYPE_ENDS):
            break
        if c.at_string:
            raise c.expected(", or )")
        token = c.next()
        if token.kind is Kind.SYMBOL:
            depth += sum({"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(ch, 0) for ch in token.text)
        end = token.end
    return re.sub(r"\s+", " ", c.text[begin:end])


def _check_names(c: Cursor, columns: list[ColumnSpec], key: tuple[str, ...], star: bool, offset: int) -> None:
    seen: dict[str, str] = {}
    for column in columns:
        twin = seen.setdefault(column.name.lower(), column.name)
        if twin != column.name:
            raise DefinitionError(
                "table.column_case",
                f"line {column.line}: columns {twin} and {column.name} differ only in case",
                "Remove one of them: names in the lake are case-insensitive.",
            )
        if sum(other.name == column.name for other in columns) > 1:
            raise c.error(f"column {column.name} is declared twice", "Keep one of them.", offset=offset)
    for name in key:
        if not star and name.lower() not in seen:
            raise c.error(f"key column {name} is not among the columns", "Add it to the column list.", offset=offset)
    if len({k.lower() for k in key}) < len(key):
        raise c.error("a key column is named twice", "Name each once.", offset=offset)


def _as_declared(key: tuple[str, ...], columns: list[ColumnSpec]) -> tuple[str, ...]:
    """The key's names, spelled as in the columns."""
    spelled = {column.name.lower(): column.name for column in columns}
    return tuple(spelled.get(k.lower(), k) for k in key)


def _upstream(c: Cursor) -> tuple[str | None, str]:
    """'schema.table', schema.table or table, each part plain or in double quotes."""
    token = c.here
    if token is not None and token.kind is Kind.STRING:
        found = re.fullmatch(rf"(?:({_PART})\.)?({_PART})", token.text)
        if found is None:
            raise c.error("this is not a table name", 'Write TABLE \'schema.table\', or TABLE "schema"."table".')
        c.next()
        schema, table = found.groups()
        return (None if schema is None else _unquoted(schema)), _unquoted(table)
    first = c.name("the upstream table's name")
    return (first, c.name("the upstream table's name")) if c.accept_symbol(".") else (None, first)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
