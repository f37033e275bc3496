"""The kind Namespace of the core group.

Upstream: kubernetes/api `core/v1/types.go`, kubernetes/kubernetes `pkg/registry/core/namespace/strategy.go`,
`pkg/apis/core/validation/validation.go` ValidateNamespace, `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from dataclasses import replace

from apiserver.cluster.namespaces import NAME_LABEL
from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Column, Object, Resource, Subresource
from apiserver.schema.types import Field, ListOf, ListType, Presence, String, Struct
from kubetext import names

FINALIZER = "kubernetes"
"""Stands in `spec.finalizers` until the namespace is empty."""
ACTIVE, TERMINATING = "Active", "Terminating"

_SPEC = Struct(
    name="NamespaceSpec",
    model=shapes.CORE,
    doc="What has to happen before a namespace is removed.",
    fields=(
        Field(
            name="finalizers",
            number=1,
            type=ListOf(String(go="v1.FinalizerName")),
            doc="What still has to be done before a deleted namespace is removed. Each entry is taken away by whoever did it.",
        ),
    ),
)
_STATUS = Struct(
    name="NamespaceStatus",
    model=shapes.CORE,
    doc="Where a namespace stands in its life.",
    fields=(
        Field(
            name="phase",
            number=1,
            type=String(go="v1.NamespacePhase", known=(ACTIVE, TERMINATING)),
            doc="Active, or Terminating once the namespace is being deleted. Nothing can be created in it then.",
        ),
        Field(
            name="conditions",
            number=2,
            type=ListOf(
                replace(shapes.CONDITION, name="NamespaceCondition", model=shapes.CORE), ListType.MAP, keys=("type",)
            ),
            doc="What is known about the deletion of the namespace.",
            patch_strategy="merge",
            patch_merge_key="type",
        ),
    ),
)
NAMESPACE = Struct(
    name="Namespace",
    model=shapes.CORE,
    doc="A scope for names. Objects of namespaced kinds live in one.",
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
            type=_SPEC,
            presence=Presence.ALWAYS,
            doc="What happens when the namespace is deleted.",
        ),
        Field(
            name="status",
            number=3,
            type=_STATUS,
            presence=Presence.ALWAYS,
            doc="Where the namespace stands in its life. Written by the system.",
        ),
    ),
)


def _prepare(_: Context, new: Object, old: Object | None) -> None:
    """Label every namespace with its name. Make a new one active, to be emptied before it is removed."""
    metadata = new["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}
    if old is None:
        given = (new.get("spec") or {}).get("finalizers") or []
        new["spec"] = {"finalizers": given if FINALIZER in given else [*given, FINALIZER]}
        new["status"] = {"phase": ACTIVE}


def _name_check(name: str, prefix: bool) -> list[str]:  # noqa: FBT001 - the signature of a kind's name rule
    return names.dns_label(name.removesuffix("-") + "a" if prefix else name)


def finalizers(obj: Object) -> list[str]:
    return (obj.get("spec") or {}).get("finalizers") or []


def _end(obj: Object) -> None:
    obj["status"] = {**(obj.get("status") or {}), "phase": TERMINATING}


RESOURCE = Resource(
    kind="Namespace",
    plural="namespaces",
    singular="namespace",
    namespaced=False,
    shape=NAMESPACE,
    short_names=("ns",),
    columns=(
        columns.NAME,
        Column(
            name="Status",
            cell=lambda obj, now: (obj.get("status") or {}).get("phase", ""),
            reads=["status.phase"],
            description="The status of the namespace",
        ),
        columns.AGE,
    ),
    selectable={"status.phase": "status.phase", "name": "metadata.name"},
    own_field_labels=True,
    subresources=(
        Subresource(name="finalize", owns=("spec",), verbs=("update",), initial=True),
        Subresource(name="status", owns=("status",)),
    ),
    has_status=True,
    name_check=_name_check,
    prepare=_prepare,
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    lingers=lambda obj: bool(finalizers(obj)),
    ending=_end,
)
