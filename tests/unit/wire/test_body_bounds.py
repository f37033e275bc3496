"""The worst bodies that fit into 3 MiB: each is decoded or refused within bounds of CPU time and memory, and no two words longer."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import json_syntax, rawjson
from apiserver.wire import as_json, body, patches
from apiserver.wire.response import BODY_LIMIT
from kubetext import utf8
from tests.fixtures import steps
from tests.fixtures.cpu import Spent
from tests.unit.wire.served import KINDS, SLICES

MIB = 1 << 20
CPU_SECONDS = 4.0
"""Generous: the bound is half a second on a quick machine, and two while memory is traced. Without bounds these take up to minutes."""


def many(element: bytes, size: int = BODY_LIMIT - 64) -> bytes:
    return b",".join([element] * (size // (len(element) + 1)))


def numbered(form: bytes, size: int = BODY_LIMIT - 64) -> bytes:
    return b",".join(form % i for i in range(size // (len(form) + 6)))


def nested(opening: bytes, closing: bytes, levels: int) -> bytes:
    return opening * levels + closing * levels


JSON: dict[str, Callable[[], bytes]] = {
    "lists 900 deep": lambda: b'{"x":[%b]}' % many(nested(b"[", b"]", 900)),
    "lists 9990 deep": lambda: b'{"x":[%b]}' % many(nested(b"[", b"]", 9990)),
    "as many lists 900 deep as are decoded": lambda: b'{"x":[%b]}' % many(nested(b"[", b"]", 900), 180_000),
    "one list of all": lambda: b'{"x":%b}' % nested(b"[", b"]", BODY_LIMIT // 2 - 8),
    "empty objects": lambda: b'{"x":[%b]}' % many(b"{}"),
    "as many objects as are decoded": lambda: b'{"x":[%b]}' % many(b'{"a":1}', 500_000),
    "numbers": lambda: b'{"x":[%b]}' % many(b"1"),
    "long numbers": lambda: b'{"x":[%b]}' % many(b"1" * 4299),
    "one long number": lambda: b'{"x":%b}' % (b"1" * (BODY_LIMIT - 16)),
    "members": lambda: b"{%b}" % numbered(b'"%d":1'),
    "repeated members": lambda: b"{%b}" % numbered(b'"%d":1,"a":2'),
    "repetition inside": lambda: b'{"x":[%b]}' % many(b'{"a":{"b":1,"b":2}}', MIB),
    "strings full of brackets": lambda: b'{"x":[%b]}' % many(b'"{[,"'),
    "one string of brackets": lambda: b'{"x":"%b"}' % (b"{" * (BODY_LIMIT - 16)),
    "bytes that are no text": lambda: b'{"x":"%b"}' % (b"\xff" * (BODY_LIMIT - 16)),
    "half characters": lambda: b'{"x":"%b"}' % (b"\\ud800" * (BODY_LIMIT // 6 - 8)),
    "a wrong end": lambda: b'{"x":[%b}' % many(b"1", 600_000),
    "unknown members of owners": lambda: b'{"metadata":{"ownerReferences":[%b]}}' % many(b'{"x":1}', 700_000),
    "a long list and then short ones": lambda: (
        b'{"metadata":{"finalizers":[%b],%b}}' % (many(b'""', 190_000), many(b'"finalizers":[""]', 500_000))
    ),
    "a list that shrinks and grows": lambda: (
        b'{"metadata":{%b}}' % many(b'"finalizers":[%b],"finalizers":[""]' % many(b'""', 1_000), 540_000)
    ),
    "a map that gains members": lambda: (
        b'{"metadata":{"labels":{%b},%b}}' % (numbered(b'"%d":""', 300_000), many(b'"labels":{"a":""}', 400_000))
    ),
    "members that are null": lambda: b'{"metadata":{%b}}' % many(b'"name":"a","name":null', 1_000_000),
    "amounts that are null": lambda: (
        b'{"spec":{"devices":[{"capacity":{"a":{%b}}}]}}' % many(b'"value":"1","value":null', 1_200_000)
    ),
    "numbers beyond floats": lambda: b'{"x":[%b]}' % many(b"1e999", 1_100_000),
    "a long number that is no integer": lambda: b'{"metadata":{"generation":0.%b}}' % (b"1" * (500 << 10)),
    "escapes": lambda: b'{"x":"%b"}' % (b"\\n" * (BODY_LIMIT // 2 - 8)),
    "escapes and then no end": lambda: b'{"x":["%b"' % (b"\\n" * (BODY_LIMIT // 2 - 8)),
    "escapes in a member that is repeated": lambda: b'{"x":1,"x":"%b"}' % (b'\\"' * (BODY_LIMIT // 2 - 16)),
    "escapes in an amount": lambda: (
        b'{"spec":{"devices":[{"capacity":{"a":{"value":"%b"}}}]}}' % (b"\\n" * (BODY_LIMIT // 2 - 40))
    ),
    "quotation marks": lambda: b'"' * BODY_LIMIT,
    "backslashes": lambda: b'"' + b"\\" * (BODY_LIMIT - 1),
}

YAML: dict[str, Callable[[], bytes]] = {
    "5000 deep": lambda: b"x: " + nested(b"[", b"]", 5000),
    "10000 deep": lambda: b"x: " + nested(b"[", b"]", 9998),
    "deeper than any": lambda: b"x: " + nested(b"[", b"]", 60_000),
    "deep and then long": lambda: b"x: " + b"[" * 5000 + b"\n- 1" * 1000 + many(b"1", 100_000),
    "300 deep, many times": lambda: b"x: [%b]" % many(nested(b"[", b"]", 300), 300_000),
    "scalars": lambda: b"x: [%b]" % many(b"1"),
    "lines": lambda: b"".join(b"a%d: 1\n" % i for i in range(BODY_LIMIT // 11)),
    "the same line": lambda: b"a: 1\n" * (BODY_LIMIT // 5),
    "keys that are floats": lambda: b"".join(b"%d.5: 1\n" % i for i in range(59_000)),
    "anchors": lambda: b"x: [%b]" % numbered(b"&a%d 1"),
    "a long key, repeated by its alias": lambda: b"a: &a " + b"x" * 1000 + b"\nb: {%b}" % many(b"*a : 1", 200_000),
    "directives": lambda: b"".join(b"%%TAG !a%d! x\n" % i for i in range(BODY_LIMIT // 17)) + b"---\nx: 1",
    "documents": lambda: b"---\n" * (BODY_LIMIT // 4),
    "keys without a value": lambda: b"? " * (BODY_LIMIT // 2),
    "a deep key": lambda: b"? %b\n: 1\n" % nested(b"[", b"]", 5000),
    "many values under no key": lambda: b"a: &a [%b]\nb: {%b}" % (many(b"1", 20_000), many(b"~: *a", 100_000)),
    "merges": lambda: (
        b"a: &a {%b}\n" % numbered(b"k%d: 1", 100_000) + b"".join(b"b%d: {<<: *a}\n" % i for i in range(300))
    ),
    "one long number": lambda: b"x: " + b"1" * (BODY_LIMIT - 8),
    "a key of 4300 digits": lambda: b"? " + b"1" * 4300 + b"\n: 1",
}


@pytest.mark.parametrize(
    ("media", "make"),
    [pytest.param("application/json", make, id=f"json-{name}") for name, make in JSON.items()]
    + [pytest.param("application/yaml", make, id=f"yaml-{name}") for name, make in YAML.items()],
)
async def test_no_body_takes_much_time_memory_or_words(media: str, make: Callable[[], bytes]) -> None:
    raw = make()[:BODY_LIMIT]
    tracemalloc.start()  # takes four times as long
    try:
        began = time.process_time()
        refusal = await refused(media, raw)
        took = time.process_time() - began
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refusal is None or (refusal.code in (400, 413) and len(refusal.message) < MIB)
    assert took < CPU_SECONDS or took < CPU_SECONDS * steps.slowness()
    assert peak < 64 * MIB


async def refused(media: str, raw: bytes) -> StatusError | None:
    """How a body is refused; None when it is not."""
    try:
        await body.decode_object(
            SLICES, media, raw, kinds=KINDS, now="2024-01-01T00:00:00Z", validation="Strict", warnings=Warnings()
        )
    except StatusError as e:
        return e
    return None


@pytest.mark.parametrize("read", [patches.read_json_patch, patches.read_merge_patch])
@pytest.mark.parametrize("name", sorted(JSON))
def test_no_patch_takes_much_time_memory_or_words(read: Callable[[bytes, str], patches.Document], name: str) -> None:
    raw = JSON[name]()[:BODY_LIMIT]
    refusal: StatusError | None = None
    with Spent() as spent:
        try:
            read(raw, "Strict")
        except StatusError as e:
            refusal = e
    assert refusal is None or (refusal.code in (400, 413) and len(refusal.message) < MIB)
    assert spent.below(CPU_SECONDS)


@pytest.mark.parametrize("mark", [b"{", b"[", b","])
def test_a_document_is_weighed_without_its_strings(mark: bytes) -> None:
    inside = b'["%b"]' % (mark * MIB)
    outside = mark * MIB

    json_syntax.check_memory(inside)
    with pytest.raises(StatusError, match="more values than"):
        json_syntax.check_memory(outside)


def test_a_document_of_190000_elements_is_not_too_heavy() -> None:
    json_syntax.check_memory(b"[%b]" % b",".join([b'""'] * 190_000))


def test_long_numbers_are_weighed_without_strings() -> None:
    json_syntax.check_memory(b'["%b"]' % (b"1" * 3 * MIB))
    with pytest.raises(StatusError, match="more values than"):
        json_syntax.check_memory(b"[%b]" % many(b"1" * 4299))


@pytest.mark.parametrize("number", [b"1e308", b"5e-324", b"2.2250738585072011e-308"])
def test_numbers_near_the_ends_of_all_floats_are_read_as_quickly_as_others(number: bytes) -> None:
    raw = b"[%b]" % b",".join([number] * 150_000)
    with Spent() as spent:
        found = as_json.loads(raw)
        meant = rawjson.parsed(rawjson.of(raw))
    assert found == meant == [float(number)] * 150_000
    assert spent.below(0.7)


@pytest.mark.parametrize("odd", [b"\\ud800", b"\xff", b'","a":"'], ids=["half a character", "no UTF-8", "repeated"])
@pytest.mark.parametrize("form", ["object", "json patch", "merge patch", "strategic merge patch"])
def test_bytes_that_are_no_utf8_are_replaced_once_in_each_body(
    form: str, odd: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced: list[bytes] = []
    decoded = utf8.decoded

    def counted(raw: bytes) -> str:
        replaced.append(raw)
        return decoded(raw)

    monkeypatch.setattr(utf8, "decoded", counted)
    value = b'{"a":"%b"}' % odd
    if form == "object":
        raw = b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"n"},"x":%b}' % value
        reading = body.decode_object(
            SLICES, "application/json", raw, kinds=KINDS, now="", validation="Strict", warnings=Warnings()
        )
        with pytest.raises(StatusError, match="strict decoding error"):
            asyncio.run(reading)
    elif form == "json patch":
        assert patches.read_json_patch(b'[{"op":"test","path":"/a","value":%b}]' % value, "Strict").value
    else:
        reader = patches.read_merge_patch if form == "merge patch" else patches.read_strategic_patch
        assert reader(value, "Strict").value
    assert len(replaced) == 1
