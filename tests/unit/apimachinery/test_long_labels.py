"""Labels that are looked up in their text say the same as when they are decoded."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery import long_labels, selectors
from apiserver.apimachinery.long_labels import LongLabels
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.objects import canonical, indexed
from apiserver.resources import RESOURCES
from tests.fixtures.cpu import Spent

KEYS = st.sampled_from(["a", "b", "a.b/c", "aa", "", "ü", ":", ",", "a,b"]) | st.text(max_size=3)
VALUES = st.sampled_from(["", "a", "b", ":", ",", "ü", "1"]) | st.text(max_size=3)
MANY = {f"l{n}": "v" for n in range(85_000)}


def _stored(labels: dict[str, str], blank: str = "") -> bytes:
    in_order = dict(sorted(labels.items(), key=lambda item: item[0].encode()))
    return json.dumps(in_order, separators=("," + blank, ":" + blank), ensure_ascii=False).encode()


@given(st.dictionaries(KEYS, VALUES, max_size=5), KEYS)
def test_labels_of_a_text_are_those_that_it_says(labels: dict[str, str], other: str) -> None:
    for blank in ("", " "):
        found = long_labels.of(_stored(labels, blank))
        assert len(found) == len(labels)
        assert found == labels
        assert labels == found
        assert dict(found.items()) == {key: found[key] for key in labels} == labels
        assert list(found) == sorted(labels, key=str.encode)
        assert sorted(found.values()) == sorted(labels.values())
        assert (other in found, found.get(other)) == (other in labels, labels.get(other))
        assert found != {**labels, "another": "one"}
        assert found != {**dict.fromkeys(labels, "another")} or not labels


def test_plain_labels_are_not_decoded() -> None:
    assert isinstance(long_labels.of(b'{"a.b/c":"d","e":""}'), LongLabels)


def test_a_key_that_no_label_can_have_finds_nothing() -> None:
    assert long_labels.of(b'{"a":"b","c":"d"}').get('a":"b","c') is None


@pytest.mark.parametrize(
    "text", ["[]", "1", '"a"', '{"a":1}', '{"a":null}', '{"a":{"b":"c"}}', '{"a":["b"]}', '{"a":"b","c":1}']
)
def test_malformed_labels_are_refused(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        long_labels.of(text.encode())


@pytest.mark.parametrize("labels", [MANY, {"a": "x" * (100 << 10)}, {"a": "b"}, {}, None])
def test_an_object_of_very_many_labels_is_read_in_little_time(labels: Any) -> None:
    resource = next(r for r in at(NEWEST, RESOURCES) if r.kind == "DeviceClass")
    annotations = {"long": "x" * indexed.LONG}
    metadata = {"name": "a", "annotations": annotations} | ({} if labels is None else {"labels": labels})
    value = canonical.encode(resource.shape, {"metadata": metadata, "spec": {}})
    read = indexed.reader(resource)
    with Spent() as spent:
        found, _ = read(value)
        matches = [selectors.parse_labels(text).matches(found) for text in ("l7=v,l84999", "l7!=v", "!zz")]
    assert spent.below(0.008)
    assert found == (labels or {})
    assert matches == [labels is MANY, labels is not MANY, True]


@pytest.mark.parametrize("count", [10, selectors.LOOKED_UP - 1, selectors.LOOKED_UP])
def test_selector_of_many_terms_matches_the_same_and_logs_slowness(count: int) -> None:
    labels = long_labels.of(_stored(MANY))
    terms = [f"l{n}" for n in range(84_000, 84_000 + count)]
    for last, expected in (("!zz", True), ("!l1", False), ("l1!=w", True), ("zz", False)):
        selector = selectors.parse_labels(",".join([*terms, last]))
        with Spent() as spent:
            assert selector.matches(labels) is expected
        assert selector.lengthy(labels) or spent.below(0.008)
        assert selector.lengthy(labels) is (count == selectors.LOOKED_UP)
        assert not selector.lengthy(MANY)
        assert selector.matches(MANY) is expected
