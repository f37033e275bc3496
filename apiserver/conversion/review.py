"""A ConversionReview: the question as bytes, and the objects of its answer. Sends nothing.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`, kubernetes/apimachinery
`pkg/apis/meta/v1/unstructured/helpers.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any

import msgspec

from apiserver.admission.webhooks import answers
from apiserver.apimachinery import meta
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.codecs.json import rawjson
from apiserver.schema.resource import Object
from kubetext.quoting import go_quote

GROUP, KIND = answers.CONVERSION.group, answers.CONVERSION.kind
MOST_ERRORS = 100
"""Errors of labels or annotations that one message has; chosen."""
MOST_TEXT = 64 << 10
"""Characters of an error, which may repeat what a webhook sent; chosen. kube-apiserver has no limit."""
_GO_MAP = "map[string]interface {}"


class Failure(Enum):
    """Why a conversion failed, as metrics name it."""

    CALL = "conversion_webhook_call_failure"
    RESPONSE = "conversion_webhook_malformed_response_failure"
    COUNT = "conversion_webhook_partial_response_failure"
    OBJECT = "conversion_webhook_invalid_converted_object_failure"


class Failed(Exception):
    """A conversion failed. The text is upstream's; `failure` says where."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text[:MOST_TEXT])
        self.failure = failure


class _Spoiled(ValueError):
    """The metadata of a converted object is invalid."""


def version_for(accepted: Sequence[str]) -> str | None:
    """Return the version in which to ask: the first of `conversionReviewVersions` that is known here."""
    return next((version for version in accepted if version in answers.VERSIONS), None)


def request(version: str, uid: str, target: str, objects: Iterable[bytes]) -> bytes:
    """Return the review that asks for objects in the apiVersion `target`. `uid` is that of this one call. `objects` are JSON."""
    return b'{"kind":"%b","apiVersion":"%b/%b","request":{"uid":"%b","desiredAPIVersion":"%b","objects":[%b]},%b}\n' % (
        KIND.encode(),
        GROUP.encode(),
        version.encode(),
        uid.encode(),
        target.encode(),
        b",".join(objects),
        b'"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}',
    )


class _Result(msgspec.Struct):
    status: str = ""
    message: str = ""


class _Response(msgspec.Struct):
    uid: str = ""
    result: _Result = msgspec.field(default_factory=_Result)
    convertedObjects: list[msgspec.Raw] | None = None  # noqa: N815 - the name in JSON


class _Review(msgspec.Struct):
    apiVersion: str = ""  # noqa: N815 - the name in JSON
    kind: str = ""
    response: _Response | None = None


_decode = msgspec.json.Decoder(_Review).decode


def objects(data: bytes, *, version: str, uid: str, subject: str, count: int) -> list[bytes]:
    """Return the JSON of the objects in the answer to a review of that version with that uid.

    `subject` names what was sent in errors: `G/v1, Kind=K`. `count` is the number of objects sent. Raises Failed.
    """
    try:
        found = _read(data, version)
        problem = _problem(found, version, uid)
    except answers.Unlike as e:
        raise failed(subject, Failure.CALL, str(e)) from None
    if problem:
        raise failed(subject, Failure.RESPONSE, problem)
    assert found.response is not None
    converted = found.response.convertedObjects or []
    if len(converted) != count:
        text = f"conversion webhook for {subject} returned {len(converted)} objects, expected {count}"
        raise Failed(Failure.COUNT, text)
    return [bytes(raw) for raw in converted]


def failed(subject: str, failure: Failure, why: str) -> Failed:
    """Return the error of a conversion that got no answer of use."""
    return Failed(failure, f"conversion webhook for {subject} failed: {why}")


def _read(data: bytes, version: str) -> _Review:
    """Decode a review as Go does. Raises Unlike with Go's text."""
    try:
        found = _decode(data)
        if (found.apiVersion, found.kind) == (f"{GROUP}/{version}", KIND):
            return found
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    value = answers.decoded(data, version, answers.CONVERSION)
    return _review_of(value)


def _review_of(value: Mapping[str, Any]) -> _Review:
    response = value.get("response")
    found = _Review(value.get("apiVersion") or "", value.get("kind") or "")
    if response is not None:
        result = response.get("result") or {}
        found.response = _Response(
            response.get("uid") or "",
            _Result(result.get("status") or "", result.get("message") or ""),
            [msgspec.Raw(rawjson.dumps(x)) for x in response.get("convertedObjects") or ()],
        )
    return found


def _problem(review: _Review, version: str, uid: str) -> str:
    """Return why the answer has no objects, or "". Answers in v1beta1 need not say which review they answer."""
    expected = f"{GROUP}/{version}"
    if version == "v1" and (review.apiVersion, review.kind) != (expected, KIND):
        group, slash, rest = review.apiVersion.partition("/")
        got = f"{group if slash else ''}/{rest if slash else group}, Kind={review.kind}"
        return f"expected webhook response of {expected}, Kind={KIND}, got {got}"
    response = review.response
    if response is None:
        return "no response provided"
    if version == "v1" and response.uid != uid:
        return f"expected response.uid={go_quote(uid)}, got {go_quote(response.uid)}"
    if response.result.status != "Success":
        return response.result.message or f"response.result.status was '{response.result.status}', not 'Success'"
    return ""


# ---------------------------------------------------------------------------------------------------------------------- one object


def taken(raw: bytes, original: Object, *, subject: str, kind: str, target: str) -> Object:
    """Return the object of an answer, without kind and apiVersion. Its metadata is that of `original`, with its own labels and annotations.

    `original` is the object that was sent; of it only metadata is read. `kind` is the kind of both, `target` the apiVersion that was
    asked for. Raises Failed.
    """
    obj = _object(raw)
    where = f"conversion webhook for {subject} returned invalid"
    stated = _text(obj, "apiVersion")
    if stated != target:
        wrong = f"{where} object at index 0: invalid groupVersion (expected {target}, received {stated})"
        raise Failed(Failure.OBJECT, wrong)
    if (its := _text(obj, "kind")) != kind:
        raise Failed(Failure.OBJECT, f"{where} object at index 0: invalid kind (expected {kind}, received {its})")
    before = original.get("metadata")
    for name, said in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        expected, got = _text(before, name), _text(obj.get("metadata"), name)
        if expected != got:
            raise Failed(Failure.OBJECT, f"{where} object: must have the same {said}: {expected} != {got}")
    try:
        metadata = _metadata(obj, before)
    except _Spoiled as e:
        raise Failed(Failure.OBJECT, f"{where} metadata: {e}") from None
    return {
        "metadata": metadata,
        **{name: x for name, x in obj.items() if name not in ("apiVersion", "kind", "metadata")},
    }


def _object(raw: bytes) -> Object:
    """Decode one object. Raises Failed."""
    if raw == b"null":
        raise Failed(Failure.OBJECT, "unexpected end of JSON input")
    try:
        obj = rawjson.parsed(raw)
    except ValueError as e:
        raise Failed(Failure.OBJECT, str(e)) from None
    if not isinstance(obj, dict):
        raise Failed(Failure.OBJECT, f"json: cannot unmarshal {answers.json_type(obj)} into Go value of type {_GO_MAP}")
    if not _text(obj, "kind") or _text(obj, "apiVersion").count("/") > 1:
        raise Failed(Failure.OBJECT, f"Object 'Kind' is missing in '{raw.decode('utf-8', 'replace')}'")
    return obj


def _text(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _metadata(obj: Object, before: Any) -> Object:
    """Return the original metadata with the labels and annotations of a converted object. Raises _Spoiled."""
    if "metadata" not in obj:
        raise _Spoiled("missing metadata in converted object")
    its = obj["metadata"]
    if not isinstance(its, dict):
        raise _Spoiled(f"invalid metadata of type {_go_type(its)} in converted object")
    found: Object = {**before} if isinstance(before, dict) else {}
    for name in ("labels", "annotations"):
        value = its.get(name)
        if value is None:
            found.pop(name, None)
            continue
        _check_texts(name, value, found.get(name) or {})
        found[name] = value
    return found


def _check_texts(name: str, value: Any, before: Mapping[str, str]) -> None:
    """Raise _Spoiled for labels or annotations that are no map of texts, or that were changed to invalid ones."""
    if not isinstance(value, dict):
        raise _Spoiled(f"invalid metadata.{name} of type {_go_type(value)} in converted object")
    for key, text in value.items():
        if not isinstance(text, str):
            raise _Spoiled(f"metadata.{name}[{key}] must be a string, but is {_go_type(text)} in converted object")
    if value == before:
        return
    texts = list(dict.fromkeys(map(str, islice(_text_errors(name, value), MOST_ERRORS))))
    if texts:
        raise _Spoiled(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def _text_errors(name: str, value: Mapping[str, str]) -> Iterator[FieldError]:
    if name == "labels":
        return meta.label_errors(value, "metadata.labels")
    return meta.annotation_errors(value, "metadata.annotation")


def _go_type(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    return "[]interface {}" if isinstance(value, list) else _GO_MAP
