"""A webhook's answer as Go decodes a review: which values fit their members, and the words for those that do not.

Upstream: kubernetes-sigs/json `internal/golang/encoding/json/decode.go`, kubernetes/apimachinery
`pkg/runtime/serializer/json/{meta,json}.go`, `pkg/runtime/{error,scheme}.go`, kubernetes/api `admission/v1/types.go`,
kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/v1/types.go`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from apiserver.apimachinery import errors
from apiserver.codecs.json import json_syntax
from apiserver.codecs.yaml import as_yaml
from kubetext.quoting import go_quote

SCHEME = "pkg/runtime/scheme.go:111"
"""The name of upstream's schemes, which is where they are made."""
GROUP, KIND = "admission.k8s.io", "AdmissionReview"
MOST_YAML = 64 << 10
"""Bytes of an answer that are read as YAML, which takes a hundred times as long as JSON."""
_GO_STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
_RANGES = {"int32": range(-(1 << 31), 1 << 31), "int64": range(-(1 << 63), 1 << 63), "uint8": range(256)}


class _Float(float):
    """A number as it was spelled; beyond every float it is no error where nobody asks for it."""

    def __new__(cls, text: str) -> _Float:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


_decode = msgspec.json.Decoder(float_hook=_Float).decode


class Unlike(ValueError):
    """The bytes are no review; the text is upstream's."""


class _Is(NamedTuple):
    """The type that a member must have: the JSON type, Go's name for it, and the types inside, by name or `of` every element.

    `embedded` is the embedded struct that has the member. Go names it on the way there.
    """

    json: str
    go: str
    struct: str = ""
    members: Mapping[str, _Is] = {}
    of: _Is | None = None
    embedded: str = ""


_STRING = _Is("string", "string")
_IN_TYPE_META = _STRING._replace(embedded="TypeMeta")
_INT32, _BYTE = _Is("number", "int32"), _Is("number", "uint8")
_CAUSE = _Is(
    "object",
    "v1.StatusCause",
    "StatusCause",
    {"reason": _Is("string", "v1.CauseType"), "message": _STRING, "field": _STRING},
)
_DETAILS = _Is(
    "object",
    "v1.StatusDetails",
    "StatusDetails",
    {
        "name": _STRING,
        "group": _STRING,
        "kind": _STRING,
        "uid": _Is("string", "types.UID"),
        "causes": _Is("array", "[]v1.StatusCause", of=_CAUSE),
        "retryAfterSeconds": _INT32,
    },
)
_LIST_META = _Is(
    "object",
    "v1.ListMeta",
    "ListMeta",
    {
        "selfLink": _STRING,
        "resourceVersion": _STRING,
        "continue": _STRING,
        "remainingItemCount": _Is("number", "int64"),
    },
)
_STATUS = _Is(
    "object",
    "v1.Status",
    "Status",
    {
        "kind": _IN_TYPE_META,
        "apiVersion": _IN_TYPE_META,
        "metadata": _LIST_META,
        "status": _STRING,
        "message": _STRING,
        "reason": _Is("string", "v1.StatusReason"),
        "details": _DETAILS,
        "code": _INT32,
    },
)


_USER = _Is(
    "object",
    "v1.UserInfo",
    "UserInfo",
    {
        "username": _STRING,
        "uid": _STRING,
        "groups": _Is("array", "[]string", of=_STRING),
        "extra": _Is("object", "map[string]v1.ExtraValue", of=_Is("array", "v1.ExtraValue", of=_STRING)),
    },
)


def _kind(last: str) -> _Is:
    """A GroupVersionKind, or a GroupVersionResource."""
    name = f"GroupVersion{last}"
    return _Is("object", f"v1.{name}", name, dict.fromkeys(("group", "version", last.lower()), _STRING))


def _review(package: str) -> _Is:
    response = _Is(
        "object",
        f"{package}.AdmissionResponse",
        "AdmissionResponse",
        {
            "uid": _Is("string", "types.UID"),
            "allowed": _Is("bool", "bool"),
            "status": _STATUS,
            "patch": _Is("string", "[]uint8"),
            "patchType": _Is("string", f"{package}.PatchType"),
            "auditAnnotations": _Is("object", "map[string]string", of=_STRING),
            "warnings": _Is("array", "[]string", of=_STRING),
        },
    )
    asked = {
        "uid": _Is("string", "types.UID"),
        "kind": _kind("Kind"),
        "resource": _kind("Resource"),
        "subResource": _STRING,
        "requestKind": _kind("Kind"),
        "requestResource": _kind("Resource"),
        "requestSubResource": _STRING,
        "name": _STRING,
        "namespace": _STRING,
        "operation": _Is("string", f"{package}.Operation"),
        "userInfo": _USER,
        "dryRun": _Is("bool", "bool"),
    }
    request = _Is("object", f"{package}.AdmissionRequest", "AdmissionRequest", asked)
    members = {"kind": _STRING, "apiVersion": _STRING, "request": request, "response": response}
    return _Is("object", f"{package}.AdmissionReview", "AdmissionReview", members)


def _conversion_review(package: str) -> _Is:
    objects = _Is("array", "[]runtime.RawExtension")
    response = _Is(
        "object",
        f"{package}.ConversionResponse",
        "ConversionResponse",
        {"uid": _Is("string", "types.UID"), "convertedObjects": objects, "result": _STATUS},
    )
    request = _Is(
        "object",
        f"{package}.ConversionRequest",
        "ConversionRequest",
        {"uid": _Is("string", "types.UID"), "desiredAPIVersion": _STRING, "objects": objects},
    )
    members = {"kind": _STRING, "apiVersion": _STRING, "request": request, "response": response}
    return _Is("object", f"{package}.ConversionReview", "ConversionReview", members)


_IN_EVERY_VERSION = (
    "WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions",
)  # fmt: skip


class Reviews(NamedTuple):
    """A kind of review: its group and kind, its type in each version, and the other kinds of its group."""

    group: str
    kind: str
    versions: Mapping[str, _Is]
    others: Collection[str] = ()


VERSIONS = ("v1", "v1beta1")
ADMISSION = Reviews(GROUP, KIND, {version: _review(version) for version in VERSIONS})
CONVERSION = Reviews(
    "apiextensions.k8s.io",
    "ConversionReview",
    {version: _conversion_review(version) for version in VERSIONS},
    ("CustomResourceDefinition", "CustomResourceDefinitionList"),
)


def decoded(data: bytes, version: str, reviews: Reviews = ADMISSION) -> dict[str, Any]:
    """The review, every member of its response null or of its type. Raises Unlike."""
    value = _json(data) if begins_as_object(data) else _yaml(data)
    _check_kind({} if value is None else value, version, reviews)
    _check_members(reviews.versions[version], value)
    found: dict[str, Any] = value or {}
    return found


def begins_as_object(data: bytes) -> bool:
    """Whether it is read as JSON; anything else is YAML to upstream."""
    return data.lstrip()[:1] == b"{"


def _json(data: bytes) -> Any:
    try:
        return loads(data)
    except json_syntax.SyntaxProblem as problem:
        raise Unlike(f"couldn't get version/kind; json parse error: {problem}") from None


def _yaml(data: bytes) -> Any:
    if len(data) > MOST_YAML:
        raise Unlike(f"couldn't get version/kind; json parse error: {_not_json(data)}")
    try:
        return as_yaml.read(data).value
    except as_yaml.YAMLProblem as problem:
        raise Unlike(str(problem)) from None
    except errors.StatusError as heavy:
        raise Unlike(f"yaml: {heavy.message}") from None


def _not_json(data: bytes) -> str:
    try:
        json_syntax.check(data)
    except json_syntax.SyntaxProblem as problem:
        return str(problem)
    return f"json: cannot unmarshal array into Go value of type {_GO_STRUCT}"


def loads(data: bytes) -> Any:
    """Raises SyntaxProblem with Go's text."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        json_syntax.check(data)
    try:
        return _decode(json_syntax.mended(data))
    except (msgspec.DecodeError, ValueError) as error:
        raise json_syntax.SyntaxProblem(str(error)) from None
    except RecursionError:
        raise json_syntax.SyntaxProblem("exceeded max depth") from None


_UNVERSIONED = ("Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList")
"""Known by their bare names, with any apiVersion."""


def _check_kind(value: Any, version: str, reviews: Reviews) -> None:
    """An answer may leave out its kind and apiVersion, but not state others. Raises Unlike."""
    stated = _stated(value)
    own, known = reviews.kind, reviews.versions
    kind, api_version = stated["kind"] or own, stated["apiversion"]
    if api_version.count("/") > 1:
        raise Unlike(f"unexpected GroupVersion string: {api_version}")
    group, _, its = api_version.rpartition("/")
    if not its and group in ("", reviews.group):
        group, its = reviews.group, version
    if kind == own and (group, its) == (reviews.group, version):
        return
    if kind in _UNVERSIONED:
        if kind == "Status":
            _check_members(_STATUS, value)
        raise Unlike(f"converting (v1.{kind}) to ({version}.{own}): unknown conversion")
    if group == reviews.group and its in known and kind in (own, *reviews.others, *_IN_EVERY_VERSION):
        if kind == own:
            _check_members(known[its], value)
        package = "v1" if kind in _IN_EVERY_VERSION else its
        raise Unlike(f"converting ({package}.{kind}) to ({version}.{own}): unknown conversion")
    shown = go_quote(f"{group}/{its}" if group else its)
    raise Unlike(f"no kind {go_quote(kind)} is registered for version {shown} in scheme {go_quote(SCHEME)}")


def _stated(value: Any) -> dict[str, str]:
    """Return the stated kind and apiVersion. The first look at them ignores the case of names."""
    start = "couldn't get version/kind; json parse error: json: cannot unmarshal"
    if not isinstance(value, dict):
        raise Unlike(f"{start} {json_type(value)} into Go value of type {_GO_STRUCT}")
    found = {"kind": "", "apiversion": ""}
    for name, member in value.items():
        folded = name.casefold() if len(name) in (4, 10) else ""
        if folded in found and member is not None:
            if not isinstance(member, str):
                shown = "kind" if folded == "kind" else "apiVersion"
                raise Unlike(f"{start} {json_type(member)} into Go struct field .{shown} of type string")
            found[folded] = member
    return found


def _check_members(wanted: _Is, value: Any) -> None:
    """Raises Unlike with the first that does not fit."""
    for mismatch in _mismatches(wanted, value, ()):
        raise Unlike(mismatch)


def _mismatches(wanted: _Is, value: Any, path: tuple[str, ...], struct: str = "") -> Iterator[str]:
    """Yield the errors of Go, in document order."""
    if value is None:
        return
    found = json_type(value)
    if found == "number" == wanted.json and not (isinstance(value, int) and value in _RANGES[wanted.go]):
        found = f"number {getattr(value, 'text', value)}"
    if wanted.go == "[]uint8" and isinstance(value, list):
        yield from (text for item in value for text in _mismatches(_BYTE, item, path, struct))
        return
    if found != wanted.json:
        where = f"struct field {struct}.{'.'.join(path)}" if path else "value"
        yield f"json: cannot unmarshal {found} into Go {where} of type {wanted.go}"
        return
    if wanted.go == "[]uint8":
        yield from _not_base64(value)
    elif wanted.of is not None:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _mismatches(wanted.of, item, path, struct)
    elif wanted.members:
        for name, member in value.items():
            if name in wanted.members:
                inner = wanted.members[name]
                steps = (inner.embedded, name) if inner.embedded else (name,)
                yield from _mismatches(inner, member, (*path, *steps), wanted.struct)


def json_type(value: Any) -> str:
    """Return Go's name for the type of a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


# ------------------------------------------------------------------------------------------------------------------------- patches


def patch_of(response: Mapping[str, Any]) -> bytes:
    """The bytes of a response's patch."""
    patch = response.get("patch") or ""
    return bytes(patch) if isinstance(patch, list) else b64decode(_without_breaks(patch))


def _without_breaks(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")


def _not_base64(text: str) -> Iterator[str]:
    """Yield Go's error for invalid base64: the place of an incomplete group, of a foreign letter, or of text after the padding.

    Upstream: golang/go `src/encoding/base64/base64.go`.
    """
    try:
        b64decode(_without_breaks(text), validate=True)
        return
    except ValueError:  # binascii.Error is one, and so is a letter beyond ASCII
        strange = _NO_LETTER.search(text)
    at = len(text) if strange is None else strange.start()
    over = len(_without_breaks(text[:at])) % 4
    if strange is None:
        yield f"illegal base64 data at input byte {at - over}"
    elif strange.group() == "=" and over >= 2:
        yield f"illegal base64 data at input byte {_behind_padding(text, at, over)}"
    else:
        yield f"illegal base64 data at input byte {at}"


def _behind_padding(text: str, at: int, length: int) -> int:
    """Where what follows the first `=` is wrong."""
    rest = at + 1
    if length == 2:
        while text[rest : rest + 1] in ("\r", "\n"):
            rest += 1
        if rest == len(text):
            return rest
        if text[rest] != "=":
            return rest
        rest += 1
    return rest


_NO_LETTER = re.compile(r"[^A-Za-z0-9+/\r\n]")


def why_no_patch(text: bytes) -> str:
    """Why a text is no JSON patch."""
    try:
        value = loads(text)
    except json_syntax.SyntaxProblem as problem:
        return str(problem)
    if not isinstance(value, list):
        return f"json: cannot unmarshal {json_type(value)} into Go value of type jsonpatch.Patch"
    wrong = next((x for x in value if x is not None and not isinstance(x, dict)), None)
    return f"json: cannot unmarshal {json_type(wrong)} into Go value of type jsonpatch.Operation"
