"""Errors that repeat what a client sent stay below their bounds, and so does the work of finding and wording them."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apimachinery import errors, excerpt, fieldpath, meta
from apiserver.apimachinery.fieldpath import MOST_COUNTED, FieldError, FieldErrors
from apiserver.apimachinery.releases import NEWEST
from apiserver.wire import negotiation
from apiserver.wire.forms import form as forms
from apiserver.wire.representation import Representation
from kubetext import quoting
from tests.fixtures.cpu import Spent

MIB = 1 << 20
KIND = errors.GroupKind("resource.k8s.io", "DeviceClass")
FORMS = [
    negotiation.INDENTED,
    Representation(negotiation.JSON),
    Representation(negotiation.YAML),
]
BODY = 3 * MIB
"""As much as a client may send."""

NASTY = ["x", "\x01", "\n", '"', "\\", "<", "é", "\u2028", "\U0001f600", "a\n", "\ud800", "\x85"]


def owner(i: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": f"pod-{i}", "uid": f"uid-{i}", "controller": True}


def metadata_of(case: str) -> dict[str, Any]:
    """About 3 MiB of metadata, of which as much as possible is wrong."""
    match case:
        case "controllers":
            return {"ownerReferences": [owner(i) for i in range(BODY // 100)]}
        case "empty owners":
            return {"ownerReferences": [{}] * (BODY // 3)}
        case "empty finalizers":
            return {"finalizers": [""] * 1_000_000}
        case "labels":
            return {"labels": {f"!{i}": "!" for i in range(100_000)}}
        case "annotations":
            return {"annotations": {f"!{i}": "" for i in range(200_000)}}
        case "a long label":
            return {"labels": {"\x01" * BODY: "\x01" * BODY}}
        case "a long name":
            return {"name": "\x01" * BODY}
        case "managed fields":
            return {"managedFields": [{}] * 1_000_000}
        case "a manager":
            return {"managedFields": [{"manager": "\x01" * BODY}]}
    raise AssertionError(case)


@pytest.mark.parametrize(
    "case",
    [
        "controllers",
        "empty owners",
        "empty finalizers",
        "labels",
        "annotations",
        "a long label",
        "a long name",
        "managed fields",
        "a manager",
    ],
)
def test_errors_in_metadata_are_reported_within_bounds(case: str) -> None:
    obj = {"metadata": {"name": "ok", **metadata_of(case)}}
    tracemalloc.start()
    began = time.thread_time()
    found = meta.validate_object_meta(obj, NEWEST, namespaced=False)
    failure = errors.invalid(KIND, obj["metadata"]["name"], found)
    took, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found
    assert failure.code == 422
    for form in FORMS:
        assert len(forms.status(form, failure.status()).run()) <= MIB
    assert peak < 64 * MIB
    assert took < 5  # it is traced; without a bound this is minutes


def bad(count: int, text: str = "x") -> Iterator[FieldError]:
    for i in range(count):
        yield fieldpath.invalid(f"spec.items[{i}]", text, "must be good")


def test_few_errors_are_all_reported() -> None:
    found = FieldErrors(bad(50))

    assert (len(found), found.more) == (50, 0)
    assert errors.invalid(KIND, "a", found).message.count("must be good") == 50


def test_first_of_many_errors_are_reported_and_the_others_counted() -> None:
    found = FieldErrors(bad(3900))
    failure = errors.invalid(KIND, "a", found)

    assert len(found) + found.more == 3900
    assert found.more > 0
    assert failure.message.endswith(f", … {found.more} more]")
    assert [cause["field"] for cause in failure.status()["details"]["causes"]] == [
        f"spec.items[{i}]" for i in range(len(found))
    ]


def test_errors_that_would_not_be_counted_cause_no_question() -> None:
    source = bad(10 * MOST_COUNTED)
    found = FieldErrors(source)
    found += source

    assert found.full
    assert next(source).field == f"spec.items[{MOST_COUNTED}]"
    assert f"… more than {found.more} more" in errors.invalid(KIND, "a", found).message


def test_errors_that_others_counted_stay_counted() -> None:
    found = FieldErrors(bad(1))
    found += FieldErrors(bad(3900))

    assert len(found) + found.more == 3901


@pytest.mark.parametrize("character", NASTY)
def test_no_error_of_any_kind_is_longer_than_a_mebibyte(character: str) -> None:
    long = character * (BODY // len(character))
    resource = errors.GroupResource(long[:MIB], long[:MIB])
    for failure in (
        errors.not_found(resource, long),
        errors.bad_request(long),
        errors.internal(long),
        errors.conflict(resource, long, long),
        errors.forbidden(resource, long, long),
        errors.invalid(errors.GroupKind(long, long), long, [fieldpath.invalid(long, long, long)]),
    ):
        for form in FORMS:
            assert len(forms.status(form, failure.status()).run()) <= MIB
    assert (
        len(errors.TextError(500, long).text.encode("utf-8", "surrogateescape" if character != "\ud800" else "replace"))
        <= MIB
    )


@pytest.mark.parametrize("character", NASTY)
def test_text_is_cut_at_its_limit_and_says_so(character: str) -> None:
    text = character * 100_000
    found = excerpt.cut(text, 50_000)

    kept, _, missing = found.partition("… ")
    assert text.startswith(kept)
    assert len(kept) > 0
    assert excerpt.cost(kept) <= 50_000
    assert missing == f"{len(text) - len(kept)} more characters"
    assert excerpt.cut(text[:100], 50_000) == text[:100]


@pytest.mark.parametrize("character", NASTY)
def test_quoting_takes_no_longer_for_what_is_not_shown(character: str) -> None:
    text = "x" * quoting.QUOTED_CHARACTERS + character * MIB
    with Spent() as spent:
        shown = quoting.go_quote(text)

    assert shown == f'"{"x" * quoting.QUOTED_CHARACTERS}… {len(character) * MIB} more characters'
    assert spent.below(0.001)


def test_a_long_list_is_shown_as_far_as_it_fits() -> None:
    values = [str(i) for i in range(1_000_000)]
    with Spent() as spent:
        shown = fieldpath.show(values)

    assert shown.startswith('["0","1",')
    assert shown.endswith("… more")
    assert len(shown) < 2 * quoting.SHOWN_CHARACTERS
    assert spent.below(1)
    assert fieldpath.show(values[:100]) == json.dumps(values[:100], separators=(",", ":"))
