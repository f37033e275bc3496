"""metadata.managedFields as text, and as structured merge has it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings

from apiserver.codecs.json import rawjson
from apiserver.fieldmanager import cap, entries
from apiserver.fieldmanager.entries import EntriesError, Managed
from apiserver.fieldmanager.fieldsets import REMEMBERED_BYTES, FieldSets
from structuredmerge import sets
from structuredmerge.sets import EMPTY
from tests.unit.fieldmanager.objects import SEEDS

V1 = "resource.k8s.io/v1"
TIMES = (None, "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
BEYOND = ("-0001-12-31T23:00:00Z", "10000-01-01T00:59:59Z")
"""The first and the last time that a text can name, moved by an offset."""
FIELDS = (
    b"{}",
    b'{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}',
    b'{"f:spec":{"f:pool":{"f:name":{}}}}',
    b'{"f:a\\"<":{}}',
)
MANY = settings(max_examples=200)


def entry(**changes: Any) -> dict[str, Any]:
    made = {"manager": "m", "operation": "Update", "apiVersion": V1, "fieldsType": "FieldsV1", **changes}
    return {name: x for name, x in made.items() if x is not None}


def some(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        entry(
            manager=rng.choice(("a", "b", "<&>", "", "ancient-changes")),
            operation=rng.choice(("Apply", "Update", "Update", "Update")),
            apiVersion=rng.choice((V1, V1, "resource.k8s.io/v1beta1", "x/v1")),
            time=rng.choice(TIMES),
            fieldsV1=rawjson.of(rng.choice(FIELDS)),
            subresource=rng.choice((None, "status", "", *map(str, range(9)))),
        )
        for _ in range(count)
    ]


@MANY
@given(seed=SEEDS)
def test_entries_stand_in_one_order_and_are_read_as_they_were_written(seed: int) -> None:
    known, rng = FieldSets(), random.Random(seed)
    managed = entries.decode(some(rng, 6), known)
    written = entries.encode(managed, known)
    again = entries.decode(written, known)
    assert (again.managers, again.times, again.identities) == (managed.managers, managed.times, managed.identities)
    assert entries.encode(again, known) == written
    rng.shuffle(written)
    assert entries.encode(entries.decode(written, FieldSets()), known) == entries.encode(managed, known)


@pytest.mark.parametrize(
    "given_order",
    [
        [entry(operation="Apply", manager="z", time=TIMES[4]), entry(operation="Update", manager="a")],
        [
            entry(manager="z", time=TIMES[2]),
            entry(manager="a"),
            entry(manager="b", time=TIMES[3]),
            entry(manager="c", time=TIMES[4]),
        ],
        [
            entry(manager="d", time=BEYOND[0]),
            entry(manager="c", time=TIMES[1]),
            entry(manager="b", time=TIMES[4]),
            entry(manager="a", time=BEYOND[1]),
        ],
        [entry(manager="a"), entry(manager="a", subresource="status"), entry(manager="b")],
        [entry(apiVersion="a/v1", subresource="z"), entry(apiVersion="b/v1")],
    ],
    ids=[
        "appliers first",
        "no time is 1970",
        "times and not their texts",
        "a manager's own part first",
        "versions before subresources",
    ],
)
def test_entries_are_stored_in_this_order(given_order: list[dict[str, Any]]) -> None:
    known = FieldSets()
    fields = rawjson.of(b'{"f:a":{}}')
    wanted = [{**x, "fieldsV1": fields} for x in given_order]
    assert entries.encode(entries.decode(wanted[::-1], known), known) == wanted


def test_later_of_two_entries_with_one_identity_counts() -> None:
    known = FieldSets()
    found = entries.decode(
        [
            entry(
                operation="Apply",
                apiVersion="resource.k8s.io/v1beta1",
                time=TIMES[4],
                fieldsV1=rawjson.of(b'{"f:a":{}}'),
            ),
            entry(operation="Apply", fieldsV1=rawjson.of(b'{"f:b":{}}')),
        ],
        known,
    )
    assert entries.encode(found, known) == [entry(operation="Apply", fieldsV1=rawjson.of(b'{"f:b":{}}'))]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"operation": "update"}, "operation must be `Apply` or `Update`"),
        ({"operation": None}, "operation must be `Apply` or `Update`"),
        ({"apiVersion": ""}, "apiVersion must not be empty"),
        ({"fieldsType": None}, "missing fieldsType in managed fields entry 1"),
        ({"fieldsType": 'Fields"V2'}, 'invalid fieldsType "Fields\\"V2" in managed fields entry 1'),
    ],
)
def test_empty_entry_is_reported(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(EntriesError) as refused:
        entries.decode([entry(), entry(**wrong)], FieldSets())
    assert str(refused.value) == text


def test_unreadable_fields_are_reported_with_their_entry() -> None:
    wrong = entry(time="2026-01-02T03:04:05Z", fieldsV1=rawjson.of(b'{"a":{}}'), subresource="status")
    with pytest.raises(EntriesError) as refused:
        entries.decode([wrong], FieldSets())
    assert str(refused.value).startswith(
        f'error decoding versioned set from {{m Update {V1} 2026-01-02 03:04:05 +0000 UTC FieldsV1 {{"a":{{}}}} status}}: '
        "error decoding set: parsing key as path element: key must be 2 characters long:"
    )


def test_fields_nested_without_end_cannot_be_read() -> None:
    deep = b'{"f:a":' * 300 + b"{}" + b"}" * 300
    with pytest.raises(EntriesError):
        entries.decode([entry(fieldsV1=rawjson.of(deep))], FieldSets())


def test_the_text_of_fields_that_stay_is_not_written_again() -> None:
    known = FieldSets()
    fields = rawjson.of(FIELDS[1])
    managed = entries.decode([entry(fieldsV1=fields)], known)
    assert entries.encode(managed, known)[0]["fieldsV1"] is fields


def test_fields_in_another_spelling_are_stored_in_the_usual_one() -> None:
    known = FieldSets()
    managed = entries.decode([entry(fieldsV1=rawjson.of(b'{"f:b":{},"f:a":{".":{}},"x:y":{}}'))], known)
    assert rawjson.text(entries.encode(managed, known)[0]["fieldsV1"]) == b'{"f:a":{},"f:b":{}}'


def test_long_fields_are_not_remembered() -> None:
    known = FieldSets()
    text = b"{" + b",".join(b'"f:%d":{}' % i for i in range(20_000)) + b"}"
    for _ in range(2):
        known.read(rawjson.of(text))
    assert known.bytes == 0
    for i in range(2_000):
        known.read(rawjson.of(b'{"f:%d":{"f:%s":{}}}' % (i, b"x" * 1_000)))
    assert 0 < known.bytes <= REMEMBERED_BYTES


# --- The cap ---------------------------------------------------------------------------------------------------------


@MANY
@given(seed=SEEDS)
def test_only_so_many_managers_may_update(seed: int) -> None:
    known, rng = FieldSets(), random.Random(seed)
    managed = entries.decode(some(rng, 40), known)
    found = cap.capped(managed)
    updaters = [owned.version for owned in found.managers.values() if not owned.applied]
    assert len(updaters) <= max(cap.MAX_UPDATERS, 2 * len(set(updaters)))
    appliers = {name: owned for name, owned in managed.managers.items() if owned.applied}
    assert appliers == {name: owned for name, owned in found.managers.items() if owned.applied}
    for version in set(updaters):
        assert not together(found, version) - together(managed, version)
    assert cap.capped(found).managers.keys() == found.managers.keys()


def together(managed: Managed, version: str) -> sets.Set:
    """Fields that the updaters in a version own together."""
    found = EMPTY
    for owned in managed.managers.values():
        if owned.version == version and not owned.applied:
            found |= owned.set
    return found


def test_the_oldest_changes_become_those_of_one() -> None:
    known = FieldSets()
    given_entries = [
        entry(manager=f"m{i:02}", time=f"2026-01-01T00:00:{i:02}Z", fieldsV1=rawjson.of(b'{"f:%d":{}}' % i))
        for i in range(12)
    ]
    found = entries.encode(cap.capped(entries.decode(given_entries, known)), known)
    assert [(x["manager"], x["time"][-3:-1]) for x in found] == [
        ("ancient-changes", "02"),
        *((f"m{i:02}", f"{i:02}") for i in range(3, 12)),
    ]
    assert rawjson.text(found[0]["fieldsV1"]) == b'{"f:0":{},"f:1":{},"f:2":{}}'


def test_the_changes_of_two_versions_are_not_those_of_one() -> None:
    known = FieldSets()
    found = cap.capped(
        entries.decode([entry(apiVersion=f"x/v{i}", fieldsV1=rawjson.of(FIELDS[1])) for i in range(12)], known)
    )
    assert len(found.managers) == 12


def test_fields_that_no_store_takes_are_not_read() -> None:
    longest = rawjson.of(b'{"f:%b":{}}' % (b"a" * (entries.MOST_BYTES - len(b'{"f:":{}}'))))
    assert entries.decode([entry(fieldsV1=longest)], FieldSets()).managers
    longer = rawjson.of(b'"%b"' % (b"<" * entries.MOST_BYTES))
    with pytest.raises(EntriesError) as raised:
        entries.decode([entry(fieldsV1=longest), entry(fieldsV1=longer)], FieldSets())
    assert str(raised.value) == f"fieldsV1 of managed fields entry 1 is longer than {entries.MOST_BYTES} bytes"
