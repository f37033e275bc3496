"""A package of kinds as one is installed: ships in two versions, and ports in a group of their own."""

from __future__ import annotations

from apiserver.schema import columns, shapes
from apiserver.schema.context import Context
from apiserver.schema.resource import Column, Conversion, Object, Resource, Subresource, Version
from apiserver.schema.types import Field, Integer, Presence, String, Struct

GROUP = "fleet.example.com"
FLAG = "fleet.example.com/flag"
METADATA = Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="Standard metadata.")


def _shape(name: str, spec: Struct, *more: Field) -> Struct:
    member = Field(name="spec", number=2, type=spec, presence=Presence.ALWAYS, doc="What is wanted.")
    return Struct(name=name, doc=f"A {name}.", fields=[METADATA, member, *more])


SHIP = _shape(
    "Ship",
    Struct(
        name="ShipSpec",
        doc="A ship.",
        fields=[
            Field(name="captain", number=1, type=String(max_bytes=20), required=True, doc="Who commands."),
            Field(name="crew", number=2, type=Integer(bits=32), default=1, doc="How many sail."),
            Field(name="flag", number=3, type=String(), doc="Whose it is."),
        ],
    ),
    Field(
        name="status",
        number=3,
        type=Struct(
            name="ShipStatus",
            doc="Where it is.",
            fields=[Field(name="berth", number=1, type=String(), doc="Where it lies.")],
        ),
        doc="What was seen.",
    ),
)
BETA = _shape(
    "Ship",
    Struct(
        name="ShipSpec",
        doc="A ship, as it was said before.",
        fields=[
            Field(name="master", number=1, type=String(), required=True, doc="Who commands."),
            Field(
                name="hands", number=2, type=Integer(bits=32), default=2, doc="How many sail, the master not counted."
            ),
        ],
    ),
    Field(
        name="status",
        number=3,
        type=Struct(
            name="ShipStatus",
            doc="Where it is.",
            fields=[Field(name="place", number=1, type=String(), doc="Where it lies.")],
        ),
        doc="What was seen.",
    ),
)


def from_beta(obj: Object) -> Object:
    spec, annotations = obj.get("spec") or {}, obj["metadata"].get("annotations") or {}
    obj["spec"] = {"captain": spec.get("master", ""), "crew": spec.get("hands", 0) + 1}
    if FLAG in annotations:
        obj["spec"]["flag"] = annotations.pop(FLAG)
    if "status" in obj:
        obj["status"] = {"berth": obj["status"].get("place", "")}
    return obj


def to_beta(obj: Object) -> Object:
    spec = obj.get("spec") or {}
    obj["spec"] = {"master": spec.get("captain", ""), "hands": spec.get("crew", 1) - 1}
    if "flag" in spec:
        obj["metadata"].setdefault("annotations", {})[FLAG] = spec["flag"]
    if "status" in obj:
        obj["status"] = {"place": obj["status"].get("berth", "")}
    return obj


def _warn(context: Context, new: Object, old: Object | None) -> list[str]:
    return [] if new["spec"].get("crew", 0) < 100 else [f"spec.crew: {new['spec']['crew']} is many"]


RESOURCES = (
    Resource(
        group=GROUP,
        kind="Ship",
        plural="ships",
        singular="ship",
        namespaced=True,
        shape=SHIP,
        columns=(
            columns.NAME,
            Column(name="Captain", cell=lambda obj, now: obj["spec"].get("captain", ""), reads=["spec.captain"]),
        ),
        selectable={"spec.captain": "spec.captain"},
        subresources=(Subresource(name="status", owns=("status",)),),
        has_status=True,
        tracks_generation=True,
        warnings=_warn,
        versions=(
            Version(
                name="v1beta1",
                shape=BETA,
                conversion=Conversion(to_storage=from_beta, from_storage=to_beta),
                columns=(columns.NAME, Column(name="Master", cell=lambda obj, now: obj["spec"].get("master", ""))),
            ),
        ),
    ),
    Resource(
        group="ports.example.com",
        kind="Port",
        plural="ports",
        singular="port",
        namespaced=False,
        version="v1alpha1",
        shape=Struct(name="Port", doc="A port.", fields=[METADATA]),
    ),
)
