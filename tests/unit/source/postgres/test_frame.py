"""Framing against a naive model: the same rows, transactions, boundaries and 64-bit transaction numbers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.model import LogColumn
from headwater.source.frames import FramedTo
from headwater.source.postgres.client.session import int_to_lsn
from headwater.source.postgres.frame import PostgresFraming, frame, parse_relation, widen
from support.messages import begin, commit, data, inbox, keepalive, relation, row, truncate


@dataclass
class Model:
    """What framing must find, said in the plainest way."""

    rows: list[tuple[int, int, int, bytes]]  # index, 64-bit transaction, table, message
    transactions: list[tuple[int, int, int, int]]  # transaction, commit lsn, first and last index


MESSAGES = st.lists(
    st.tuples(
        st.lists(
            st.one_of(
                st.tuples(st.sampled_from("IUD"), st.integers(1, 5), st.binary(max_size=20)),
                st.tuples(st.just("T"), st.lists(st.integers(1, 5), min_size=1, max_size=4)),
                st.tuples(st.sampled_from(["R", "Y", "k"]), st.integers(1, 5)),
            ),
            max_size=6,
        ),
        st.integers(-1000, 1000),  # how far this transaction's number is from the last one
        st.booleans(),  # a keepalive follows
    ),
    max_size=8,
)


def build(transactions: list[Any], first_txn: int) -> tuple[list[bytes], Model, int]:
    messages, model, index, txn, lsn = [], Model([], []), 1, first_txn, 1000
    for changes, distance, alive in transactions:
        txn = max(3, txn + distance)
        messages.append(begin(txn))
        first = index
        for change in changes:
            if change[0] == "T":
                m = truncate(*change[1])
                tables = change[1]
            elif change[0] == "R":
                m, tables = relation(change[1], "id"), []
            elif change[0] == "Y":
                m, tables = data(b"Y" + bytes(10)), []
            elif change[0] == "k":
                m, tables = keepalive(10**9), []  # inside a transaction: must never count
            else:
                m, tables = row(change[0], change[1], change[2]), [change[1]]
            messages.append(m)
            for table in tables:
                model.rows.append((index, txn, table, m[25:]))
                index += 1
        lsn += 100
        messages.append(commit(lsn))
        if index > first:
            model.transactions.append((txn, lsn, first, index - 1))
        if alive:
            lsn += 10
            messages.append(keepalive(lsn))
    return messages, model, lsn if transactions else 0


@given(MESSAGES, st.sampled_from([1000, 2**32 - 500, 2**32 + 100, 7 * 2**32 - 3]))
def test_framing_finds_what_a_plain_reading_finds(transactions: list[Any], first_txn: int) -> None:
    messages, model, last = build(transactions, first_txn)
    found, after = frame(*inbox(messages).arrays(), FramedTo(1, "0/0", first_txn))
    assert found_rows(messages, found) == model.rows
    t = found.transactions
    assert list(zip(t.txn, t.commit, t.first_index, t.last_index, strict=True)) == model.transactions
    assert after.position == int_to_lsn(last) and not after.open and after.next_index == len(model.rows) + 1


@given(MESSAGES, st.integers(1, 60))
def test_a_flow_cut_anywhere_gives_the_same_rows_and_transactions(transactions: list[Any], every: int) -> None:
    messages, model, _ = build(transactions, 2**32 - 20)
    rows, done, progress, rest = [], [], FramedTo(1, "0/0", 2**32 - 20), inbox([])
    for at in range(0, len(messages), every):
        rest.extend(messages[at : at + every])
        cut = PostgresFraming().boundary(*rest.arrays(), progress.open)
        count, size = (cut.whole, cut.whole_bytes) if cut.whole else (cut.piece, cut.piece_bytes)
        if not count:
            continue
        bytes_, lengths = rest.arrays()
        frames, progress = frame(bytes_[:size], lengths[:count], progress)
        assert progress.open == (not cut.whole)
        assert len(frames) or not len(frames.transactions), "a commit comes with a row"
        rows += [
            (frames.first_index + i, int(frames.txn[i]), int(frames.upstream_id[i]), payload(bytes_, frames, i))
            for i in range(len(frames))
        ]
        t = frames.transactions
        done += list(zip(t.txn, t.commit, t.first_index, t.last_index, strict=True))
        del bytes_, lengths, frames, t
        rest = rest.without(count, size)
    assert rows == model.rows
    assert done == model.transactions


def payload(bytes_: Any, frames: Any, i: int) -> bytes:
    start, length = int(frames.start[i]), int(frames.length[i])
    return bytes(bytes_[start : start + length])


def found_rows(messages: list[bytes], frames: Any) -> list[tuple[int, int, int, bytes]]:
    bytes_ = np.frombuffer(b"".join(messages), np.uint8)
    return [
        (frames.first_index + i, int(frames.txn[i]), int(frames.upstream_id[i]), payload(bytes_, frames, i))
        for i in range(len(frames))
    ]


@given(st.integers(2**31, 2**62), st.integers(-(2**31), 2**31 - 1))
def test_a_32_bit_transaction_number_is_widened_to_the_one_nearest_to_the_last(last: int, distance: int) -> None:
    assert widen((last + distance) & 0xFFFFFFFF, last) == last + distance


def test_a_keepalive_moves_the_position_only_outside_a_transaction() -> None:
    inside = inbox([begin(5), row("I", 1), keepalive(900)])
    assert PostgresFraming().boundary(*inside.arrays(), False).whole == 0
    outside = inbox([begin(5), row("I", 1), commit(500), keepalive(900)])
    assert frame(*outside.arrays(), FramedTo(1, "0/0", 4))[1].position == int_to_lsn(900)
    assert PostgresFraming().boundary(*inbox([keepalive(900)]).arrays(), True).whole == 0


def test_a_relation_message_keeps_unicode_names_modifiers_and_key_columns() -> None:
    message = b"R" + struct.pack("!I", 4_000_000_000) + "größe\0Straße\0f".encode() + struct.pack("!H", 2)
    message += b"\1" + b"id\0" + struct.pack("!Ii", 20, -1) + b"\0" + "näme\0".encode() + struct.pack("!Ii", 1043, 14)
    found = parse_relation(message)
    assert (found.upstream_id, found.schema, found.table, found.identity) == (4_000_000_000, "größe", "Straße", "f")
    assert found.columns == (LogColumn("id", 20, -1, True), LogColumn("näme", 1043, 14, False))
    assert parse_relation(relation(1, "a", schema="")[25:]).schema == "pg_catalog"


def test_after_two_billion_transactions_that_wrote_nothing_for_us_the_numbers_are_still_right() -> None:
    """The last stored number is then of the other half of the ring: the server's own next one leads."""
    far = 700 + 2**31 + 5
    start = PostgresFraming(next_txn=far).begin("0/10", 1, 700)
    found, _ = frame(*inbox([begin(far), row("I", 1), commit(500)]).arrays(), start)
    assert found.txn.tolist() == [far]
    misled = PostgresFraming().begin("0/10", 1, 700)
    wrong, _ = frame(*inbox([begin(far), row("I", 1), commit(500)]).arrays(), misled)
    assert wrong.txn.tolist() != [far], "the case that the server's number is for"
    assert PostgresFraming(next_txn=10).begin("0/10", 8, 700) == FramedTo(8, "0/10", 700)
    assert PostgresFraming(next_txn=701).begin("0/10", 8, 700).last_txn == 700
