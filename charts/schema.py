"""The JSON schema of the chart's values, by which Helm refuses values that are misspelled or of another type.

Types and descriptions come from values.yaml: the type is that of the default, the description the comment above the key.
`SHAPES` has the schemas that a default does not tell. The schema is of draft 7, which all versions of Helm 3 read.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_BY_NAME: Schema = {"type": "object", "additionalProperties": _TEXT}
_OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
_AMOUNT: Schema = {"type": ["string", "number"]}
_AMOUNTS: Schema = {"type": "object", "additionalProperties": _AMOUNT}
_CLASS: Schema = {"type": ["string", "null"]}


def _members(**members: Schema) -> Schema:
    """The schema of an object that has no other members."""
    return {"type": "object", "properties": members, "additionalProperties": False}


_RESOURCES = _members(limits=_AMOUNTS, requests=_AMOUNTS, claims=_OBJECTS)
_POD: dict[str, Schema] = {
    "annotations": _BY_NAME,
    "podAnnotations": _BY_NAME,
    "nodeSelector": _BY_NAME,
    "tolerations": {
        "type": "array",
        "items": _members(
            key=_TEXT,
            operator=_TEXT,
            value=_TEXT,
            effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
            tolerationSeconds={"type": "integer"},
        ),
    },
    "affinity": _members(
        nodeAffinity={"type": "object"}, podAffinity={"type": "object"}, podAntiAffinity={"type": "object"}
    ),
    "topologySpreadConstraints": {
        "type": "array",
        "items": {"type": "object", "required": ["maxSkew", "topologyKey", "whenUnsatisfiable"]},
    },
    "resources": _RESOURCES,
}

SHAPES: dict[str, Schema] = {
    **_POD,
    **{f"store.{name}": shape for name, shape in _POD.items()},
    "imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "imagePullSecrets": {"type": "array", "items": {**_members(name=_TEXT), "required": ["name"]}},
    "replicas": {"type": "integer", "minimum": 0},
    "extraArgs": _TEXTS,
    "extraEnv": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    "extraEgress": _OBJECTS,
    "kinds": _TEXTS,
    "crds": _BY_NAME,
    "store.port": {"type": "integer", "minimum": 1, "maximum": 65535},
    "store.nodes": {"enum": [1, 3]},
    "store.storageClassName": _CLASS,
    "store.size": _AMOUNT,
    "backup.size": _AMOUNT,
    "backup.storageClassName": _CLASS,
    "backup.resources": _RESOURCES,
    "serviceMonitor.labels": _BY_NAME,
    "prometheusRule.labels": _BY_NAME,
    "dashboards.labels": _BY_NAME,
}
"""Schemas of values by their paths."""

_TYPES: dict[type, str] = {bool: "boolean", int: "integer", str: "string"}
_KEY = re.compile(r"^( *)(\w+):")


def schema(values: str) -> Schema:
    """The schema of a values.yaml with this text."""
    found = _schema((), yaml.safe_load(values), _descriptions(values))
    # Helm gives each chart that is a part of another one the parent's `global`.
    found["properties"]["global"] = {"type": "object"}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart sluice", **found}


def _schema(path: tuple[str, ...], value: object, descriptions: dict[tuple[str, ...], str]) -> Schema:
    described = {"description": descriptions[path]} if path in descriptions else {}
    if (shape := SHAPES.get(".".join(path))) is not None:
        return {**described, **shape}
    if isinstance(value, dict) and value:
        members = {str(key): _schema((*path, key), item, descriptions) for key, item in value.items()}
        return {**described, **_members(**members)}
    return {**described, "type": _TYPES[type(value)]}


def _descriptions(values: str) -> dict[tuple[str, ...], str]:
    """The comments that stand above keys, by the paths of the keys."""
    found: dict[tuple[str, ...], str] = {}
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in values.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip(" #"))
            continue
        if key := _KEY.match(line):
            path = [(indent, name) for indent, name in path if indent < len(key[1])] + [(len(key[1]), key[2])]
            if comment:
                found[tuple(name for _, name in path)] = " ".join(comment)
        comment = []
    return found
