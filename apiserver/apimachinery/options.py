"""Read the options of each verb from the query or a body. Complete and validate them as upstream does, in its order.

Knows neither kinds nor HTTP.
Upstream: kubernetes/apimachinery `pkg/apis/meta/v1/{conversion,zz_generated.conversion}.go`, `pkg/apis/meta/v1/validation/validation.go`,
`pkg/apis/meta/internalversion/{defaults,validation/validation}.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from apiserver.apimachinery import fieldpath, selectors
from apiserver.apimachinery.errors import GroupKind, bad_request, invalid
from apiserver.apimachinery.fieldpath import FieldError, FieldErrors
from apiserver.apimachinery.releases import V1_37, Release, at, since
from apiserver.apimachinery.request import Query
from apiserver.apimachinery.selectors import FieldSelector, LabelSelector
from kubetext import names, strconv

META_GROUP = "meta.k8s.io"
FIELD_MANAGER_BYTES = 128
FIELD_MANAGER_READ = 1024
"""Characters of a manager's name that are examined one by one; a longer name is invalid anyway."""

EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"
IGNORE, STRICT, WARN = "Ignore", "Strict", "Warn"
IGNORE_READ_ERROR = "ignoreStoreReadErrorWithClusterBreakingPotential"
FOREGROUND, BACKGROUND, ORPHAN = "Foreground", "Background", "Orphan"

_NOT_BESIDE_IGNORING = ("propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions")
NOT_BESIDE_IGNORING = since(
    V1_37,
    _NOT_BESIDE_IGNORING,
    before=("dryRun", *_NOT_BESIDE_IGNORING),
    what="deletion of an unreadable object may be a dry run",
)
"""The options that cannot be used together with `IGNORE_READ_ERROR`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """Options of LIST, watch and DELETECOLLECTION. `match` is resourceVersionMatch. `send_initial_events` is None if unset, also after
    defaulting. `shard_selector` is unparsed."""

    label_selector: LabelSelector = selectors.EVERYTHING
    field_selector: FieldSelector = selectors.ALL_FIELDS
    watch: bool = False
    allow_bookmarks: bool = False
    resource_version: str = ""
    match: str = ""
    timeout_seconds: int | None = None
    limit: int = 0
    continue_token: str = ""
    send_initial_events: bool | None = None
    shard_selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetOptions:
    resource_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write. `field_validation` is as it was sent, "" if absent: admission gets it like that. `validation` has the default
    applied."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""

    @property
    def validation(self) -> str:
        return self.field_validation or WARN


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateOptions(WriteOptions): ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions(WriteOptions):
    def as_create(self) -> CreateOptions:
        """Return the options of an update that creates."""
        return CreateOptions(
            dry_run=self.dry_run, field_manager=self.field_manager, field_validation=self.field_validation
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchOptions(WriteOptions):
    force: bool | None = None

    def as_update(self) -> UpdateOptions:
        """Return the options of a patch that admission gets (kubernetes/apiserver `pkg/endpoints/handlers/patch.go`
        patchToUpdateOptions)."""
        return UpdateOptions(
            dry_run=self.dry_run, field_manager=self.field_manager, field_validation=self.field_validation
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of DELETE. None means unset. `dry_run_values` are as they were sent. `uid` and `resource_version` are the preconditions;
    `preconditions` is True even if those sent were empty. `ignore_read_error` is ignoreStoreReadErrorWithClusterBreakingPotential."""

    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run_values: tuple[str, ...] = ()
    uid: str | None = None
    resource_version: str | None = None
    preconditions: bool = False
    ignore_read_error: bool = False

    @property
    def dry_run(self) -> bool:
        return bool(self.dry_run_values)

    def validate(self, release: Release) -> None:
        """Raise StatusError 422 for invalid options."""
        errors: list[FieldError] = []
        policy = self.propagation_policy
        if policy is not None and self.orphan_dependents is not None:
            detail = "orphanDependents and deletionPropagation cannot be both set"
            errors.append(fieldpath.invalid("propagationPolicy", fieldpath.Typed(policy), detail))
        if policy is not None and policy not in (FOREGROUND, BACKGROUND, ORPHAN):
            supported = (FOREGROUND, BACKGROUND, ORPHAN, "nil")
            errors.append(fieldpath.not_supported("propagationPolicy", fieldpath.Typed(policy), supported))
        errors += _dry_run_errors(self.dry_run_values)
        if self.ignore_read_error:
            errors += self._not_beside_ignoring(at(release, NOT_BESIDE_IGNORING))
        _refuse("DeleteOptions", errors)

    def _not_beside_ignoring(self, members: Sequence[str]) -> Iterator[FieldError]:
        given = {
            "dryRun": self.dry_run,
            "propagationPolicy": self.propagation_policy is not None,
            "orphanDependents": self.orphan_dependents is not None,
            "gracePeriodSeconds": self.grace_period_seconds is not None,
            "preconditions": self.preconditions,
        }
        for member in members:
            if given[member]:
                yield fieldpath.invalid(IGNORE_READ_ERROR, value=True, detail=f"cannot be set together with .{member}")

    def refuse_for_collections(self) -> None:
        """Raise StatusError 422 for options that are allowed for a single object only."""
        if self.ignore_read_error:
            detail = "is not allowed with DELETECOLLECTION, try again after removing the option"
            _refuse("DeleteOptions", [fieldpath.invalid(IGNORE_READ_ERROR, value=True, detail=detail)])


_Options = TypeVar("_Options")
_Terms = ParamSpec("_Terms")


def _once(parse: Callable[Concatenate[Query, _Terms], _Options]) -> Callable[Concatenate[Query, _Terms], _Options]:
    """Make a parser cache its result on the query, which many requests share. Errors are not cached."""

    @functools.wraps(parse)
    def parsed(query: Query, /, *args: _Terms.args, **terms: _Terms.kwargs) -> _Options:
        key = (parse, *args, *terms.values())
        found: _Options | None = query.options.get(key)
        if found is None:
            found = query.options[key] = parse(query, *args, **terms)
        return found

    return parsed


def parse_revision(text: str) -> int | None:
    """Return a resourceVersion parameter; None if empty. Raises ValueError with the text of Go's strconv."""
    return strconv.parse_uint(text) if text else None


def parse_list(query: Query, *, watch: bool) -> ListOptions:
    """Return the options of a list or a watch. Raises StatusError 400 for malformed options, 422 for invalid ones.

    `watch` says that the request is served as a watch. Defaulting and validation use the *parameter* `watch`, which the deprecated
    `/watch/` paths need not have. Without it, options are completed and validated as those of a list.
    """
    parameter = _boolean(query, "watch") or False
    timeout_seconds = _integer(query, "timeoutSeconds")
    options = ListOptions(
        timeout_seconds=timeout_seconds,
        limit=_integer(query, "limit") or 0,
        label_selector=query.selectors.labels,
        field_selector=query.selectors.fields,
        watch=watch or parameter,
        allow_bookmarks=_boolean(query, "allowWatchBookmarks") or False,
        resource_version=query.text("resourceVersion"),
        match=query.text("resourceVersionMatch"),
        continue_token=query.text("continue"),
        send_initial_events=_boolean(query, "sendInitialEvents"),
        shard_selector=query.text("shardSelector"),
    )
    if not parameter:
        _refuse("ListOptions", _list_errors(options))
        return options
    if options.send_initial_events is None and not options.match and options.resource_version in ("", "0"):
        options = replace(options, send_initial_events=True, match=NOT_OLDER_THAN)
    _refuse("ListOptions", _watch_errors(options))
    return options


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    field, match = "resourceVersionMatch", options.match
    if match:
        if not options.resource_version:
            errors.append(fieldpath.forbidden(field, f"{field} is forbidden unless resourceVersion is provided"))
        if options.continue_token:
            errors.append(fieldpath.forbidden(field, f"{field} is forbidden when continue is provided"))
        if match not in (EXACT, NOT_OLDER_THAN):
            errors.append(fieldpath.not_supported(field, fieldpath.Typed(match), (EXACT, NOT_OLDER_THAN, "")))
        if match == EXACT and options.resource_version == "0":
            errors.append(fieldpath.forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        errors.append(fieldpath.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    field, match, initial = "resourceVersionMatch", options.match, options.send_initial_events
    if initial is not None and match != NOT_OLDER_THAN:
        errors.append(fieldpath.forbidden(field, f"sendInitialEvents requires setting {field} to {NOT_OLDER_THAN}"))
    if match:
        if initial is None:
            errors.append(
                fieldpath.forbidden(field, f"{field} is forbidden for watch unless sendInitialEvents is provided")
            )
        if match != NOT_OLDER_THAN:
            errors.append(fieldpath.not_supported(field, fieldpath.Typed(match), (NOT_OLDER_THAN,)))
        if options.continue_token:
            errors.append(fieldpath.forbidden(field, f"{field} is forbidden when continue is provided"))
    return errors


@_once
def parse_get(query: Query) -> GetOptions:
    """Return the options of a GET. Raises StatusError 400."""
    if _boolean(query, "export"):
        raise bad_request("the export parameter, deprecated since v1.14, is no longer supported")
    return GetOptions(resource_version=query.text("resourceVersion"))


@_once
def parse_create(query: Query) -> CreateOptions:
    """Return the options of a POST. Raises StatusError 422."""
    _refuse("CreateOptions", _write_errors(query))
    return CreateOptions(
        dry_run="dryRun" in query,
        field_manager=query.text("fieldManager"),
        field_validation=query.text("fieldValidation"),
    )


@_once
def parse_update(query: Query) -> UpdateOptions:
    """Return the options of a PUT. Raises StatusError 422."""
    _refuse("UpdateOptions", _write_errors(query))
    return UpdateOptions(
        dry_run="dryRun" in query,
        field_manager=query.text("fieldManager"),
        field_validation=query.text("fieldValidation"),
    )


@_once
def parse_patch(query: Query, *, apply: bool) -> PatchOptions:
    """Return the options of a PATCH. Raises StatusError 400 or 422."""
    force = _boolean(query, "force")
    errors: list[FieldError] = []
    if apply and not query.text("fieldManager"):
        errors.append(fieldpath.required("fieldManager", "is required for apply patch"))
    if not apply and force is not None:
        errors.append(fieldpath.forbidden("force", "may not be specified for non-apply patch"))
    _refuse("PatchOptions", [*errors, *_write_errors(query)])
    return PatchOptions(
        dry_run="dryRun" in query,
        field_manager=query.text("fieldManager"),
        field_validation=query.text("fieldValidation"),
        force=force,
    )


def parse_delete_query(query: Query) -> DeleteOptions:
    """Return the options of a DELETE without a body. Raises StatusError 400, validates nothing."""
    uid, resource_version = query.first("uid") or None, query.first("resourceVersion") or None
    return DeleteOptions(
        grace_period_seconds=_integer(query, "gracePeriodSeconds"),
        orphan_dependents=_boolean(query, "orphanDependents"),
        propagation_policy=query.first("propagationPolicy"),
        dry_run_values=tuple(query.all("dryRun")),
        uid=uid,
        resource_version=resource_version,
        preconditions=uid is not None or resource_version is not None,
        ignore_read_error=_boolean(query, IGNORE_READ_ERROR) or False,
    )


def delete_options(body: Mapping[str, Any]) -> DeleteOptions:
    """Return the options of a decoded DeleteOptions object. Unknown members are ignored, null is absent. Raises StatusError 400, validates
    nothing.

    Empty preconditions of a body count, unlike those of a query.
    """
    for name, value in body.items():
        if name in _DELETE_MEMBERS:
            _check(value, _DELETE_MEMBERS[name], where=f"DeleteOptions.{name}")
    preconditions = body.get("preconditions") or {}
    for name, value in preconditions.items():
        if name in _PRECONDITIONS:
            _check(value, _PRECONDITIONS[name], where=f"Preconditions.preconditions.{name}")
    return DeleteOptions(
        grace_period_seconds=body.get("gracePeriodSeconds"),
        orphan_dependents=body.get("orphanDependents"),
        propagation_policy=body.get("propagationPolicy"),
        dry_run_values=tuple(v or "" for v in body.get("dryRun") or ()),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        preconditions=body.get("preconditions") is not None,
        ignore_read_error=body.get(IGNORE_READ_ERROR) or False,
    )


_DELETE_MEMBERS: Mapping[str, str] = {
    "kind": "string",
    "apiVersion": "string",
    "gracePeriodSeconds": "int64",
    "preconditions": "v1.Preconditions",
    "orphanDependents": "bool",
    "propagationPolicy": "v1.DeletionPropagation",
    "dryRun": "[]string",
    IGNORE_READ_ERROR: "bool",
}
_PRECONDITIONS: Mapping[str, str] = {"uid": "types.UID", "resourceVersion": "string"}


def _check(value: Any, go_type: str, *, where: str) -> None:
    """Raise StatusError 400 for a value that Go would not decode into `go_type`."""
    if value is None:
        return
    found = _json_type(value)
    wanted = {"int64": "number", "bool": "bool", "[]string": "array", "v1.Preconditions": "object"}.get(
        go_type, "string"
    )
    if found == wanted == "number" and not (isinstance(value, int) and strconv.MIN_INT64 <= value <= strconv.MAX_INT64):
        found = f"number {value}"
    if found != wanted:
        raise bad_request(f"json: cannot unmarshal {found} into Go struct field {where} of type {go_type}")
    if go_type == "[]string":
        for item in value:
            _check(item, "string", where=where)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _write_errors(query: Query) -> FieldErrors:
    manager, validation = query.text("fieldManager"), query.text("fieldValidation")
    errors = FieldErrors(field_manager_errors(manager, "fieldManager"))
    errors += _dry_run_errors(query.all("dryRun"))
    if validation not in ("", IGNORE, STRICT, WARN):
        errors.append(fieldpath.not_supported("fieldValidation", validation, ("", IGNORE, STRICT, WARN)))
    return errors


def field_manager_errors(manager: str, path: fieldpath.Path | str) -> Iterator[FieldError]:
    """Yield the errors of a manager's name: at most 128 bytes, printable. Positions count bytes."""
    if names.byte_length(manager) > FIELD_MANAGER_BYTES:
        yield fieldpath.too_long(path, FIELD_MANAGER_BYTES)
    if manager.isprintable():
        return
    shown, position = fieldpath.Shown(fieldpath.show(manager)), 0
    for c in manager[:FIELD_MANAGER_READ]:
        if not c.isprintable():
            yield fieldpath.invalid(path, shown, f"invalid character U+{ord(c):04X} (at position {position})")
        position += names.byte_length(c)


def _dry_run_errors(values: Sequence[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [fieldpath.not_supported("dryRun", list(values), ("All",))]


def _refuse(kind: str, errors: list[FieldError]) -> None:
    if errors:
        raise invalid(GroupKind(META_GROUP, kind), "", errors)


def _boolean(query: Query, name: str) -> bool | None:
    value = query.first(name)
    return None if value is None else value != "0" and value.lower() != "false"


def _integer(query: Query, name: str) -> int | None:
    value = query.first(name)
    if value is None:
        return None
    try:
        return strconv.parse_int(value)
    except ValueError as error:
        raise bad_request(str(error)) from None
