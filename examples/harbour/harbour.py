"""Ships in a harbour."""

from sluice.kinds import Field, Integer, Presence, Resource, String, Struct, columns, shapes

SPEC = Struct(
    name="ShipSpec",
    doc="Desired state of a ship.",
    fields=[
        Field(name="captain", number=1, type=String(max_bytes=63), required=True, doc="Name of the captain."),
        Field(name="crew", number=2, type=Integer(bits=32), default=1, doc="Number of people on board."),
    ],
)

SHIP = Struct(
    name="Ship",
    doc="A ship in the harbour.",
    fields=[
        Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="Standard metadata."),
        Field(name="spec", number=2, type=SPEC, presence=Presence.ALWAYS, doc="Desired state of the ship."),
    ],
)

RESOURCES = [
    Resource(
        group="harbour.example.com",
        kind="Ship",
        plural="ships",
        singular="ship",
        short_names=("sh",),
        namespaced=True,
        shape=SHIP,
        columns=(columns.NAME, columns.AGE),
        selectable={"spec.captain": "spec.captain"},
    )
]
