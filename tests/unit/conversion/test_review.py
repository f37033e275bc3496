"""Reviews of conversions: what is sent, and what is taken from an answer. Every bad answer is compared with kube-apiserver's words in
`tests/e2e/test_conversion_webhooks.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.conversion import review
from apiserver.conversion.review import Failed, Failure

V1, V2 = "lamps.test/v1", "lamps.test/v2"
SUBJECT = f"{V1}, Kind=Lamp"
ORIGINAL: dict[str, Any] = {
    "metadata": {"name": "one", "namespace": "room", "uid": "u", "generation": 2, "labels": {"Odd Label": "kept"}}
}


def answer(*objects: Any, **members: Any) -> bytes:
    response = {"uid": "1", "result": {"status": "Success"}, "convertedObjects": objects}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response} | members
    ).encode()


def objects(data: bytes, *, version: str = "v1", count: int = 1) -> list[bytes]:
    return review.objects(data, version=version, uid="1", subject=SUBJECT, count=count)


def taken(**members: Any) -> dict[str, Any]:
    obj = {"apiVersion": V2, "kind": "Lamp"} | ORIGINAL | members
    return review.taken(json.dumps(obj).encode(), ORIGINAL, subject=SUBJECT, kind="Lamp", target=V2)


def test_request_is_a_review_with_the_objects_as_they_are() -> None:
    sent = json.loads(review.request("v1beta1", "1", V2, [b'{"a":1}', b'{"b":2}']))
    assert sent == {
        "kind": "ConversionReview",
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "request": {"uid": "1", "desiredAPIVersion": V2, "objects": [{"a": 1}, {"b": 2}]},
        "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
    }


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [(["v1", "v1beta1"], "v1"), (["v3", "v1beta1", "v1"], "v1beta1"), (["v2"], None), ([], None)],
)
def test_review_has_the_first_known_version(accepted: list[str], chosen: str | None) -> None:
    assert review.version_for(accepted) == chosen


def test_objects_keep_their_text() -> None:
    assert objects(answer().replace(b"[]", b'[{"n": 1e3}, "x"]'), count=2) == [b'{"n": 1e3}', b'"x"']


def test_answer_in_v1beta1_need_not_name_its_review() -> None:
    response = {"result": {"status": "Success"}, "convertedObjects": [{}]}
    assert objects(json.dumps({"response": response}).encode(), version="v1beta1") == [b"{}"]


def test_yaml_is_read_as_kube_apiserver_reads_it() -> None:
    text = (
        b"apiVersion: apiextensions.k8s.io/v1\nkind: ConversionReview\n"
        b"response: {uid: '1', result: {status: Success}, convertedObjects: [{a: 1}]}\n"
    )
    assert objects(text) == [b'{"a":1}']


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (b"{", Failure.CALL),
        (answer({}, kind="Other"), Failure.CALL),
        (answer({}, response=None), Failure.RESPONSE),
        (answer(), Failure.COUNT),
    ],
)
def test_failures_say_where_they_are(data: bytes, failure: Failure) -> None:
    with pytest.raises(Failed) as e:
        objects(data)
    assert e.value.failure is failure


def test_only_labels_and_annotations_of_the_metadata_are_taken() -> None:
    metadata = ORIGINAL["metadata"] | {
        "generation": 9,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["x"],
    }
    made = taken(metadata=metadata, spec={"n": 2**70})
    assert made["metadata"] == ORIGINAL["metadata"] | {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    assert made["spec"] == {"n": float(2**70)}
    assert "kind" not in made


def test_unchanged_invalid_labels_pass() -> None:
    assert taken()["metadata"] == ORIGINAL["metadata"]


def test_absent_labels_are_removed() -> None:
    without = {name: x for name, x in ORIGINAL["metadata"].items() if name != "labels"}
    assert taken(metadata=without)["metadata"] == without


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"apiVersion": V1}, f"object at index 0: invalid groupVersion (expected {V2}, received {V1})"),
        ({"kind": "Lump"}, "object at index 0: invalid kind (expected Lamp, received Lump)"),
        ({"metadata": ORIGINAL["metadata"] | {"name": "two"}}, "object: must have the same name: one != two"),
        ({"metadata": ORIGINAL["metadata"] | {"uid": 5}}, "object: must have the same UID: u != "),
        (
            {"metadata": ORIGINAL["metadata"] | {"labels": 5.5}},
            "metadata: invalid metadata.labels of type float64 in converted object",
        ),
    ],
)
def test_object_that_is_another_one_is_refused(members: dict[str, Any], why: str) -> None:
    with pytest.raises(Failed) as e:
        taken(**members)
    assert str(e.value) == f"conversion webhook for {SUBJECT} returned invalid {why}"


def test_message_has_a_bounded_number_of_errors() -> None:
    labels = {f"bad label {number}": "" for number in range(10_000)}
    with pytest.raises(Failed) as e:
        taken(metadata=ORIGINAL["metadata"] | {"labels": labels})
    assert str(e.value).count("Invalid value") == review.MOST_ERRORS


def test_long_message_of_a_webhook_is_cut() -> None:
    result = {"status": "Failure", "message": "x" * (1 << 20)}
    with pytest.raises(Failed) as e:
        objects(answer({}, response={"uid": "1", "result": result}))
    assert len(str(e.value)) == review.MOST_TEXT
