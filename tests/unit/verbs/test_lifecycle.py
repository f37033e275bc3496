"""Large objects are recognised without a look at all of them."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.fieldpath import MOST_COUNTED
from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release, at
from apiserver.codecs.json import rawjson
from apiserver.resources import RESOURCES
from apiserver.runtime.offload import CHANGE
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.verbs import lifecycle
from kubetext import names
from tests.fixtures.cpu import Spent
from tests.unit.resources.samples import context_of


def configured(*parameters: bytes) -> dict[str, Any]:
    return {"spec": {"config": [{"opaque": {"parameters": rawjson.of(text)}} for text in parameters]}}


def many(element: bytes, size: int) -> bytes:
    return b"[%b]" % b",".join([element] * (size // (len(element) + 1)))


@pytest.mark.parametrize(
    ("obj", "large"),
    [
        (configured(b"{}"), False),
        (configured(many(b'"%b"' % (b"x" * 40), 15_000)), False),
        (configured(many(b'"%b"' % (b"x" * 40), 17_000)), True),
        (configured(many(b"{}", 1_400)), False),
        (configured(many(b"{}", 1_700)), True),
        (configured(*[many(b"{}", 100)] * 10), False),
        (configured(*[many(b"{}", 100)] * 20), True),
        (configured(b"[" * 200 + b"]" * 200), False),
        (configured(b"[" * 300 + b"]" * 300), True),
        ({"metadata": {"labels": {"a": "x" * 17_000}}}, True),
        ({"metadata": {"labels": {"a": "\ud800"}}}, True),
    ],
)
def test_an_object_is_large_when_it_has_many_bytes_values_or_levels(obj: Any, large: bool) -> None:
    assert (lifecycle.estimated(obj) > CHANGE.limit) is large


@pytest.mark.parametrize("count", [1, 300])
def test_raw_json_of_many_brackets_is_not_scanned_to_find_it_large(count: int) -> None:
    obj = configured(*[many(b"[]", (3 << 20) // count)] * count)
    with Spent() as spent:
        assert all(lifecycle.estimated(obj) > CHANGE.limit for _ in range(10))
    assert spent.below(0.3)


def test_update_with_many_wrong_labels_words_no_more_than_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = next(r for r in at(NEWEST, RESOURCES) if r.kind == "ResourceClaim")
    worded: list[str] = []
    label_key = names.label_key

    def counted(text: str) -> list[str]:
        worded.append(text)
        return label_key(text)

    monkeypatch.setattr(names, "label_key", counted)
    known = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    new = {"metadata": {**known, "labels": {f"-{at}": "" for at in range(3 * MOST_COUNTED)}}, "spec": {}}
    refused = lifecycle.refusal(context_of(resource), resource, new, {"metadata": known, "spec": {}}, sub=None)
    assert "more than" in refused.message
    assert len(worded) == MOST_COUNTED


@pytest.mark.parametrize(
    ("release", "fields"),
    [
        (V1_36, ["labels", "grace", "labels", "labels", "grace", "labels"]),
        (V1_37, ["labels", "grace"]),
    ],
)
def test_update_lists_an_error_once_since_1_37(release: Release, fields: list[str]) -> None:
    """REPORTED: 1.36 lists an error as often as its checks find it."""
    resource = at(release, next(r for r in at(NEWEST, RESOURCES) if r.kind == "DeviceClass"))
    known = {"name": "a", "uid": "u", "resourceVersion": "1"}
    new = {"metadata": {**known, "labels": {"a b": ""}, "deletionGracePeriodSeconds": 9}, "spec": {}}
    context = Context(gates=Gates(resource.gates, release=release))
    refused = lifecycle.refusal(context, resource, new, {"metadata": known, "spec": {}}, sub=None)
    paths = {"labels": "metadata.labels", "grace": "metadata.deletionGracePeriodSeconds"}
    assert refused.details is not None
    assert [cause["field"] for cause in refused.details["causes"]] == [paths[name] for name in fields]
