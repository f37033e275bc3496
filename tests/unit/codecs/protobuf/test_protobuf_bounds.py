"""The worst messages that fit into 3 MiB: each is decoded or refused within bounds of CPU time and memory, and no call into C is long."""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from collections.abc import Callable

import pytest

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.protobuf import envelope, messages, protowire
from apiserver.codecs.protobuf.protowire import BYTES, VARINT
from tests.fixtures import steps
from tests.fixtures.calls import Longest
from tests.fixtures.cpu import Spent

KINDS = {resource.kind: resource.shape for resource in at(NEWEST, resources.RESOURCES)}
MIB = 1 << 20
MOST = 3 * MIB
CPU_SECONDS = 4.0
"""Generous: what takes longest takes half a second, and three times as much while it is watched."""
CALL_SECONDS, TIMES = 0.02, 3
"""The longest permitted wait of others; a core that others use too takes longer for the same."""


def field(number: int, data: bytes) -> bytes:
    return protowire.sized(protowire.varint(protowire.key(number, BYTES)), data)


def filled(piece: bytes, size: int = MOST - 64) -> bytes:
    return piece * (size // len(piece))


def numbered(make: Callable[[bytes], bytes]) -> bytes:
    """More pieces than are decoded, each made with a name of its own."""
    return b"".join(make(b"%06x" % i) for i in range(messages.MOST_VALUES + 100))


def metadata(members: bytes) -> bytes:
    return field(1, members)


def spec(members: bytes) -> bytes:
    return field(2, members)


def device(members: bytes) -> bytes:
    return spec(field(6, members))


def amount(text: bytes) -> bytes:
    """A capacity of that amount."""
    return field(3, field(1, b"c") + field(2, field(1, field(1, text))))


FULL_DEVICE = b"".join(field(n, b"ab") for n in (1, 5, 10, 11)) + bytes((7 << 3, 1, 9 << 3, 1)) + field(6, b"")
LONG_NUMBER = b"\x80" * 9 + b"\x01"
UNKNOWN = protowire.varint(protowire.key(3, VARINT))

WORST: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty devices": ("ResourceSlice", lambda: spec(filled(field(6, b"")))),
    "full devices": ("ResourceSlice", lambda: spec(filled(field(6, FULL_DEVICE)))),
    "attributes": ("ResourceSlice", lambda: device(numbered(lambda n: field(2, field(1, n) + field(2, field(4, n)))))),
    "one attribute": ("ResourceSlice", lambda: device(filled(field(2, field(1, b"k"))))),
    "capacities": (
        "ResourceSlice",
        lambda: device(numbered(lambda n: field(3, field(1, n) + field(2, field(1, field(1, b"%d" % int(n, 16))))))),
    ),
    "labels": ("ResourceSlice", lambda: metadata(numbered(lambda n: field(11, field(1, n))))),
    "long amounts": ("ResourceSlice", lambda: device(filled(amount(b"9" * 4000 + b"Ki")))),
    "a long amount": ("ResourceSlice", lambda: device(amount(b"1" * (MOST - 64)))),
    "an amount and blanks": ("ResourceSlice", lambda: device(amount(b"1" + b" " * (MOST - 64)))),
    "unknown numbers": ("ResourceSlice", lambda: filled(UNKNOWN + b"\x01")),
    "long unknown numbers": ("ResourceSlice", lambda: filled(UNKNOWN + LONG_NUMBER)),
    "groups in groups": ("ResourceSlice", lambda: b"\x1b" * (MIB // 4) + b"\x1c" * (MIB // 4)),
    "groups": ("ResourceSlice", lambda: filled(b"\x1b\x1c")),
    "packed numbers": ("ResourceSlice", lambda: device(field(2, field(2, field(6, b"\x01" * (MOST - 64)))))),
    "a number without end": ("ResourceSlice", lambda: device(field(2, field(2, field(7, b"\x80" * (MOST - 64)))))),
    "the same text": ("ResourceSlice", lambda: metadata(filled(field(1, b""), MIB // 4))),
    "the same object": ("ResourceSlice", lambda: filled(metadata(b""))),
    "a text": ("ResourceSlice", lambda: metadata(field(1, "😀".encode() * (MOST // 4 - 64)))),
    "bytes that are no text": ("ResourceSlice", lambda: metadata(field(1, b"\xff" * (MOST - 64)))),
    "times": ("ResourceSlice", lambda: device(field(8, filled(field(4, b"\x08" + LONG_NUMBER))))),
    "owners": ("ResourceClaim", lambda: metadata(filled(field(13, b"".join(field(n, b"ab") for n in (1, 3, 4, 5)))))),
    "results": (
        "ResourceClaim",
        lambda: field(3, field(1, field(1, filled(field(1, b"".join(field(n, b"ab") for n in (1, 2, 3, 4, 9))))))),
    ),
    "parameters": ("DeviceClass", lambda: spec(filled(field(2, field(1, field(1, field(2, field(1, b"{}")))))))),
    "managers": ("DeviceClass", lambda: metadata(filled(field(17, field(7, field(1, b"{}")))))),
}


def decode(case: str) -> Callable[[], None]:
    kind, make = WORST[case]
    data = make()
    assert len(data) <= MOST

    def run() -> None:
        with contextlib.suppress(messages.DecodeError):
            messages.decode(KINDS[kind], data)

    return run


@pytest.mark.parametrize("case", WORST)
def test_no_message_takes_much_time_or_memory(case: str) -> None:
    run = decode(case)
    tracemalloc.start()
    try:
        with Spent() as spent:
            run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * MIB
    assert spent.below(CPU_SECONDS)


LONG_VALUES = (
    "a text",
    "bytes that are no text",
    "a long amount",
    "an amount and blanks",
    "long amounts",
    "packed numbers",
    "a number without end",
)


@pytest.mark.parametrize("case", LONG_VALUES)
def test_no_call_takes_longer_than_others_can_wait(case: str) -> None:
    run, longest = decode(case), Longest()
    with longest:
        run()
    assert longest.where
    assert longest.seconds <= CALL_SECONDS * TIMES * steps.slowness(), longest.where


COUNTED = {
    "unknown fields": filled(UNKNOWN + b"\x01"),
    "fields in a group": b"\x1b" + filled(UNKNOWN + b"\x01") + b"\x1c",
    "groups in a group": filled(b"\x1b", MOST // 2) + filled(b"\x1c", MOST // 2),
    "a group without end": filled(b"\x1b"),
    "a text that others replace": metadata(filled(field(1, b"a"))),
    "an empty text": metadata(filled(field(6, b""))),
    "a number that others replace": metadata(filled(b"\x38\x01")),
    "the number 0": metadata(filled(b"\x38\x00")),
    "an amount that others replace": device(field(3, field(1, b"c") + field(2, field(1, filled(field(1, b"1")))))),
    "a key that others replace": metadata(field(11, filled(field(1, b"k")))),
    "a value that others replace": metadata(field(11, filled(field(2, b"v")))),
}


@pytest.mark.parametrize("case", COUNTED)
def test_reader_of_many_fields_stops_at_the_bound(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = itertools.count()
    monkeypatch.setattr(protowire, "budget", lambda: (None for _ in itertools.islice(turns, messages.MOST_VALUES)))
    with pytest.raises(messages.TooManyValues):
        messages.decode(KINDS["ResourceSlice"], COUNTED[case])
    assert next(turns) <= messages.MOST_VALUES + 1


def test_envelope_of_many_unknown_fields_is_too_large() -> None:
    with pytest.raises(messages.TooManyValues):
        envelope.opened(envelope.MAGIC + filled(field(9, b"")))


ODD_ENTRIES = (
    field(1, b"k") + field(2, b"v"),
    field(2, b"v") + field(1, b"k"),
    field(1, b"k" * 127) + field(2, b"v" * 127),
    field(1, b"k" * 128) + field(2, b"v"),
    field(1, b"k") + field(2, b"v" * 128),
    field(1, b"\xff") + field(2, b"\xe2\x82"),
    field(1, b"k") + field(1, b"l") + field(2, b"v"),
    field(1, b"k") + field(2, b"v") + b"\x18\x01",
    field(1, b"k"),
    field(2, b"v"),
    b"",
)


@pytest.mark.parametrize("entry", ODD_ENTRIES)
def test_entry_that_is_read_at_once_is_read_as_field_by_field(entry: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    data = metadata(field(11, entry))
    at_once = messages.decode(KINDS["ResourceSlice"], data)
    monkeypatch.setattr(messages, "_two_texts", lambda *_: None)
    assert messages.decode(KINDS["ResourceSlice"], data) == at_once
