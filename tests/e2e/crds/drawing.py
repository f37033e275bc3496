"""Random values that fit a schema. All of them follow from the seed."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterable, Mapping
from typing import Any

from tests.e2e.crds import patterns

Schema = Mapping[str, Any]
Object = dict[str, Any]
TEXTS = (
    "a",
    "abc",
    "a-b",
    "Zz",
    "10Gi",
    "250m",
    "1",
    "1h30m",
    "10.0.0.1",
    "10.0.0.0/24",
    "example.com",
    "example.com/a",
    "https://example.com/a?b=c",
    "2024-05-06T07:08:09Z",
    "50%",
    "v1.2.3",
    "arn:aws:iam::123456789012:role/a",
    "*",
    "",
)
FORMATS = {
    "date-time": ("2024-05-06T07:08:09Z", "2024-05-06T07:08:09.123456+02:00"),
    "datetime": ("2024-05-06T07:08:09Z",),
    "date": ("2024-05-06",),
    "duration": ("1h30m", "10s", "0s"),
    "byte": ("YWJj", "YQ=="),
    "uuid": ("6ba7b810-9dad-11d1-80b4-00c04fd430c8",),
    "uuid4": ("f47ac10b-58cc-4372-a567-0e02b2c3d479",),
    "ipv4": ("10.0.0.1", "192.168.1.255"),
    "ipv6": ("::1", "2001:db8::1"),
    "cidr": ("10.0.0.0/24", "2001:db8::/32"),
    "ip": ("10.0.0.1",),
    "email": ("a@example.com",),
    "hostname": ("example.com", "host"),
    "uri": ("https://example.com/a", "/a/b"),
    "mac": ("00:1b:44:11:3a:b7",),
    "password": ("secret",),
}
_FEWEST, _DEEPEST = 0.05, 12


class Drawer:
    """Draws values. `likely` is the chance of an optional member near the root; it falls with the depth."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def value(self, schema: Schema, likely: float = 0.5, depth: int = 0) -> Any:
        """A value that the types, bounds, formats and patterns of the schema allow. Rules are not looked at."""
        schema = self._one_of(schema)
        if enum := schema.get("enum"):
            return self.draw.choice(enum)
        if schema.get("nullable") and self.draw.random() < 0.05:
            return None
        if "default" in schema and self.draw.random() < 0.3:
            return json.loads(json.dumps(schema["default"]))
        if schema.get("x-kubernetes-int-or-string"):
            return self._integer(schema) if self.draw.random() < 0.5 else self._text(schema)
        match schema.get("type"):
            case "object":
                return self._object(schema, likely, depth)
            case "array":
                return self._array(schema, likely, depth)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self.draw.random() < 0.5
            case "string":
                return self._text(schema)
        return {"kept": self.draw.randint(0, 9)}

    def _one_of(self, schema: Schema) -> Schema:
        """Choose one alternative of oneOf and anyOf, and all of allOf, and add what they say."""
        for junctor in ("oneOf", "anyOf", "allOf"):
            branches = schema.get(junctor)
            if not branches or schema.get("x-kubernetes-int-or-string"):
                continue
            chosen = branches if junctor == "allOf" else [self.draw.choice(branches)]
            merged = {name: member for name, member in schema.items() if name != junctor}
            if junctor == "oneOf":
                others = {name for branch in branches for name in branch.get("required", ())}
                members = schema.get("properties", {})
                kept = {name for branch in chosen for name in branch.get("required", ())}
                merged["properties"] = {name: members[name] for name in members if name in kept or name not in others}
            for branch in chosen:
                merged = _both(merged, branch)
            schema = merged
        return schema

    def _object(self, schema: Schema, likely: float, depth: int) -> Object:
        required = set(schema.get("required", ()))
        members = schema.get("properties", {})
        optional = [name for name in sorted(members) if name not in required]
        chance = likely if depth < 3 else likely / (depth - 1)
        wanted = {name for name in optional if self.draw.random() < chance} if depth < _DEEPEST else set()
        if len(wanted) > 8:
            wanted = set(self.draw.sample(sorted(wanted), 8))
        made = {
            name: self.value(members[name], likely, depth + 1) if name in members else {}
            for name in sorted(required | wanted)
        }
        if isinstance(more := schema.get("additionalProperties"), dict):
            least = schema.get("minProperties", 0)
            count = self.draw.randint(least, least + 2) if depth < _DEEPEST else least
            made |= {f"k{number}": self.value(more, likely, depth + 1) for number in range(count)}
        elif (lacking := schema.get("minProperties", 0) - len(made)) > 0:
            left = [name for name in optional if name not in made]
            for name in self.draw.sample(left, min(lacking, len(left))):
                made[name] = self.value(members[name], likely, depth + 1)
        if (most := schema.get("maxProperties")) is not None:
            for name in [name for name in made if name not in required][: max(0, len(made) - most)]:
                del made[name]
        if schema.get("x-kubernetes-preserve-unknown-fields") and self.draw.random() < 0.5:
            made |= {"kept": {"n": self.draw.randint(0, 9)}}
        if schema.get("x-kubernetes-embedded-resource"):
            made |= {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "embedded"}}
        return made

    def _array(self, schema: Schema, likely: float, depth: int) -> list[Any]:
        least, most = schema.get("minItems", 0), schema.get("maxItems", 1000)
        count = min(self.draw.randint(least, least + 2), most) if depth < _DEEPEST else least
        items = [self.value(schema.get("items", {}), likely, depth + 1) for _ in range(count)]
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            keys = schema.get("x-kubernetes-list-map-keys", ())
            items = list({_key(item, keys, schema): item for item in items}.values())
        return items

    def _integer(self, schema: Schema) -> int:
        low, high = schema.get("minimum"), schema.get("maximum")
        low = (0 if high is None or high >= 0 else int(high) - 100) if low is None else -int(-low // 1)
        high = low + 100 if high is None else int(high // 1)
        low += bool(schema.get("exclusiveMinimum"))
        high -= bool(schema.get("exclusiveMaximum"))
        number = self.draw.choice([low, high, self.draw.randint(low, max(low, high))])
        if step := int(schema.get("multipleOf", 0)):
            number -= number % step
        return number

    def _number(self, schema: Schema) -> float:
        low = schema.get("minimum", 0)
        high = schema.get("maximum", low + 100)
        choices: list[float] = [low, high, round(self.draw.uniform(low, high), 2), (low + high) // 2]
        return self.draw.choice(choices)

    def _text(self, schema: Schema) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength", 1 << 20)
        pattern = schema.get("pattern")
        pool: Iterable[str] = FORMATS.get(schema.get("format", ""), TEXTS)
        fitting = [
            text for text in pool if least <= len(text) <= most and not (pattern and not patterns.fits(pattern, text))
        ]
        if pattern and (len(fitting) < 3 or self.draw.random() < 0.7):
            for _ in range(10):
                text = patterns.matching(pattern, self.draw)
                if text is not None and least <= len(text) <= most:
                    return text
        if fitting and (self.draw.random() < 0.7 or schema.get("format") in FORMATS):
            return self.draw.choice(fitting)
        length = max(least, min(most, self.draw.randint(1, 8)))
        return "".join(self.draw.choices(string.ascii_lowercase, k=length))


def _key(item: Any, keys: Iterable[str], schema: Schema) -> str:
    if isinstance(item, dict) and keys:
        members = schema.get("items", {}).get("properties", {})
        item = [item.get(name, members.get(name, {}).get("default")) for name in keys]
    return json.dumps(item, sort_keys=True)


def _both(one: Schema, other: Schema) -> dict[str, Any]:
    """A schema that says what both say; of two bounds, the other's."""
    made = dict(one)
    for name, value in other.items():
        match name:
            case "required":
                made[name] = [*made.get(name, ()), *value]
            case "properties":
                members = dict(made.get(name, {}))
                for member, schema in value.items():
                    members[member] = _both(members.get(member, {}), schema)
                made[name] = members
            case "not":
                pass
            case _:
                made[name] = value
    return made
