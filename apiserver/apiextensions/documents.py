"""Read the documents of files and folders, as `kubectl apply -f` reads them.

A file holds YAML documents between `---` lines, or JSON values one after the other. A folder counts with its `.json`, `.yaml` and `.yml`
files, and with such files that gzip compressed, not with folders below it. A `List` counts as its items.
Upstream: kubernetes/apimachinery `pkg/util/yaml/decoder.go`, kubernetes/cli-runtime `pkg/resource/visitor.go`.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.yaml import as_yaml, block_yaml
from apiserver.codecs.yaml.block_yaml import Blocks

SUFFIXES = (".json", ".yaml", ".yml")
"""The files of a folder that are read."""
COMPRESSED = ".gz"
"""A suffix that may follow them: a ConfigMap has at most 1 MiB, and some definitions have more."""
MOST_FILE_BYTES = 64 << 20
"""Bytes of one file, uncompressed: more than the definitions of the largest clusters together."""
MOST_NODES = 2_000_000
"""Values in one document: 40 times what a definition of 3 MiB has, so that a list of all definitions of a cluster can be read."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object in a file. `place` names both; `number` counts the objects of the file from 1.

    `error` says why there is no `value`. `repeats` is the message about keys that a mapping repeats, "" without.
    """

    file: Path
    place: str
    value: Any = None
    error: str = ""
    repeats: str = ""


def read(paths: Iterable[Path], blocks: Blocks | None = None) -> Iterator[Document]:
    """Yield the documents of files and folders in their order. A file that cannot be read is a document with an error.

    Reads the disk, and takes a second for 10 MB of YAML without parts that are in `blocks`.
    """
    blocks = blocks or Blocks()
    for path in paths:
        for file in files(path):
            yield from _documents(file, blocks)


def files(path: Path) -> Sequence[Path]:
    """Return the files of a folder in order of their names, or the path itself if it is no folder. Raises OSError."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if _is_read(file.name) and file.is_file())


def _is_read(name: str) -> bool:
    return name.removesuffix(COMPRESSED).endswith(SUFFIXES)


def _documents(file: Path, blocks: Blocks) -> Iterator[Document]:
    try:
        with gzip.open(file) if file.suffix == COMPRESSED else file.open("rb") as stream:
            raw = stream.read(MOST_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as e:
        yield Document(file, str(file), error=getattr(e, "strerror", None) or str(e))
        return
    if len(raw) > MOST_FILE_BYTES:
        yield Document(file, str(file), error=f"the file is larger than {MOST_FILE_BYTES} bytes")
        return
    chunks = [chunk for chunk in _chunks(raw) if not _BLANK.fullmatch(chunk)]
    for number, chunk in enumerate(chunks, start=1):
        place = str(file) if len(chunks) == 1 else f"{file}, document {number}"
        try:
            values = _values(chunk, blocks)
        except ValueError as e:
            yield Document(file, place, error=str(e))
            continue
        for value, repeats in values:
            yield from _objects(Document(file, place, value, repeats=repeats))


_SEPARATOR = re.compile(rb"^---[^\n]*\n?", re.MULTILINE)
_BARE = re.compile(rb"---\s*(?:[#].*)?\s*", re.DOTALL)
_BLANK = re.compile(rb"(?:[ \t]*(?:[#][^\n]*)?\r?\n)*[ \t]*(?:[#][^\n]*)?")
"""Only comments and white space."""


def _chunks(raw: bytes) -> Iterator[bytes]:
    """Yield the text of each document. A separator with anything but a comment behind it belongs to its document, where it is an error."""
    start = 0
    for separator in _SEPARATOR.finditer(raw) if _has_separator(raw) else ():
        if _BARE.fullmatch(separator[0]):
            yield raw[start : separator.start()]
            start = separator.end()
    yield raw[start:]


def _has_separator(raw: bytes) -> bool:
    """Return whether there is a separator. Quicker than the expression, which looks at every line."""
    return raw.startswith(b"---") or b"\n---" in raw


def _values(chunk: bytes, blocks: Blocks) -> list[tuple[Any, str]]:
    """Return the value of one document, or the JSON values in it, each with the message about repeated keys. Raises ValueError."""
    if chunk.lstrip()[:1] == b"{":
        try:
            return [(orjson.loads(chunk), "")]
        except orjson.JSONDecodeError:
            if _JSON_FOLLOWS.search(chunk) and (values := _stream(chunk)):
                return [(value, "") for value in values]
            # It is YAML, or JSON that YAML reads as well.
    if _has_separator(chunk) and (separator := _SEPARATOR.search(chunk)) is not None:
        raise ValueError(f"invalid Yaml document separator: {separator[0][3:].strip().decode(errors='replace')}")
    value = block_yaml.read(chunk, blocks)
    if value is not block_yaml.OTHER:
        return [(value, "")]
    try:
        reading = as_yaml.read(chunk, most_nodes=MOST_NODES)
    except StatusError:
        raise ValueError(f"the document has more than {MOST_NODES} values, or nests too deeply") from None
    return [(reading.value, reading.repeats)]


_JSON_FOLLOWS = re.compile(rb"\}\s*\{")
_JSON = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _stream(chunk: bytes) -> list[Any]:
    """Return JSON values that follow each other; none if the text is anything else."""
    values = []
    try:
        text = chunk.decode()
        at = _SPACE.match(text).end()  # type: ignore[union-attr]
        while at < len(text):
            value, at = _JSON.raw_decode(text, at)
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
            values.append(value)
    except (ValueError, RecursionError):
        return []
    return values


def _objects(document: Document) -> Iterator[Document]:
    """Yield the document, or the items of a `List`."""
    value = document.value
    if value is None:
        return
    kind, items = (value.get("kind"), value.get("items")) if isinstance(value, dict) else (None, None)
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        yield document
        return
    for number, item in enumerate(items, start=1):
        yield Document(document.file, f"{document.place}, item {number}", item, repeats=document.repeats)
