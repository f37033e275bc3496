"""Judge custom resources: everything that a version of a definition says about their values, in upstream's order.

Errors of the schema, of scale, of embedded resources and of list types come first. Some of them make rules meaningless; an error says then
that rules were not checked. Errors of the object's own metadata are the business of `verbs.lifecycle`.
Upstream: kubernetes/apiextensions-apiserver `pkg/registry/customresource/{strategy,status_strategy,validator}.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from apiserver.apimachinery import fieldpath, meta
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.releases import Release
from apiserver.schema.context import Context
from apiserver.schema.custom import Scale
from apiserver.schema.resource import Object
from apiserver.schema.structural import Structural
from apiserver.structural import scale_paths
from apiserver.structural.correlation import Correlated
from apiserver.structural.embedded_validation import EmbeddedErrors, embedded_resources
from apiserver.structural.list_types import ListTypeErrors, list_types
from apiserver.structural.validation import Validator, validator

BLOCKING = frozenset(
    (fieldpath.NOT_SUPPORTED, fieldpath.REQUIRED, fieldpath.TOO_LONG, fieldpath.TOO_MANY, fieldpath.TYPE_INVALID)
)
"""Reasons of errors after which no rule is checked."""

NOT_CHECKED = fieldpath.invalid(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


class Rules(Protocol):
    """The rules of a schema (`x-kubernetes-validations`)."""

    def prepare(self) -> None:
        """Compile all rules, unless that was done. Takes milliseconds for each."""

    def errors(
        self,
        new: Object,
        old: Object | None,
        *,
        api_version: str,
        kind: str,
        warn: Callable[[str], None],
        checkpoint: Callable[[], None],
    ) -> Iterable[FieldError]:
        """Return the errors of an object. `warn` gets rules that fail where nothing changed."""


RulesOf = Callable[[Release], Rules | None]
"""Returns the rules of a schema in a release of Kubernetes. The same each time."""


class Judge:
    """Judges the objects of one version. Objects have no apiVersion and kind; schemas see those of the version.

    The methods are hooks of `Resource` and of its subresource `status`. They yield errors while they are asked for.
    """

    def __init__(
        self,
        schema: Structural,
        *,
        api_version: str,
        kind: str,
        namespaced: bool,
        scale: Scale | None = None,
        rules: RulesOf | None = None,
    ) -> None:
        self._schema = schema
        self._named = {"apiVersion": api_version, "kind": kind}
        self._api_version, self._kind, self._namespaced = api_version, kind, namespaced
        self._scale = scale
        self._rules = rules
        self._validator = validator(schema)
        status = schema.properties.get("status")
        self._status: tuple[Structural, Validator] | None = None if status is None else (status, validator(status))

    # Made when the first object comes: many kinds never get one.

    @functools.cached_property
    def _embedded(self) -> EmbeddedErrors | None:
        return embedded_resources(self._schema)

    @functools.cached_property
    def _list_types(self) -> ListTypeErrors | None:
        return list_types(self._schema)

    def prepare(self, release: Release) -> None:
        """Compile what judging needs in a release, unless that was done. Large schemas take a tenth of a second and more, so this belongs
        into a thread."""
        self._validator.prepare(release)
        _ = self._embedded, self._list_types  # both are made when they are asked for
        if self._status is not None:
            self._status[1].prepare(release)
        rules = None if self._rules is None else self._rules(release)
        if rules is not None:
            rules.prepare()

    def validate(self, context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
        """Yield the errors of a new object, or of a changed one besides its status."""
        return self._with_rules(self._errors(context, new, old), context, new, old)

    def validate_status(self, context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
        """Yield the errors of an object whose status changed. The rest of it is as stored."""
        return self._with_rules(self._status_errors(context, new, old or {}), context, new, old)

    def _errors(self, context: Context, new: Object, old: Object | None) -> Iterator[FieldError]:
        whole = {**self._named, **new}
        correlated = None if old is None else Correlated(self._schema, whole, {**self._named, **old})
        yield from self._validator.errors(whole, correlated, release=context.gates.release)
        if self._scale is not None:
            yield from scale_paths.errors(new, self._scale)
        if self._embedded is not None:
            yield from self._embedded(whole, context.gates.release)
        yield from self._list_type_errors(new, old)

    def _status_errors(self, context: Context, new: Object, old: Object) -> Iterator[FieldError]:
        if self._status is not None and "status" in new:
            schema, check = self._status
            correlated = Correlated(schema, new["status"], old.get("status"))
            yield from check.errors(new["status"], correlated, path="status", release=context.gates.release)
        if self._scale is not None:
            yield from scale_paths.errors(new, self._scale, status_only=True)
        yield from self._list_type_errors(new, old)

    def _list_type_errors(self, new: Object, old: Object | None) -> Iterator[FieldError]:
        """Yield the repeated items of lists, unless the stored object had any."""
        if self._list_types is None:
            return
        for error in self._list_types(new):
            if old is not None and next(self._list_types(old), None) is not None:
                return
            old = None
            yield error

    def _with_rules(
        self, errors: Iterable[FieldError], context: Context, new: Object, old: Object | None
    ) -> Iterator[FieldError]:
        blocked = False
        for error in errors:
            blocked = blocked or error.reason in BLOCKING
            yield error
        rules = None if self._rules is None else self._rules(context.gates.release)
        if rules is None:
            return
        if blocked or self._metadata_blocks(context, new, old):
            yield NOT_CHECKED
            return
        rules.prepare()
        yield from rules.errors(
            new,
            old,
            api_version=self._api_version,
            kind=self._kind,
            warn=context.warn,
            checkpoint=context.checkpoint,
        )

    def _metadata_blocks(self, context: Context, new: Object, old: Object | None) -> bool:
        if meta.is_acceptable(new, old, namespaced=self._namespaced):
            return False
        release = context.gates.release
        found = (
            meta.validate_object_meta(new, release, namespaced=self._namespaced, qualified_finalizers=False)
            if old is None
            else meta.validate_object_meta_update(new, old, release, qualified_finalizers=False)
        )
        return any(error.reason in BLOCKING for error in found)
