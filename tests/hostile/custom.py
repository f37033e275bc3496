"""Hostile requests for custom resources: kinds whose schemas are hard on the server, and objects drawn from those schemas.

`serving` serves the definitions with a webhook that converts one of the kinds, and sometimes answers badly. `DEFINITION` is the family of
definition files that change while the server runs. Their author is an administrator, whose tools may still write anything.
"""

from __future__ import annotations

import contextlib
import copy
import json
import pathlib
import string
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.fixtures.conversion_hook import Convert, Hook, Object, Refusal, answered, converted
from tests.hostile.forms import ACCEPTS, INITIAL, JSON, PATCHES, PROTOBUF, STANDING, YAML, Hostile, named

if TYPE_CHECKING:
    from tests.hostile.generator import Generator

GROUP = "custom.hostile.example.com"
FOLLOWED = "followed.hostile.example.com"
"""The group of the definitions that change while the server runs."""
DEFINITION = "definition"
LEVELS, BRANCHES, VALUES = 40, 60, 2000
LARGEST_FILE = 1 << 20
"""Bytes of the largest definition file, as in a ConfigMap."""

Schema = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _map(values: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": values, **more}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _text(**more: Any) -> Schema:
    return {"type": "string", **more}


def _rule(text: str, **more: Any) -> Schema:
    return {"rule": text, "message": "no", **more}


def _deep() -> Schema:
    """Objects, lists and maps inside of each other, with a default and a pattern at the bottom."""
    schema = _object(end=_text(pattern="^(x+x+)+y$", default="xxy"), n={"type": "integer", "default": 1})
    for level in range(LEVELS):
        schema = (_object(a=schema, b=_text(default="b")), _list(schema), _map(schema))[level % 3]
    return schema


def _patterns() -> Schema:
    """Patterns that engines with backtracking never finish, and all formats."""
    slow = (
        "^(a+)+$",
        "^(a|aa)+$",
        "^(.*)*x$",
        "^([a-z]{1,20}){1,20}$",
        r"^(\p{L}|\d|_)*!$",
        "(?i)^(ab?c?)*z$",
        "a{900}",
    )
    formats = (
        *("date-time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uri", "uuid", "byte"),
        *("password", "creditcard", "isbn", "ssn", "hexcolor", "rgbcolor", "bsonobjectid"),
    )
    return _object(
        **{f"p{at}": _text(pattern=pattern) for at, pattern in enumerate(slow)},
        **{f"f{at}": _text(format=name) for at, name in enumerate(formats)},
        every=_list(_text(pattern="^(a+)+$")),
        by=_map(_text(pattern="^(a|a)*$", maxLength=5000)),
        all=_text(allOf=[{"pattern": pattern} for pattern in slow]),
        number={"type": "number", "multipleOf": 0.01, "minimum": -1, "maximum": 1e9},
        whole={"type": "integer", "format": "int64", "multipleOf": 7},
    )


def _rules() -> Schema:
    """Rules near the greatest cost of an expression, about values now and before."""
    words = _list(_text(maxLength=100), maxItems=400, **{"x-kubernetes-list-type": "atomic"})
    words["x-kubernetes-validations"] = [
        _rule("self.all(a, self.exists(b, b == a))"),
        _rule(
            "self.map(a, a.lowerAscii()).filter(a, a.contains('zz')).size() < 100", messageExpression="self.join(',')"
        ),
    ]
    pairs = _map(_text(maxLength=200), maxProperties=300)
    pairs["x-kubernetes-validations"] = [
        _rule("self.all(k, k.matches('^[a-z]+$') || self[k].find('(a+)+') != '')", reason="FieldValueForbidden"),
        _rule("oldSelf.all(k, k in self)"),
    ]
    parts = _list(
        _object(
            name=_text(maxLength=50),
            port={"x-kubernetes-int-or-string": True},
            quantity=_text(maxLength=50),
            when=_text(format="date-time"),
        )
        | {"required": ["name"]},
        maxItems=100,
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    parts["items"]["x-kubernetes-validations"] = [
        _rule("!has(self.quantity) || isQuantity(self.quantity)", fieldPath=".quantity"),
        _rule("!has(self.port) || type(self.port) == int || self.port.size() < 50"),
        _rule("!oldSelf.hasValue() || self.name == oldSelf.value().name", optionalOldSelf=True),
        _rule(
            "!has(self.when) || self.when > timestamp('2000-01-01T00:00:00Z')", messageExpression="string(self.when)"
        ),
    ]
    return _object(words=words, pairs=pairs, parts=parts, free={"x-kubernetes-preserve-unknown-fields": True})


def _union() -> Schema:
    """Unions of many branches, long enumerations, and lists that are sets and maps."""
    branches = [
        {"required": [f"b{at}"], "properties": {f"b{at}": {"pattern": f"^{at}(a+)+$", "minLength": 2}}}
        for at in range(BRANCHES)
    ]
    schema = _object(
        **{f"b{at}": _text() for at in range(BRANCHES)},
        choice=_text(enum=[f"value-{at}" for at in range(VALUES)]),
        shape={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "enum": [{"a": [at, {"b": at}]} for at in range(VALUES)],
        },
        unique=_list(_text(), **{"x-kubernetes-list-type": "set"}),
        numbers=_list({"type": "number"}, **{"x-kubernetes-list-type": "set"}),
        mapped=_list(
            _object(key=_text(default="k"), n={"type": "integer", "default": 0}, more=_map(_list(_text())))
            | {"required": ["key"]},
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key", "n"]},
        ),
        embedded={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        either={
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^a+$",
        },
        nothing=_text(nullable=True, default="x"),
        keep={"x-kubernetes-preserve-unknown-fields": True, "type": "object", "default": {"a": {"b": [1, 2]}}},
        short=_list(_list(_text(minLength=2), maxItems=3), minItems=0, maxItems=100_000),
        few=_map(_map({"type": "boolean"}, maxProperties=2), minProperties=0),
    )
    return schema | {"oneOf": [*branches, {"not": {"anyOf": copy.deepcopy(branches)}}]}


def _table() -> Schema:
    """Values that printer columns, selectable fields and scale read."""
    rows = _list(
        _object(name=_text(), values=_list(_map(_text())), at=_text(format="date-time"), n={"type": "integer"})
    )
    return _object(rows=rows, mode=_text(), replicas={"type": "integer"}, selector=_text(), size={"type": "integer"})


def _lamp() -> Schema:
    return _object(watt={"type": "integer", "default": 3}, names=_list(_text()), more=_map(_text()))


COLUMNS = (
    ("Names", "string", ".spec.rows[*].name"),
    ("Deep", "string", ".spec..name"),
    ("Filtered", "string", '.spec.rows[?(@.name=="a")].values[*].a'),
    ("Last", "string", ".spec.rows[-1:].name"),
    ("When", "date", ".spec.rows[0].at"),
    ("Count", "integer", ".spec.rows[*].n"),
    ("Whole", "string", ".spec"),
    ("Keys", "string", ".metadata.annotations"),
)
SCHEMAS: dict[str, Schema] = {
    "Deep": _deep(),
    "Pattern": _patterns(),
    "Rule": _rules(),
    "Union": _union(),
    "Chart": _table(),
    "Lamp": _lamp(),
}
KINDS = tuple(SCHEMAS)
CONVERTED = "Lamp"
"""The kind that the webhook converts: it is stored in v1, and served in v2, too."""


def _definition(kind: str, spec: Schema, *, group: str = GROUP, conversion: Object | None = None) -> Object:
    schema = _object(spec=spec, status={"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    members: Object = {"served": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    if kind == "Chart":
        members["additionalPrinterColumns"] = [{"name": n, "type": t, "jsonPath": path} for n, t, path in COLUMNS]
        members["selectableFields"] = [{"jsonPath": f".spec.{name}"} for name in ("mode", "size")]
        scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        members["subresources"]["scale"] = scale | {"labelSelectorPath": ".status.selector"}
    versions = ["v1", "v2"] if conversion else ["v1"]
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "conversion": conversion or {"strategy": "None"},
            "versions": [{"name": name, "storage": name == "v1", **members} for name in versions],
        },
    }


def definitions(conversion: Object) -> list[Object]:
    """The definition of each kind. `conversion` is that of the converted one."""
    return [
        _definition(kind, spec, conversion=conversion if kind == CONVERTED else None) for kind, spec in SCHEMAS.items()
    ]


def collection(kind: str, version: str = "v1") -> str:
    return f"/apis/{GROUP}/{version}/namespaces/hostile/{kind.lower()}s"


def standing() -> Iterator[tuple[str, Object]]:
    """Yield the object of each kind that is always there, with the path to create it."""
    for kind in KINDS:
        yield collection(kind), _empty(kind, STANDING)


def _empty(kind: str, name: str, version: str = "v1") -> Object:
    metadata = {"name": name, "namespace": "hostile"}
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, "spec": {}}


# --------------------------------------------------------------------------------------------------------------- conversions


def _convert(obj: Object, target: str) -> Object:
    return obj | {"apiVersion": target}


def _changed(name: str, value: Any) -> Callable[[Object, Convert], Object]:
    def answer(review: Object, convert: Convert) -> Object:
        made = converted(review, convert)
        for obj in made["response"]["convertedObjects"]:
            obj["spec"] = {name: value}
        return made

    return answer


def _broken(code: int, body: bytes) -> Object:
    raise Refusal(code, body)


MANY = 20_000
BAD: tuple[Callable[[Object, Convert], bytes | Object], ...] = (
    lambda review, convert: answered(review, []),
    lambda review, convert: answered(review, [{}] * MANY),
    lambda review, convert: answered(review, [], result={"status": "Failure", "message": "no " * MANY}),
    lambda review, convert: answered(review, [None] * len(review["request"]["objects"])),
    lambda review, convert: b"[" * 1_000_000,
    lambda review, convert: b'{"a":' * 5000 + b"1" + b"}" * 5000,
    lambda review, convert: b" " * (3 << 20) + b"{}",
    lambda review, convert: b"\xff\xfe" * 100_000,
    lambda review, convert: b"x" * (9 << 20),
    lambda review, convert: _broken(500, b"broken " * MANY),
    _changed("names", ["n"] * 100_000),
    _changed("more", {f"k{at}": "v" for at in range(MANY)}),
    _changed("more", {"k": 1}),
    _changed("watt", 10**400),
    _changed("unknown", [[[[{}] * 1000]]]),
)
"""Answers of the webhook; the last ones are accepted, and large."""


def _sometimes_bad(review: Object, convert: Convert) -> bytes | Object:
    """Convert the objects that must be readable always, and draw the answer for others from their names."""
    names = [str(obj.get("metadata", {}).get("name")) for obj in review["request"]["objects"]]
    draw = zlib.crc32(" ".join(names).encode())
    if names == [STANDING] or draw % 3:
        return converted(review, convert)
    return BAD[draw // 3 % len(BAD)](review, convert)


class _Forgetful(list[Any]):
    """A hook keeps what it has seen; a campaign sends gigabytes."""

    def append(self, _: Any) -> None:
        pass


@contextlib.contextmanager
def serving(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder for `--crds` with all definitions, while their webhook answers."""
    files = folder / "definitions"
    files.mkdir()
    with Hook(folder, _convert) as hook:
        hook.answer, hook.seen, hook.requests = _sometimes_bad, _Forgetful(), _Forgetful()
        for found in definitions(hook.conversion()):
            (files / f"{found['spec']['names']['plural']}.json").write_text(json.dumps(found))
        yield files


# -------------------------------------------------------------------------------------------------------------------- requests


class _Drawn:
    """Draws JSON texts that mostly follow a schema, of about so many characters."""

    def __init__(self, generator: Generator) -> None:
        self._of = generator

    def value(self, schema: Schema, length: int) -> str:
        draw = self._of
        if draw.often(0.04):
            return draw.filling(length)
        if draw.often(0.02):
            return "null"
        match schema.get("type"):
            case "object" if "additionalProperties" in schema:
                return self._map(schema["additionalProperties"], length)
            case "object" if schema.get("properties"):
                return self._object(schema["properties"], length)
            case "array":
                return self._list(schema["items"], length)
            case "string":
                return self._text(schema, length)
            case "integer" | "number":
                return draw.one_of([
                    lambda: str(draw.pick_size((0, -1, 7, 1 << 63, (1 << 63) - 1))),
                    lambda: draw.digits(min(length, 5000)) or "0",
                    lambda: "1e" + draw.text(3, string.digits),
                    lambda: "0." + draw.text(min(length, 5000), string.digits),
                ])  # fmt: skip
            case "boolean":
                return draw.pick(("true", "false"))
        return draw.filling(length)

    def _object(self, properties: dict[str, Schema], length: int) -> str:
        draw = self._of
        names = list(properties)
        chosen = names if len(names) < 4 else sorted({draw.pick(names) for _ in range(draw.pick_size((1, 2, 3, 20)))})
        members = [f"{json.dumps(name)}:{self.value(properties[name], length // len(chosen))}" for name in chosen]
        if draw.often(0.1):
            members.append('"unknown":' + draw.filling(length // 4))
        if draw.often(0.05):
            members.append(draw.many(length // 4, '"unknown@":1'))
        return "{" + ",".join(members) + "}"

    def _map(self, values: Schema, length: int) -> str:
        value = self.value(values, min(length, draw) if (draw := self._of.size(max(length, 1))) else 1)
        return "{" + self._of.many(length, f'"k@":{value}') + "}" if len(value) < length else f'{{"k":{value}}}'

    def _list(self, items: Schema, length: int) -> str:
        value = self.value(items, self._of.size(max(length, 1)))
        if len(value) > length // 2:
            return f"[{value}]"
        if value.startswith('"') and self._of.often(0.5):
            value = value[:-1] + '@"'
        elif value.startswith('{"') and self._of.often(0.3):
            value = '{"name":"n@","key":"k@",' + value[1:] if value != "{}" else '{"name":"n@"}'
        return "[" + self._of.many(length, value) + "]"

    def _text(self, schema: Schema, length: int) -> str:
        draw = self._of
        if "enum" in schema and draw.often(0.5):
            return json.dumps(draw.pick(schema["enum"]))
        if "format" in schema:
            near = (
                *(
                    "2020-01-01T00:00:00Z",
                    "1.2.3.4",
                    "::ffff:1.2.3.4",
                    "a@b.c",
                    "a.b.c",
                    "http://x/",
                    "1h",
                    "aGk=",
                    "#fff",
                ),
                *("1" * 39, "-" * 20, "0.", ":", "a-", "%", "@", "//", "é"),
            )
            piece = draw.pick(near)
            return json.dumps(piece * max(1, min(length // len(piece), draw.size(max(length, 1)))))
        return draw.one_of([
            lambda: json.dumps("a" * length + "!"),
            lambda: json.dumps("ab" * (length // 2)),
            lambda: json.dumps("x" * length),
            lambda: json.dumps(draw.any_text(max(1, length // 3))),
            lambda: json.dumps(draw.text(min(length, 40))),
            lambda: '""',
        ])  # fmt: skip


def _kind(generator: Generator) -> str:
    return generator.pick(KINDS)


def _version(generator: Generator, kind: str) -> str:
    return generator.pick(("v1", "v2")) if kind == CONVERTED else "v1"


def _object_text(generator: Generator, kind: str, version: str, *, name: str, most: int) -> str:
    spec = _Drawn(generator).value(SCHEMAS[kind], generator.size(most))
    return json.dumps(_empty(kind, name, version) | {"spec": "@spec@"}).replace('"@spec@"', spec)


def _named(generator: Generator) -> str:
    """The standing object, or one of a few that several requests are about."""
    return generator.pick((STANDING, STANDING, named(generator.number % 40)))


def written(generator: Generator, family: str) -> Hostile:
    """Create or replace an object, as JSON, YAML, or as a form that custom resources do not have."""
    kind = _kind(generator)
    version, name = _version(generator, kind), _named(generator)
    text = _object_text(generator, kind, version, name=name, most=generator.most)
    media = generator.pick((JSON, JSON, JSON, YAML, YAML, PROTOBUF))
    query = generator.pick(("", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldValidation=Ignore"))
    path = collection(kind, version)
    replaces = generator.often(0.4)
    status = "/status" if replaces and generator.often(0.2) else ""
    if status:
        text = text.replace('"spec":', '"status":', 1)
    return generator.request(
        family,
        method="PUT" if replaces else "POST",
        path=(f"{path}/{name}{status}" if replaces else path) + query,
        headers=[("Content-Type", media), ("Accept", generator.pick(ACCEPTS))],
        body=text.encode("utf-8", "surrogatepass"),
        anonymous=False,
    )


def patched(generator: Generator, family: str) -> Hostile:
    """Patch or apply an object, its status or its scale."""
    kind = _kind(generator)
    version, name, media = _version(generator, kind), _named(generator), generator.pick(PATCHES)
    place = generator.pick(("", "", "", "/status", "/scale"))
    query = generator.pick(("?fieldManager=m&force=true", "?fieldManager=n&force=true", "?fieldManager=m&dryRun=All"))
    if media == PATCHES[0] and generator.often(0.7):
        spec = _Drawn(generator).value(SCHEMAS[kind], generator.size(generator.most))
        text = '[{"op":"add","path":"/spec","value":' + spec + "}]"
    elif media == PATCHES[0]:
        text = generator.operations(generator.size(generator.most))
    else:
        text = _object_text(generator, kind, version, name=name, most=generator.most)
    if place == "/status":
        text = text.replace('"spec":', '"status":', 1)
    return generator.request(
        family,
        method="PATCH",
        path=f"{collection(kind, version)}/{name}{place}{query if media == PATCHES[3] or generator.often(0.5) else ''}",
        headers=[("Content-Type", media)],
        body=text.encode("utf-8", "surrogatepass"),
        anonymous=False,
    )


def read(generator: Generator, family: str) -> Hostile:
    """Read and delete objects, in every form and version, by selectors, and watch them."""
    kind = _kind(generator)
    path = collection(kind, _version(generator, kind))
    length = generator.size(20_000)
    query = generator.pick((
        "", "", "?limit=3", "?fieldSelector=spec.mode%3D" + generator.text(length), "?fieldSelector=spec.size!%3D1,spec.mode%3D",
        "?watch=1&timeoutSeconds=1", "?watch=1&timeoutSeconds=1" + INITIAL, "?labelSelector=a%3D" + generator.text(min(length, 60)),
    ))  # fmt: skip
    if generator.often(0.4):
        path += f"/{_named(generator)}" + generator.pick(("", "", "/status", "/scale", "/nothing"))
        query = ""
    headers = [("Accept", generator.pick(ACCEPTS))]
    if generator.often(0.3):
        headers.append(("Accept-Encoding", "gzip"))
    deletes = generator.often(0.15) and not path.endswith(STANDING) and "/h-" in path
    method = "DELETE" if deletes else "GET"
    return generator.request(family, method=method, path=path + query, headers=headers, anonymous=False)


# ----------------------------------------------------------------------------------------------------------------- definitions


def defined(generator: Generator, family: str) -> Hostile:
    """A definition file that takes the place of the former one. Its head is no request: `campaign` writes the file."""
    length = generator.size(min(generator.most, LARGEST_FILE))
    text = generator.one_of([partial(make, generator, length) for make in _FILES])
    head = f"DEFINITION {generator.number} {len(text)}\r\n\r\n"
    return Hostile(family, head.encode(), text.encode("utf-8", "surrogatepass"))


def marker(number: int) -> Object:
    """A definition that changes with each file of the family, so that clients see when the server has read it."""
    found = _definition("Marker", _object(), group=FOLLOWED)
    found["spec"]["versions"][0]["name"] = marker_version(number)
    return found


def marker_version(number: int) -> str:
    return f"v{number + 1}"


def _file(spec: Schema | str, **changes: Any) -> str:
    found = _definition("Changing", {} if isinstance(spec, str) else spec, group=FOLLOWED)
    found["spec"] |= changes
    text = json.dumps(found)
    return (
        text.replace('"properties": {"spec": {}', '"properties": {"spec": ' + spec) if isinstance(spec, str) else text
    )


def _nested(generator: Generator, length: int) -> str:
    depth = min(length // 50, generator.size(5000))
    one = generator.pick(('{"type":"object","properties":{"a":', '{"type":"array","items":', '{"not":', '{"allOf":['))
    end = "}}" if "properties" in one else "]}" if one.endswith("[") else "}"
    return _file(one * depth + '{"type":"string"}' + end * depth)


def _wide(generator: Generator, length: int) -> str:
    leaf = generator.pick((
        '{"type":"string"}', '{"type":"string","pattern":"^(a+)+$"}', '{"type":"integer","default":1}', '{"type":"string","format":"uri"}',
        '{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}', '{"type":"x"}', "{}", '{"default":"x"}',
        '{"type":"string","enum":["a","b","a"]}', '{"type":"object","x-kubernetes-preserve-unknown-fields":false}',
    ))  # fmt: skip
    return _file('{"type":"object","properties":{' + generator.many(length, f'"p@":{leaf}') + "}}")


def _enumeration(generator: Generator, length: int) -> str:
    value = generator.pick(('"v@"', "@", '{"a":[@]}', '"same"', "null", "1e@"))
    kind = generator.pick(("string", "integer", "object"))
    return _file(f'{{"type":"{kind}","enum":[' + generator.many(length, value) + "]}")


def _pattern(generator: Generator, length: int) -> str:
    piece = generator.pick(
        (
            "(",
            "(a+)+",
            "a{1000}",
            "(a{100}){100}",
            "a?",
            "(?i:a)",
            "\\p{L}",
            "|",
            ".*",
            "[",
            "\\U0010ffff",
            "(?P<n>a)",
            "\\b",
        )
    )
    return _file({"type": "string", "pattern": (piece * (length // len(piece) + 1))[:length]})


def _expressions(generator: Generator, length: int) -> str:
    one = generator.expression(min(length, generator.pick_size((100, 1000, 20_000)))).replace("@", "%")
    one = one.replace("device", "self").replace("self.driver", "self")
    rule = json.dumps({"rule": one, "message": "m", "messageExpression": generator.pick(("'x'", "self", "self + 'a'"))})
    rules = generator.many(min(length, 40 * len(rule)), rule)
    return _file('{"type":"string","maxLength":1000,"x-kubernetes-validations":[' + rules + "]}")


def _branches(generator: Generator, length: int) -> str:
    branch = generator.pick((
        '{"required":["a@"]}', '{"properties":{"a":{"pattern":"^(a+)+$"}}}', '{"not":{"required":["a"]}}', '{"type":"string"}',
        '{"allOf":[{"anyOf":[{"minLength":@}]}]}',
    ))  # fmt: skip
    junctor = generator.pick(("oneOf", "anyOf", "allOf"))
    members = '"properties":{"a":{"type":"string"}}'
    return _file('{"type":"object",' + members + f',"{junctor}":[' + generator.many(length, branch) + "]}")


def _default(generator: Generator, length: int) -> str:
    kind = generator.pick(("object", "string", "array"))
    return _file(
        f'{{"type":"{kind}","x-kubernetes-preserve-unknown-fields":true,"default":' + generator.filling(length) + "}"
    )


def _columns(generator: Generator, length: int) -> str:
    found = _definition("Changing", _table(), group=FOLLOWED)
    path = generator.pick(
        (".spec" + ".a" * 1000, ".spec..a" * 100, "[" * 1000, '.a[?(@.b=="c")]' * 50, ".a[0:9:1]", "{.a}")
    )
    column = json.dumps({"name": "c@", "type": "string", "jsonPath": path.replace("@", "%")}).replace("%", "@", 1)
    text = json.dumps(found).replace('"served":', '"additionalPrinterColumns":["@"],"served":', 1)
    return text.replace('"@"', generator.many(min(length, 200 * len(column)), column), 1)


def _any_member(generator: Generator, length: int) -> str:
    """A good definition with something else in one place."""
    found = _definition("Changing", SCHEMAS[generator.pick(KINDS)], group=FOLLOWED)
    at: Any = found
    for _ in range(generator.pick_size((1, 2, 3, 6, 9))):
        names = list(at) if isinstance(at, dict) else list(range(len(at)))
        step = names[generator.pick_size(range(len(names)))]
        if not (isinstance(at[step], dict | list) and at[step]):
            break
        at = at[step]
    names = list(at) if isinstance(at, dict) else list(range(len(at)))
    at[names[generator.pick_size(range(len(names)))]] = "@hole@"
    return json.dumps(found).replace('"@hole@"', generator.filling(length))


def _documents(generator: Generator, length: int) -> str:
    return generator.one_of([
        lambda: "---\n" * (length // 4),
        lambda: generator.yaml_text(length),
        lambda: generator.any_text(length),
        lambda: "\n---\n".join([_file(_object())] * min(20, max(1, length // 1000))),
        lambda: '{"kind":"List","apiVersion":"v1","items":[' + generator.many(length, '{"kind":"X@"}') + "]}",
        lambda: "",
    ])  # fmt: skip


_FILES: tuple[Callable[[Generator, int], str], ...] = (
    *(
        _nested,
        _wide,
        _enumeration,
        _pattern,
        _expressions,
        _branches,
        _default,
        _columns,
        _any_member,
        _any_member,
        _documents,
    ),
)

FAMILIES: dict[str, Callable[[Generator, str], Hostile]] = {
    "custom": written,
    "custom patch": patched,
    "custom reading": read,
    DEFINITION: defined,
}
