"""Parts that definitions share while they are loaded. They repeat themselves and each other, so most schemas are equal to one before.

Equal text is read as one value, and so is its result: the decoded schema, its node, the verdict of the checks.
Nothing may change these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apiserver.codecs.yaml.block_yaml import Blocks
from apiserver.schema.structural import Structural


class Schema(NamedTuple):
    """A decoded schema without unknown members. `value` is its JSON. `empties`: it has empty lists or maps. `levels`: how deep it is."""

    value: dict[str, Any]
    decoded: dict[str, Any]
    empties: bool
    levels: int


class Facts(NamedTuple):
    """The facts that warnings and checks look for in a schema and everything below it.

    `formats` are unknown ones. `sets` are the types of items of sets that are lists or objects. `defaults`: there are some besides null.
    """

    formats: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    defaults: bool = False


@dataclass(slots=True, eq=False)
class Sharing:
    """The findings of one load, by the identity of values, all of which it keeps. Drop it after the load.

    * `schemas` are decoded schemas, by their JSON. `compacted` are schemas with their compact form.
    * `nodes` are structural schemas, by their source.
    * `facts` are those of a schema and everything below it.
    * `convertible` are schemas that have a structural form.
    * `sound` are decoded schemas without errors, wherever they stand; `structural` those without errors of `structural_checks`.
    """

    blocks: Blocks = field(default_factory=Blocks)
    schemas: dict[int, Schema] = field(default_factory=dict)
    compacted: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    nodes: dict[int, Structural] = field(default_factory=dict)
    facts: dict[int, Facts] = field(default_factory=dict)
    convertible: set[int] = field(default_factory=set)
    sound: set[int] = field(default_factory=set)
    structural: set[int] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)
    """Values that are kept, because another one could get their identity."""
