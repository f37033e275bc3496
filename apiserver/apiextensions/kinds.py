"""Make kinds of definitions: a `Resource` for each version, served or not.

All share one shape. Each version prunes, defaults and judges objects by its own schema; without a webhook, a conversion is a pruning.
With one, a version gets objects that the webhook has converted (`apiserver.conversion`).
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go`, `pkg/registry/customresource/strategy.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from apiserver.apiextensions.columns import columns
from apiserver.apiextensions.definition import DefinedVersion, Definition, ScalePaths
from apiserver.apiextensions.selectable import fields_of
from apiserver.apimachinery import meta
from apiserver.apimachinery.releases import Release
from apiserver.codecs.objects.adopted import Adopt
from apiserver.kinds.served import rank
from apiserver.schema import machinery
from apiserver.schema.context import Context
from apiserver.schema.custom import ConversionWebhook, Custom, Scale
from apiserver.schema.resource import Conversion, Deprecation, Object, Resource, Subresource
from apiserver.schema.shapes import CUSTOM
from apiserver.schema.structural import below
from apiserver.structural import merging
from apiserver.structural.defaulting import defaulter, defaults_of, filler
from apiserver.structural.embedded import coercer, embedding
from apiserver.structural.judging import Judge
from apiserver.structural.openapi import published
from apiserver.structural.pruning import pruner
from apiserver.structural.rules import compiled
from apiserver.structural.stored import adopter, converter, version_adopter
from kubetext import jsonpath, names
from kubetext.quoting import go_quote
from structuredmerge.types import Type as MergeType

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""The verbs of a custom resource, in the order of discovery documents."""
SCALE, STATUS = "scale", "status"


def resources(definition: Definition) -> tuple[Resource, ...]:
    """Return the kind in each version: the stored one first."""
    storage, readers = definition.storage, _Readers(definition)
    stored = _resource(definition, storage, readers)
    others = [_resource(definition, each, readers, stored) for each in definition.versions if each is not storage]
    return stored, *others


class _Readers:
    """The readers of the stored values of a definition. `adopt` reads by the version that a value names, once all versions are added."""

    def __init__(self, definition: Definition) -> None:
        self._stored = definition.storage.name
        self._adopters: dict[str, Adopt] = {}
        self._converters: dict[str, Callable[[Object], Object]] = {}
        convert = self._convert if definition.webhook is None else None
        self.adopt = version_adopter(self._stored, self._adopters, CUSTOM, convert=convert)

    def add(self, version: str, adopt: Adopt, convert: Callable[[Object], Object]) -> None:
        self._adopters[version], self._converters[version] = adopt, convert

    def _convert(self, obj: Object) -> Object:
        return self._converters[self._stored](obj)


def _resource(
    definition: Definition, version: DefinedVersion, readers: _Readers, stored: Resource | None = None
) -> Resource:
    rules = functools.cache(lambda release: compiled(version.schema, release=release))
    has_rules = any(node.rules for node in below(version.schema))
    scale = None if version.scale is None else _scale(version.scale)
    judge = Judge(
        version.schema,
        api_version=f"{definition.group}/{version.name}",
        kind=definition.kind,
        namespaced=definition.namespaced,
        scale=scale,
        rules=rules if has_rules else None,
    )
    custom = _custom(definition, version, judge, readers, scale=scale, has_rules=has_rules)
    own = {path.removeprefix("."): path for path in version.selectable}
    subresources = []
    if version.status:
        subresources.append(Subresource(name=STATUS, owns=(STATUS,), validate=judge.validate_status))
    if version.scale is not None:
        subresources.append(Subresource(name=SCALE, owns=(), shows=machinery.SCALE_KIND))
    return Resource(
        group=definition.group,
        version=version.name,
        kind=definition.kind,
        plural=definition.plural,
        singular=definition.singular,
        listed=definition.list_kind,
        namespaced=definition.namespaced,
        shape=CUSTOM,
        custom=custom,
        short_names=definition.short_names,
        categories=definition.categories,
        columns=columns(version, f"{definition.group}/{version.name}", definition.kind),
        selectable=own,
        listed_by=tuple(custom.indexed) if custom.webhook is None else (),
        deprecation=_deprecation(definition, version),
        subresources=subresources,
        tracks_generation=True,
        needs_version=True,
        returns_deleted=False,
        rechecks_metadata=False,
        verbs=VERBS,
        validate=judge.validate,
        warnings=_finalizer_warnings,
        stored_as=stored,
        conversion=None
        if stored is None or stored.custom is None or custom.webhook is not None
        else Conversion(stored.custom.convert, custom.convert),
    )


def _deprecation(definition: Definition, version: DefinedVersion) -> Deprecation | None:
    """Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go` (getOrCreateServingInfoFor)."""
    if not version.deprecated:
        return None
    if version.deprecation is not None:
        return Deprecation(since="", text=version.deprecation)
    text = f"{definition.group}/{version.name} {definition.kind} is deprecated"
    newer = [
        other.name
        for other in definition.versions
        if other.served and not other.deprecated and rank(other.name) < rank(version.name)
    ]
    if newer:
        text += f"; use {definition.group}/{min(newer, key=rank)} {definition.kind}"
    return Deprecation(since="", text=text)


def _custom(
    definition: Definition,
    version: DefinedVersion,
    judge: Judge,
    readers: _Readers,
    *,
    scale: Scale | None,
    has_rules: bool,
) -> Custom:
    schema = version.schema
    indexed = {path.removeprefix("."): path for each in definition.versions for path in each.selectable}
    templates = [jsonpath.parse(f"{{{path}}}") for path in indexed.values()]
    webhook = _webhook(definition)
    defaults, embedded = defaults_of(schema), embedding(schema)
    prune, fill, default = pruner(schema), filler(schema, defaults), defaulter(schema, defaults)
    convert = converter(schema, embedded, drops=webhook is None)
    adopt = adopter(schema, CUSTOM, prune=prune, fill=fill, default=default, embedding=embedded)
    readers.add(version.name, adopt, convert)
    prepared = set[Release]()

    def prepare(release: Release) -> None:
        judge.prepare(release)
        for found in (defaults, embedded):
            _ = schema in found  # looks for them
        prepared.add(release)

    return Custom(
        schema=schema,
        prune=prune,
        fill=fill,
        default=default,
        coerce=coercer(schema, embedded),
        indexed=indexed,
        fields=fields_of(templates),
        fields_in=frozenset(template.leading[0] for template in templates),
        published=functools.partial(published, schema),
        has_rules=has_rules,
        prepare=prepare,
        ready=prepared.__contains__,
        adopt=readers.adopt,
        versions=frozenset(each.name for each in definition.versions),
        merge_type=_merge_type(version),
        scale=scale,
        served=version.served,
        webhook=webhook,
        convert=convert,
    )


def _webhook(definition: Definition) -> ConversionWebhook | None:
    found = definition.webhook
    if found is None:
        return None
    return ConversionWebhook(
        definition=definition.name,
        client_config=found.get("clientConfig") or {},
        review_versions=tuple(found.get("conversionReviewVersions") or ()),
    )


def _merge_type(version: DefinedVersion) -> Callable[[MergeType], MergeType]:
    """Return a function that makes the type when it is first asked for."""
    return functools.lru_cache(maxsize=1)(functools.partial(merging.type_of, version.schema))


def _scale(paths: ScalePaths) -> Scale:
    return Scale(
        spec_replicas=_way(paths.spec_replicas),
        status_replicas=_way(paths.status_replicas),
        selector=_way(paths.selector),
    )


def _way(path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix(".").split(".")) if path else ()


def _finalizer_warnings(context: Context, new: Object, old: Object | None) -> Iterable[str]:
    """Yield the warnings about the names of added finalizers, sorted."""
    before = () if old is None else meta.metadata(old).get("finalizers") or ()
    for name in sorted({*(meta.metadata(new).get("finalizers") or ())}.difference(before)):
        yield from (f"metadata.finalizers: {go_quote(name)}: {wrong}" for wrong in names.label_key(name))
        if "/" not in name and name not in meta.STANDARD_FINALIZERS:
            better = "including a path (/) " if "." in name else ""
            wanted = f"prefer a domain-qualified finalizer name {better}to avoid accidental conflicts"
            yield f"metadata.finalizers: {go_quote(name)}: {wanted} with other finalizer writers"
