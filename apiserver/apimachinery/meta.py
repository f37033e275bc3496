"""Read the metadata of decoded objects: times and ages, owner references, and the checks that every kind shares.

Knows no kinds; their differences are arguments.
Upstream: kubernetes/apimachinery `pkg/api/validation/objectmeta.go`, kubernetes/kubernetes `pkg/apis/core/validation/validation.go`
(ValidateObjectMeta).
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from apiserver.apimachinery import excerpt, fieldpath, options
from apiserver.apimachinery.fieldpath import FieldError, FieldErrors
from apiserver.apimachinery.releases import V1_37, Release, at, since
from kubetext import names, quoting, sorting

ANNOTATIONS_BYTES = 256 * 1024
SUBRESOURCE_BYTES = 256

ORPHAN_FINALIZER, FOREGROUND_FINALIZER = "orphan", "foregroundDeletion"
STANDARD_FINALIZERS = frozenset(("kubernetes", ORPHAN_FINALIZER, FOREGROUND_FINALIZER))

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial events of a watch."""

IMMUTABLE = "field is immutable"

_Object = Mapping[str, Any]
NameCheck = Callable[[str, bool], list[str]]
"""Returns the errors of a name. The second argument marks a generateName."""


def metadata(obj: _Object) -> dict[str, Any]:
    """Return the object's own metadata, which the caller may change; an empty dictionary if it has none."""
    found = obj.get("metadata")
    return found if found is not None else {}


def name(obj: _Object) -> str:
    return metadata(obj).get("name") or ""


def namespace(obj: _Object) -> str:
    return metadata(obj).get("namespace") or ""


def uid(obj: _Object) -> str:
    return metadata(obj).get("uid") or ""


def finalizers(obj: _Object) -> Sequence[str]:
    return metadata(obj).get("finalizers") or ()


def rfc3339(seconds: float) -> str:
    """Return seconds since the epoch as `metav1.Time` writes them: UTC, whole seconds."""
    return _second(int(seconds))


@functools.lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def instant(text: str) -> float:
    """Return the seconds since the epoch of a stored time. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()


def age(obj: _Object, now: float) -> str:
    """Return the Age cell of a Table."""
    return age_at(created(obj), now)


def created(obj: _Object) -> float | None:
    """Return when the object was created, in seconds since the epoch; None if it was never created."""
    text = metadata(obj).get("creationTimestamp")
    return instant(text) if text else None


def age_at(since: float | None, now: float) -> str:
    """Return the cell of a column of ages."""
    return "<unknown>" if since is None else human_duration(now - since)


def same_age_until(since: float | None, now: float) -> float:
    """Return the time until which the cell certainly stays the same."""
    if since is None or now - since > _LONGEST:
        return math.inf
    whole = int(now - since)
    if whole < -1:
        return since - 2
    unit = next((unit for below, unit in _UNITS if whole < below), _DAY)
    return since + (max(whole, 0) // unit + 1) * unit


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_LONGEST = ((1 << 63) - 1) // 10**9
"""Seconds of Go's longest duration."""
_UNITS = ((10 * _MINUTE, 1), (8 * _HOUR, _MINUTE), (8 * _DAY, _HOUR))
"""Seconds below which an age has a precision of a second, a minute, an hour."""


def human_duration(seconds: float) -> str:
    """Return two or three significant figures (kubernetes/apimachinery `pkg/util/duration/duration.go`). Clocks may differ by two
    seconds. Go's durations end at 292 years."""
    whole = int(min(seconds, _LONGEST))
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, 1, units="ms")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, _MINUTE, units="hm")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, _HOUR, units="dh")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, _DAY, units="yd")
    return f"{whole // _YEAR}y"


def _two(seconds: int, large: int, small: int, *, units: str) -> str:
    count, rest = divmod(seconds, large)
    rest //= small
    return f"{count}{units[0]}{rest}{units[1]}" if rest else f"{count}{units[0]}"


def dedup_owner_references(obj: _Object) -> list[str]:
    """Remove owner references that repeat an earlier one in full. Return their uids.

    Upstream: kubernetes/apiserver `pkg/endpoints/handlers/rest.go`.
    """
    meta = metadata(obj)
    references = meta.get("ownerReferences")
    if not references or len(references) < 2:
        return []
    kept: dict[tuple[Any, ...], Any] = {}
    repeated = []
    for reference in references:
        identity = tuple(_owner(reference).items())
        if identity in kept:
            repeated.append(reference.get("uid") or "")
        else:
            kept[identity] = reference
    if repeated:
        meta["ownerReferences"] = list(kept.values())
    return repeated


def _owner(reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return an owner reference with the members that Go's type always has, in its order."""
    owner: dict[str, Any] = {member: reference.get(member) or "" for member in ("apiVersion", "kind", "name", "uid")}
    for member in ("controller", "blockOwnerDeletion"):
        if reference.get(member) is not None:
            owner[member] = reference[member]
    return owner


def validate_object_meta(
    obj: _Object,
    release: Release,
    *,
    namespaced: bool,
    name_check: NameCheck = names.subdomain_name,
    qualified_finalizers: bool = True,
) -> FieldErrors:
    """Return the errors of metadata on create. A kind's own check uses its name rule. The generic check of every write is weaker
    (`names.path_segment_name`, `qualified_finalizers=False`)."""
    meta = metadata(obj)
    errors = FieldErrors(_name_errors(meta, name_check))
    errors += _namespace_errors(meta.get("namespace") or "", namespaced=namespaced)
    generation = meta.get("generation") or 0
    if generation < 0:
        errors.append(fieldpath.invalid("metadata.generation", generation, "must be greater than or equal to 0"))
    errors += label_errors(meta.get("labels"), "metadata.labels")
    errors += annotation_errors(meta.get("annotations"))
    errors += _owner_errors(meta.get("ownerReferences") or (), at(release, ONE_OWNER_ERRORS))
    errors += _finalizer_errors(meta.get("finalizers") or ())
    errors += _managed_field_errors(meta.get("managedFields") or (), at(release, OPERATION_ERROR))
    if qualified_finalizers:
        errors += _unqualified_finalizer_errors(meta.get("finalizers") or ())
    return errors


def validate_object_meta_update(
    new: _Object, old: _Object, release: Release, *, qualified_finalizers: bool = True
) -> FieldErrors:
    """Return the errors of metadata on update. The kinds' own checks set `qualified_finalizers`."""
    meta = metadata(new)
    errors = FieldErrors(_change_errors(meta, metadata(old)))
    errors += label_errors(meta.get("labels"), "metadata.labels")
    errors += annotation_errors(meta.get("annotations"))
    errors += _owner_errors(meta.get("ownerReferences") or (), at(release, ONE_OWNER_ERRORS))
    errors += _managed_field_errors(meta.get("managedFields") or (), at(release, OPERATION_ERROR))
    if qualified_finalizers:
        errors += _unqualified_finalizer_errors(meta.get("finalizers") or ())
    return errors


def is_acceptable(
    new: _Object,
    old: _Object | None,
    *,
    namespaced: bool,
    name_checks: Iterable[NameCheck] = (names.subdomain_name,),
    qualified_finalizers: bool = True,
) -> bool:
    """Return whether all of these checks pass. Parts that several checks share run once.

    Releases differ in the texts of errors, not in what they accept.
    """
    meta = metadata(new)
    parts = [_name_errors(meta, check) for check in name_checks]
    parts.append(_namespace_errors(meta.get("namespace") or "", namespaced=namespaced))
    if old is not None:
        parts.append(_change_errors(meta, metadata(old)))
    for member, check in _PARTS:
        if meta.get(member) and (qualified_finalizers or check is not _unqualified_finalizer_errors):
            parts.append(check(meta[member]))
    return (meta.get("generation") or 0) >= 0 and all(next(part, None) is None for part in parts)


def _change_errors(meta: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    if before.get("deletionTimestamp") is not None:
        yield from _new_finalizer_errors(meta.get("finalizers") or (), before.get("finalizers") or ())
    if not meta.get("resourceVersion"):
        yield fieldpath.invalid("metadata.resourceVersion", "", "must be specified for an update")
    generation = meta.get("generation") or 0
    if generation < (before.get("generation") or 0):
        yield fieldpath.invalid("metadata.generation", generation, "must not be decremented")
    yield from _immutable_errors(meta, before)


def _name_errors(meta: Mapping[str, Any], check: NameCheck) -> Iterator[FieldError]:
    generate_name, own_name = meta.get("generateName") or "", meta.get("name") or ""
    if generate_name:
        for text in check(generate_name, True):  # noqa: FBT003
            yield fieldpath.invalid("metadata.generateName", generate_name, text)
    if not own_name:
        yield fieldpath.required("metadata.name", "name or generateName is required")
        return
    for text in check(own_name, False):  # noqa: FBT003
        yield fieldpath.invalid("metadata.name", own_name, text)


def _namespace_errors(value: str, *, namespaced: bool) -> Iterator[FieldError]:
    path = "metadata.namespace"
    if not namespaced:
        if value:
            yield fieldpath.forbidden(path, "not allowed on this type")
    elif not value:
        yield fieldpath.required(path)
    else:
        for text in names.dns_label(value):
            yield fieldpath.invalid(path, value, text)


TEXTS = ("labels", "annotations", "finalizers")
"""The members of metadata that hold any number of texts and nothing else."""


def text_bytes(metadata: Mapping[str, Any]) -> int:
    """Return the least number of bytes of JSON that these members take. This is quick for any number of texts."""
    found = 0
    for name in TEXTS:
        if texts := metadata.get(name):
            found += _text_bytes(texts)
    return found


def _text_bytes(texts: Mapping[str, str | None] | Sequence[str]) -> int:
    # Each text has two quotation marks, and a comma or colon behind it. Each character takes at least one byte.
    found = sum(map(len, texts)) + 3 * len(texts) - 1
    if isinstance(texts, dict) or isinstance(texts, Mapping):  # noqa: SIM101 - the first is far quicker, and nearly always true
        found += sum(map(len, filter(None, texts.values()))) + 3 * len(texts)
    return found


def label_errors(labels: Mapping[str, str] | None, path: fieldpath.Path | str) -> Iterator[FieldError]:
    """Yield the errors of keys and values of labels. All have the path of the map."""
    if not labels or (next(names.doubtful_keys(labels), None) is None and names.are_label_values(labels.values())):
        return
    for key, value in labels.items():
        for text in names.label_key(key):
            yield fieldpath.invalid(path, key, text)
        for text in names.label_value(value):
            yield fieldpath.invalid(path, value, text)


def annotation_errors(
    annotations: Mapping[str, str] | None, path: fieldpath.Path | str = "metadata.annotations"
) -> Iterator[FieldError]:
    """Yield the errors of the keys of annotations, and of their size. All have the path of the map."""
    if not annotations:
        return
    if not names.are_annotation_keys(annotations):
        for key in annotations:
            for text in names.label_key(names.lower(key)):
                yield fieldpath.invalid(path, key, text)
    # Each character takes at least one byte.
    at_least = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    if (
        at_least > ANNOTATIONS_BYTES
        or sum(names.byte_length(k) + names.byte_length(v) for k, v in annotations.items()) > ANNOTATIONS_BYTES
    ):
        yield fieldpath.too_long(path, ANNOTATIONS_BYTES)


def _one_owner_errors(owner: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield the errors of one reference from 1.37 on."""
    api_version = owner["apiVersion"]
    group, version = _group_version(api_version)
    if not api_version:
        yield fieldpath.required(f"{path}.apiVersion", "must not be empty")
    elif not version:
        yield fieldpath.invalid(f"{path}.apiVersion", api_version, "must be <group>/<version> or <version>")
    for member in ("kind", "name", "uid"):
        if not owner[member]:
            yield fieldpath.required(f"{path}.{member}", "must not be empty")
    if (group, version, owner["kind"]) == ("", "v1", "Event"):
        yield fieldpath.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")


def _one_owner_errors_1_36(owner: Mapping[str, Any], _: str) -> Iterator[FieldError]:
    path = "metadata.ownerReferences"
    group, version = _group_version(owner["apiVersion"])
    if not version:
        yield fieldpath.invalid(f"{path}.apiVersion", owner["apiVersion"], "version must not be empty")
    for member in ("kind", "name", "uid"):
        if not owner[member]:
            yield fieldpath.invalid(f"{path}.{member}", owner[member], "must not be empty")
    if (group, version, owner["kind"]) == ("", "v1", "Event"):
        yield fieldpath.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")


_OwnerCheck = Callable[[Mapping[str, Any], str], Iterator[FieldError]]
ONE_OWNER_ERRORS: _OwnerCheck = since(
    V1_37,
    _one_owner_errors,
    before=_one_owner_errors_1_36,
    what="errors of metadata.ownerReferences name the element, and missing members are `Required value`",
)


def _owner_errors(
    references: Sequence[Mapping[str, Any]], one_owner_errors: _OwnerCheck = _one_owner_errors
) -> Iterator[FieldError]:
    path = "metadata.ownerReferences"
    controller = ""
    everything: fieldpath.Shown | None = None
    for i, reference in enumerate(map(_owner, references)):
        yield from one_owner_errors(reference, f"{path}[{i}]")
        if reference.get("controller"):
            current = f"{reference['kind']}/{reference['name']}"
            if not controller:
                controller = current
                continue
            everything = everything or fieldpath.Shown(fieldpath.show(list(map(_owner, references))))
            detail = (
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {controller} and {current}'
            )
            yield fieldpath.invalid(path, everything, detail)


def _group_version(api_version: str) -> tuple[str, str]:
    """Return group and version; both empty for an invalid apiVersion."""
    group, slash, version = api_version.partition("/")
    if not slash:
        return "", group
    return (group, version) if "/" not in version else ("", "")


def _finalizer_errors(found: Sequence[str]) -> Iterator[FieldError]:
    path = "metadata.finalizers"
    for finalizer in names.doubtful_keys(found):
        for text in names.label_key(finalizer):
            yield fieldpath.invalid(path, finalizer, text)
    if ORPHAN_FINALIZER in found and FOREGROUND_FINALIZER in found:
        detail = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        yield fieldpath.invalid(path, list(found), detail)


def _unqualified_finalizer_errors(found: Sequence[str]) -> Iterator[FieldError]:
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    for i, finalizer in enumerate(found):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            yield fieldpath.invalid(f"metadata.finalizers[{i}]", finalizer, detail)


def _new_finalizer_errors(found: Sequence[str], before: Sequence[str]) -> Iterator[FieldError]:
    added = [*sorting.in_order(set(found) - set(before))]
    if added:
        shown = excerpt.cut(", ".join(map(quoting.go_quote, added)), fieldpath.ERRORS_LIMIT)
        detail = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
        )
        yield fieldpath.forbidden("metadata.finalizers", detail)


ZERO_TIME = "0001-01-01T00:00:00Z"
"""Go writes null for it."""


def _immutable_errors(meta: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    for member in ("name", "namespace", "uid"):
        value = meta.get(member) or ""
        if value != (before.get(member) or ""):
            shown = fieldpath.Typed(value) if member == "uid" else value
            yield fieldpath.invalid(f"metadata.{member}", shown, IMMUTABLE)
    for member in ("creationTimestamp", "deletionTimestamp"):
        value, was = meta.get(member), before.get(member)
        if value != was and (value is None or was is None or instant(value) != instant(was)):
            shown = None if value in (None, ZERO_TIME) else fieldpath.Typed(value)
            yield fieldpath.invalid(f"metadata.{member}", shown, IMMUTABLE)
    member = "deletionGracePeriodSeconds"
    if meta.get(member) != before.get(member):
        yield fieldpath.invalid(f"metadata.{member}", meta.get(member), IMMUTABLE)


def _operation_error(path: str, operation: str) -> FieldError:
    """Return the error of an operation that does not exist, from 1.37 on."""
    if not operation:
        return fieldpath.required(path, "must not be empty")
    return fieldpath.not_supported(path, fieldpath.Typed(operation), OPERATIONS)


def _operation_error_1_36(path: str, operation: str) -> FieldError:
    return fieldpath.invalid(path, fieldpath.Typed(operation), "must be `Apply` or `Update`")


OPERATIONS = ("Apply", "Update")
OPERATION_ERROR = since(
    V1_37,
    _operation_error,
    before=_operation_error_1_36,
    what="metadata.managedFields[].operation is a required member with two supported values",
)


def _managed_field_errors(
    entries: Sequence[Mapping[str, Any]], operation_error: Callable[[str, str], FieldError] = _operation_error
) -> Iterator[FieldError]:
    for i, entry in enumerate(entries):
        path = f"metadata.managedFields[{i}]"
        operation, fields_type = entry.get("operation") or "", entry.get("fieldsType") or ""
        if operation not in OPERATIONS:
            yield operation_error(f"{path}.operation", operation)
        if fields_type not in ("", "FieldsV1"):
            yield fieldpath.invalid(f"{path}.fieldsType", fields_type, "must be `FieldsV1`")
        yield from options.field_manager_errors(entry.get("manager") or "", f"{path}.manager")
        if names.byte_length(entry.get("subresource") or "") > SUBRESOURCE_BYTES:
            yield fieldpath.too_long(f"{path}.subresource", SUBRESOURCE_BYTES)


_PARTS: Sequence[tuple[str, Callable[[Any], Iterator[FieldError]]]] = (
    ("labels", lambda labels: label_errors(labels, "metadata.labels")),
    ("annotations", annotation_errors),
    ("ownerReferences", _owner_errors),
    ("finalizers", _finalizer_errors),
    ("finalizers", _unqualified_finalizer_errors),
    ("managedFields", _managed_field_errors),
)
"""The checks of members that run for every write."""
