"""ResourceClaimTemplate: the template of the claims that are made for the pods of a workload.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`,
`pkg/registry/resource/resourceclaimtemplate/strategy.go`, `pkg/apis/core/validation/validation.go` ValidateTemplateObjectMeta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apiserver.apimachinery import fieldpath, meta
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.apimachinery.releases import V1_37, at, since
from apiserver.resources import _device_requests, _features, _v1beta1, _v1beta2
from apiserver.resources._rules import _declarations, _immutability
from apiserver.resources._rules._formats import MODEL
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import ACCESS, UPDATE, Field, Presence, Struct, is_pointer
from kubetext import names

INHERITED = ("labels", "annotations")
"""The metadata that claims inherit from their template."""


def _claim_metadata(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    return (error.at(path) for error in _metadata_errors(value, path))


def _metadata_errors(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    yield from _annotations(value.get("annotations") or {}, path.child("annotations"))
    yield from meta.label_errors(value.get("labels"), path.child("labels"))
    for field in shapes.OBJECT_META.fields:
        unset = (None,) if is_pointer(field) else (None, "", 0)
        if field.name not in INHERITED and value.get(field.name) not in unset:
            # Upstream takes the name of the Go field and makes its first letter small.
            shown = {"uid": "uID"}.get(field.name, field.name)
            yield fieldpath.forbidden(path.child(shown), "cannot be set")


def _annotations(value: Mapping[str, str], path: Path) -> Iterator[FieldError]:
    for key in value:
        for text in names.label_key(names.lower(key)):
            yield fieldpath.invalid(path, key, text)
    if sum(names.byte_length(k) + names.byte_length(v) for k, v in value.items()) > meta.ANNOTATIONS_BYTES:
        yield fieldpath.too_long(path, meta.ANNOTATIONS_BYTES)


TEMPLATE_SPEC = Struct(
    name="ResourceClaimTemplateSpec",
    model=MODEL,
    doc="The metadata and the specification of the claims.",
    fields=(
        Field(
            name="metadata",
            number=1,
            type=shapes.OBJECT_META,
            presence=Presence.ALWAYS,
            check=_claim_metadata,
            doc="Labels and annotations that each claim gets. No other metadata may be given.",
        ),
        Field(
            name="spec",
            number=2,
            type=_device_requests.RESOURCE_CLAIM_SPEC,
            presence=Presence.ALWAYS,
            expected=since(V1_37, False, what="OpenAPI does not list it as required"),  # noqa: FBT003 - the value
            doc="The specification that each claim gets, as it stands here. The members are those of a ResourceClaim's spec.",
        ),
    ),
)

TEMPLATE = Struct(
    name="ResourceClaimTemplate",
    model=MODEL,
    doc="The mould from which the control plane makes a ResourceClaim of its own for each pod that refers to the template. "
    "Such a claim goes when its pod goes.",
    fields=(
        Field(
            name="metadata",
            number=1,
            type=shapes.OBJECT_META,
            presence=Presence.ALWAYS,
            doc="The object's standard metadata.",
        ),
        Field(
            name="spec",
            number=2,
            type=TEMPLATE_SPEC,
            presence=Presence.ALWAYS,
            expected=since(V1_37, False, what="OpenAPI does not list it as required"),  # noqa: FBT003 - the value
            doc="The claims to be made. Cannot be changed: make another template instead.",
        ),
    ),
    judged=(ACCESS, "metadata", "spec", UPDATE),
)


def _claim_spec(obj: Object) -> Object:
    spec: Object = obj["spec"]["spec"]
    return spec


FEATURES = _device_requests.features(_claim_spec)


def _validate(context: Context, new: Object, old: Object | None) -> Iterable[FieldError]:
    if old is None:
        return _device_requests.admin_access(context, _claim_spec(new), meta.namespace(new))
    shape = at(context.gates.release, TEMPLATE_SPEC)
    found = _immutability.immutable(shape, new["spec"], old["spec"], ROOT.child("spec"))
    return [error.at(ROOT.child(UPDATE)) for error in found]


RESOURCE = Resource(
    kind="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    singular="resourceclaimtemplate",
    namespaced=True,
    shape=TEMPLATE,
    columns=(columns.NAME, columns.AGE),
    name_check=names.subdomain_name,
    gates=_features.gates_of(FEATURES, *_features.SELECTOR_GATES),
    declarations=since(V1_37, _declarations.DECLARATIONS),
    prepare=_features.dropping(FEATURES),
    validate=_validate,
    expressions=lambda obj: _device_requests.expressions(_claim_spec(obj)),
    versions=(_v1beta2.version(TEMPLATE), _v1beta1.version(TEMPLATE, _v1beta1.TEMPLATES)),
)
