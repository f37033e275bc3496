"""Encode OpenAPI documents as gnostic's protobuf messages, as far as Sluice's documents have their members.

Each message is a table: JSON member → its number and writer. A member without a table entry is a bug (KeyError). Upstream:
google/gnostic-models `openapiv2/OpenAPIv2.{proto,go}`, `openapiv3/OpenAPIv3.{proto,go}`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from apiserver.codecs.protobuf import protowire
from apiserver.codecs.yaml import as_yaml

Writer = Callable[[int, Any], bytes]
"""Encodes the field of this number with this value."""
Table = Mapping[str, tuple[int, Writer]]

EXTENSIONS = "x-"
"""The table entry for all members whose names begin so."""


def v2(document: Mapping[str, Any]) -> bytes:
    """Encode a document of version 2."""
    return _body(_DOCUMENT_2, document)


def v3(document: Mapping[str, Any]) -> bytes:
    """Encode a document of version 3."""
    return _body(_DOCUMENT_3, document)


# --- Values ----------------------------------------------------------------------------------------------------------


def _sized(number: int, data: bytes) -> bytes:
    return protowire.sized(protowire.varint(protowire.key(number, protowire.BYTES)), data)


def _string(number: int, value: str) -> bytes:
    return _sized(number, value.encode())


def _text(number: int, value: str) -> bytes:
    return _string(number, value) if value else b""


def _boolean(number: int, value: bool) -> bytes:  # noqa: FBT001 - it is the value
    return protowire.varint(protowire.key(number, protowire.VARINT)) + b"\1" if value else b""


def _number(number: int, value: float) -> bytes:
    """Encode a double."""
    return protowire.varint(protowire.key(number, protowire.FIXED64)) + struct.pack("<d", value) if value else b""


def _integer(number: int, value: int) -> bytes:
    """Encode an int64."""
    return (
        protowire.varint(protowire.key(number, protowire.VARINT)) + protowire.varint(value & _UINT64) if value else b""
    )


_UINT64 = (1 << 64) - 1


def _any(number: int, value: Any) -> bytes:
    """Encode a value without a message of its own as YAML."""
    return _sized(number, _sized(2, as_yaml.dumps(value)))


def _default(number: int, value: Any) -> bytes:
    """Encode a default of version 3: a number, a boolean or a text. Any other value is an empty message."""
    match value:
        case bool():
            body = protowire.varint(protowire.key(2, protowire.VARINT)) + protowire.varint(value)
        case int() | float():
            body = protowire.varint(protowire.key(1, protowire.FIXED64)) + struct.pack("<d", value)
        case str():
            body = _string(3, value)
        case _:
            body = b""
    return _sized(number, body)


def _each(writer: Writer) -> Writer:
    return lambda number, values: b"".join(writer(number, value) for value in values)


def _within(*numbers: int, writer: Writer) -> Writer:
    """Wrap a value in messages with a single field: those of a `oneof`, and those around lists and maps."""

    def write(number: int, value: Any) -> bytes:
        *outer, last = numbers
        body = writer(last, value)
        for around in reversed(outer):
            body = _sized(around, body)
        return _sized(number, body)

    return write


def _or_boolean(writer: Writer) -> Writer:
    """Encode a `oneof` of a message and a boolean, which is written even if it is false."""
    itself = _within(1, writer=writer)
    flag = protowire.varint(protowire.key(2, protowire.VARINT))
    return lambda number, value: (
        _sized(number, flag + protowire.varint(value)) if isinstance(value, bool) else itself(number, value)
    )


def _named(writer: Writer) -> Writer:
    """Encode a map: a message with name and value for each entry."""
    return lambda number, members: b"".join(
        _sized(number, _text(1, name) + writer(2, value)) for name, value in members.items()
    )


def _message(table: Table) -> Writer:
    return lambda number, value: _sized(number, _body(table, value))


def _body(table: Table, value: Mapping[str, Any]) -> bytes:
    """Encode the fields in the order of their numbers."""
    extensions = {name: member for name, member in value.items() if name.startswith(EXTENSIONS)}
    fields = [(*table[name], member) for name, member in value.items() if name not in extensions]
    if extensions:
        fields.append((*table[EXTENSIONS], extensions))
    return b"".join(write(number, member) for number, write, member in sorted(fields, key=lambda field: field[0]))


def _or_reference(number: int, writer: Writer, *, reference: int) -> Writer:
    """Encode a `oneof` of the value itself and a reference to it."""
    itself, elsewhere = _within(number, writer=writer), _within(reference, 1, writer=_text)
    return lambda at, value: elsewhere(at, value["$ref"]) if "$ref" in value else itself(at, value)


_TEXTS = _each(_string)
_EXTENSIONS = _named(_any)

# --- Version 2 -------------------------------------------------------------------------------------------------------

_EXTERNAL_DOCS = _message({"description": (1, _text), "url": (2, _text)})
_SCHEMA_2: dict[str, tuple[int, Writer]] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "multipleOf": (6, _number),
    "maximum": (7, _number),
    "exclusiveMaximum": (8, _boolean),
    "minimum": (9, _number),
    "exclusiveMinimum": (10, _boolean),
    "maxLength": (11, _integer),
    "minLength": (12, _integer),
    "pattern": (13, _text),
    "maxItems": (14, _integer),
    "minItems": (15, _integer),
    "uniqueItems": (16, _boolean),
    "maxProperties": (17, _integer),
    "minProperties": (18, _integer),
    "required": (19, _TEXTS),
    "enum": (20, _each(_any)),
    "type": (22, lambda number, value: _sized(number, _string(1, value))),
    "externalDocs": (29, _EXTERNAL_DOCS),
    "example": (30, _any),
    EXTENSIONS: (31, _EXTENSIONS),
}
_schema_2 = _message(_SCHEMA_2)
_SCHEMA_2 |= {
    "additionalProperties": (21, _or_boolean(_schema_2)),
    "items": (23, _within(1, writer=_schema_2)),
    "properties": (25, _within(1, writer=_named(_schema_2))),
}
_BODY_2: Table = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _boolean),
    "schema": (5, _schema_2),
}
_QUERY_2: Table = {
    "required": (1, _boolean),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "uniqueItems": (20, _boolean),
}
_PATH_2: Table = {
    "required": (1, _boolean),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "uniqueItems": (19, _boolean),
}
_PLACES_2: Mapping[str, Writer] = {
    "body": _within(1, writer=_message(_BODY_2)),
    "query": _within(2, 3, writer=_message(_QUERY_2)),
    "path": _within(2, 4, writer=_message(_PATH_2)),
}


def _parameter_2(number: int, value: Mapping[str, Any]) -> bytes:
    return _PLACES_2[value["in"]](number, value)


_PARAMETERS_2 = _each(_or_reference(1, _parameter_2, reference=2))
_RESPONSE_2: Table = {"description": (1, _text), "schema": (2, _within(1, writer=_schema_2))}
_OPERATION_2 = _message(
    {
        "tags": (1, _TEXTS),
        "description": (3, _text),
        "operationId": (5, _text),
        "produces": (6, _TEXTS),
        "consumes": (7, _TEXTS),
        "parameters": (8, _PARAMETERS_2),
        "responses": (9, _within(1, writer=_named(_within(1, writer=_message(_RESPONSE_2))))),
        "schemes": (10, _TEXTS),
        EXTENSIONS: (13, _EXTENSIONS),
    }
)
_PATH_ITEM_2: Table = {
    "get": (2, _OPERATION_2),
    "put": (3, _OPERATION_2),
    "post": (4, _OPERATION_2),
    "delete": (5, _OPERATION_2),
    "patch": (8, _OPERATION_2),
    "parameters": (9, _PARAMETERS_2),
}
_API_KEY_2: Table = {"type": (1, _text), "name": (2, _text), "in": (3, _text), "description": (4, _text)}
_DOCUMENT_2: Table = {
    "swagger": (1, _text),
    "info": (2, _message({"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _within(2, writer=_named(_message(_PATH_ITEM_2)))),
    "definitions": (9, _within(1, writer=_named(_schema_2))),
    "parameters": (10, _within(1, writer=_named(_parameter_2))),
    "security": (12, _each(_within(1, writer=_named(_within(1, writer=_TEXTS))))),
    "securityDefinitions": (13, _within(1, writer=_named(_within(2, writer=_message(_API_KEY_2))))),
}

# --- Version 3 -------------------------------------------------------------------------------------------------------

_SCHEMA_3: dict[str, tuple[int, Writer]] = {
    "nullable": (1, _boolean),
    "externalDocs": (6, _EXTERNAL_DOCS),
    "example": (7, _any),
    "title": (9, _text),
    "multipleOf": (10, _number),
    "maximum": (11, _number),
    "exclusiveMaximum": (12, _boolean),
    "minimum": (13, _number),
    "exclusiveMinimum": (14, _boolean),
    "maxLength": (15, _integer),
    "minLength": (16, _integer),
    "pattern": (17, _text),
    "maxItems": (18, _integer),
    "minItems": (19, _integer),
    "uniqueItems": (20, _boolean),
    "maxProperties": (21, _integer),
    "minProperties": (22, _integer),
    "required": (23, _TEXTS),
    "enum": (24, _each(_any)),
    "type": (25, _text),
    "default": (33, _default),
    "description": (34, _text),
    "format": (35, _text),
    EXTENSIONS: (36, _EXTENSIONS),
}
_schema_3 = _or_reference(1, _message(_SCHEMA_3), reference=2)
_SCHEMA_3 |= {
    "allOf": (26, _each(_schema_3)),
    "oneOf": (27, _each(_schema_3)),
    "anyOf": (28, _each(_schema_3)),
    "not": (29, _message(_SCHEMA_3)),
    "items": (30, _within(1, writer=_schema_3)),
    "properties": (31, _within(1, writer=_named(_schema_3))),
    "additionalProperties": (32, _or_boolean(_schema_3)),
}
_CONTENT_3 = _within(1, writer=_named(_message({"schema": (1, _schema_3)})))
_PARAMETER_3: Table = {
    "name": (1, _text),
    "in": (2, _text),
    "description": (3, _text),
    "required": (4, _boolean),
    "schema": (10, _schema_3),
}
_PARAMETERS_3 = _each(_or_reference(1, _message(_PARAMETER_3), reference=2))
_RESPONSE_3: Table = {"description": (1, _text), "content": (3, _CONTENT_3)}
_OPERATION_3 = _message(
    {
        "tags": (1, _TEXTS),
        "description": (3, _text),
        "operationId": (5, _text),
        "parameters": (6, _PARAMETERS_3),
        "requestBody": (7, _within(1, writer=_message({"content": (2, _CONTENT_3), "required": (3, _boolean)}))),
        "responses": (8, _within(2, writer=_named(_within(1, writer=_message(_RESPONSE_3))))),
        EXTENSIONS: (13, _EXTENSIONS),
    }
)
_PATH_ITEM_3: Table = {
    "get": (4, _OPERATION_3),
    "put": (5, _OPERATION_3),
    "post": (6, _OPERATION_3),
    "delete": (7, _OPERATION_3),
    "patch": (10, _OPERATION_3),
    "parameters": (13, _PARAMETERS_3),
}
_API_KEY_3: Table = {"type": (1, _text), "description": (2, _text), "name": (3, _text), "in": (4, _text)}
_COMPONENTS_3: Table = {
    "schemas": (1, _within(1, writer=_named(_schema_3))),
    "securitySchemes": (7, _within(1, writer=_named(_within(1, writer=_message(_API_KEY_3))))),
}
_DOCUMENT_3: Table = {
    "openapi": (1, _text),
    "info": (2, _message({"title": (1, _text), "version": (6, _text)})),
    "paths": (4, _within(1, writer=_named(_message(_PATH_ITEM_3)))),
    "components": (5, _message(_COMPONENTS_3)),
}
