"""Entries as they come from the stream."""

from __future__ import annotations

import pytest

from apiserver.storage import log
from apiserver.watchcache import keys


def entry(*fields: bytes, id_: bytes = b"7-3") -> log.RawEntry:
    return id_, list(fields)


HEAD = (b"k", b"ns/a", b"t", b"1", b"m", b"7-1", b"p", b"7-2", b"w", b"boot.1")


def test_an_update_has_both_values() -> None:
    record = log.decode(entry(*HEAD, b"v", b"new", b"o", b"old"))
    assert record == log.Record(b"7-3", log.UPDATE, record.key, b"7-1", b"7-2", b"boot.1", b"new", b"old")
    assert (record.key, record.revision, record.cut) == ("ns/a", keys.revision("7-3"), False)


def test_an_update_without_its_old_value_is_cut() -> None:
    assert log.decode(entry(*HEAD, b"v", b"new")).cut


def test_a_create_is_never_cut() -> None:
    record = log.decode(entry(b"k", b"a", b"t", b"0", b"m", b"-", b"p", b"7-2", b"w", b"boot.1", b"v", b"new"))
    assert (record.kind, record.value, record.cut) == (log.CREATE, b"new", False)


def test_a_deletion_has_the_old_value_alone() -> None:
    record = log.decode(entry(b"k", b"a", b"t", b"2", b"m", b"7-1", b"p", b"7-2", b"w", b"boot.1", b"o", b"old"))
    assert (record.kind, record.value, record.old) == (log.DELETE, None, b"old")


def test_a_fence_has_no_value() -> None:
    record = log.decode(entry(b"k", b"", b"t", b"9", b"m", b"-", b"p", b"6-5", b"w", b"run", id_=b"7-0"))
    assert (record.kind, record.value, record.cut) == (log.FENCE, None, False)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (b"k", b"a"),
        (b"x", *HEAD[1:], b"v", b"new"),
        HEAD,  # an update without a value
        (b"k", b"a", b"t", b"2", b"m", b"7-1", b"p", b"7-2", b"w", b"boot.1", b"v", b"new"),  # a deletion with one
        (b"k", b"\xff", *HEAD[2:], b"v", b"new"),
    ],
)
def test_what_is_no_entry_of_ours_is_malformed(fields: tuple[bytes, ...]) -> None:
    with pytest.raises(log.Malformed):
        log.decode(entry(*fields))
