"""The media types of objects, in this server's order of preference. Negotiation uses this table alone.

Upstream: kubernetes/apimachinery `pkg/runtime/serializer/codec_factory.go`.
"""

from __future__ import annotations

from dataclasses import dataclass

from apiserver.wire.forms import json_text, protobuf, yaml_text
from apiserver.wire.forms.syntax import Syntax

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """One media type.

    `indented`: its syntax for humans, if that differs. `stream`: the Content-Type of a watch, empty if there are no watches in it.
    `tables`: a Table can be written in it.
    """

    name: str
    syntax: Syntax
    indented: Syntax | None = None
    stream: str = ""
    tables: bool = True


MEDIA = (
    Media(name=JSON, syntax=json_text.COMPACT, indented=json_text.INDENTED, stream=JSON),
    Media(name=YAML, syntax=yaml_text.YAML),
    Media(name=PROTOBUF, syntax=protobuf.PROTOBUF, stream=f"{PROTOBUF};stream=watch", tables=False),
)

_SYNTAXES = {
    (media.name, pretty): media.indented if pretty and media.indented is not None else media.syntax
    for media in MEDIA
    for pretty in (False, True)
}


def syntax(media: str, *, pretty: bool) -> Syntax:
    """Return the syntax of a media type."""
    return _SYNTAXES[media, pretty]
