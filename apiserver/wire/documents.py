"""Read a configuration file that holds one document with kind and apiVersion, as YAML or JSON.

Upstream: kubernetes/apimachinery `pkg/runtime/serializer/json/json.go`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import as_written
from apiserver.codecs.objects import decoding
from apiserver.codecs.yaml import as_yaml
from apiserver.kinds import type_meta
from apiserver.kinds.type_meta import Unreadable
from apiserver.schema.resource import Object
from apiserver.schema.types import Struct
from apiserver.wire import as_json, complaints
from kubetext import quoting

_SYNTAX = "couldn't get version/kind; json parse error: "


class Document(NamedTuple):
    """A parsed text. `json` is the text itself if it is JSON, `repeats` the message about repeated keys if it is YAML."""

    value: Any
    json: bytes
    repeats: str

    def decoded(self, shape: Struct) -> tuple[Object, list[str]]:
        """Return the object, and the errors of strict decoding. Raises decoding.DecodeError."""
        value = as_json.written(self.json, shape) if self.json else self.value
        members = as_written.without(value or {}, type_meta.MEMBERS)
        if self.json:
            against = complaints.find(self.json, complaints.shaped(shape, extra=type_meta.MEMBERS))
            return decoding.decode_written(shape, members).object, against
        decoded = decoding.decode(shape, members)
        unknown = [f"unknown field {quoting.go_quote(path)}" for path in decoded.unknown]
        return decoded.object, [*filter(None, [self.repeats]), *unknown]


def parsed(raw: bytes, shape: Struct) -> Document:
    """Parse JSON if the text begins with an object, else YAML. `shape` is the expected one. Raises Unreadable."""
    try:
        if raw.decode("utf-8", "replace").lstrip().startswith("{"):
            return Document(as_json.written(raw, shape), raw, "")
        reading = as_yaml.read(raw)
    except as_json.SyntaxProblem as error:
        raise Unreadable(f"{_SYNTAX}{error}") from None
    except (as_yaml.YAMLProblem, StatusError) as error:
        raise Unreadable(str(error)) from None
    return Document(reading.value, b"", reading.repeats)
