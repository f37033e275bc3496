"""A made-up kind that uses the whole vocabulary of shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.schema import shapes
from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    ListType,
    MapOf,
    Presence,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
)


def no_x(value: str, path: Path) -> Iterator[FieldError]:
    if "x" in value:
        yield fieldpath.invalid(path, value, "must not contain x")


def positive(value: int, path: Path) -> Iterator[FieldError]:
    if value <= 0:
        yield fieldpath.invalid(path, value, "must be greater than zero")


def true_only(value: bool, path: Path) -> Iterator[FieldError]:
    if not value:
        yield fieldpath.invalid(path, value, "must be true")


def no_shared_name(value: dict[str, Any], path: Path) -> Iterator[FieldError]:
    if value.get("mode") == "Solo" and len(value.get("parts", ())) > 1:
        yield fieldpath.forbidden(path.child("parts"), "only one part in mode Solo")


def grams_at_most_nine(value: dict[str, Any], path: Path) -> Iterator[FieldError]:
    if value.get("grams", 0) > 9:
        yield fieldpath.invalid(path, value.get("grams"), "too heavy")


SETTINGS = Struct(
    name="Settings",
    fields=[
        Field(name="raw", number=1, type=RawJSON(), presence=Presence.ALWAYS, required=True),
        Field(name="grams", number=2, type=Integer(bits=32)),
    ],
    check=grams_at_most_nine,
)
PART = Struct(
    name="Part",
    fields=[
        Field(name="name", number=1, type=String(check=no_x), presence=Presence.ALWAYS),
        Field(name="size", number=2, type=Quantity(), presence=Presence.ALWAYS),
        Field(name="least", number=3, type=Quantity(), presence=Presence.NULLABLE),
        Field(name="factor", number=4, type=Quantity(), presence=Presence.POINTER, default="1"),
        Field(name="since", number=5, type=Time(), presence=Presence.POINTER, default=lambda parent, now: now),
        Field(name="count", number=6, type=Integer(check=positive)),
        Field(name="tags", number=7, type=ListOf(String(), ListType.SET, max_items=3, unique=lambda x: x)),
    ],
)
LIMITS = MapOf(
    Struct(
        name="Limit", fields=[Field(name="top", number=1, type=Quantity(), presence=Presence.ALWAYS, required=True)]
    ),
    max_items=2,
    key_check=no_x,
    go_key="v1.LimitName",
    shown_key_bytes=16,
)
SPEC = Struct(
    name="GadgetSpec",
    fields=[
        Field(
            name="owner", number=1, type=String(max_bytes=8), presence=Presence.ALWAYS, required=True, immutable=True
        ),
        Field(name="node", number=2, type=String(check=no_x), presence=Presence.POINTER, immutable=True),
        Field(
            name="mode",
            number=3,
            type=String(go="v1.GadgetMode", enum=("Solo", "Shared")),
            default=lambda parent, now: "Solo" if parent.get("node") else "Shared",
        ),
        Field(
            name="parts", number=4, type=ListOf(PART, max_items=3, unique=lambda x: x.get("name", "")), immutable=True
        ),
        Field(name="limits", number=5, type=LIMITS),
        Field(name="solid", number=6, type=Boolean(check=true_only), presence=Presence.POINTER),
        Field(name="pool", number=7, type=Struct(name="Pool", fields=[
            Field(name="rank", number=1, type=Integer(check=positive), presence=Presence.ALWAYS, immutable=True),
        ]), presence=Presence.ALWAYS),
        Field(name="settings", number=8, type=SETTINGS, inline=True, presence=Presence.ALWAYS),
        Field(name="labels", number=9, type=MapOf(String())),
        Field(name="extra", number=10, type=ListOf(String()), presence=Presence.ALWAYS, default=["first"]),
    ],
    check=no_shared_name,
)  # fmt: skip
STATUS = Struct(
    name="GadgetStatus",
    fields=[
        Field(name="conditions", number=1, type=ListOf(shapes.CONDITION, ListType.MAP, keys=("type",))),
        Field(name="seen", number=2, type=Time(micro=True), presence=Presence.POINTER),
    ],
)
GADGET = Struct(
    name="Gadget",
    fields=[
        Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS),
        Field(name="spec", number=2, type=SPEC, presence=Presence.ALWAYS),
        Field(name="status", number=3, type=STATUS),
    ],
)
