"""Convert YAML to and from JSON values as sigs.k8s.io/yaml does: YAML 1.1 words, first document only, keys become strings.

Built from parser events without recursion. The expansion of aliases is bounded.
Upstream: kubernetes-sigs/yaml `yaml.go`, yaml/go-yaml v2 `decode.go`, `encode.go`, `sorter.go`.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from apiserver.codecs.json import json_syntax
from apiserver.codecs.yaml import yaml_scalars
from kubetext import sorting

VERSION = (1, 1)
"""The only YAML version that a directive may name: neither go-yaml nor libyaml takes a later one."""
MAX_DEPTH = 10_000
"""Levels of nesting that go-yaml accepts."""
MOST_EXPANDED = 16 << 20
"""Bytes of scalars that a document may have when its aliases are expanded."""
MOST_NODES, MOST_STEPS, MOST_DIRECTIVES = 60_000, 110_000_000, 64
"""Limits of one document: values, the sum of their depths, and lines that may be directives. libyaml looks at every open level for every
token, and compares each directive with all others."""
MOST_REPEATS = 1_000
"""Repeated keys that are listed."""
REPEATS_LIMIT = 256 << 10
"""Characters that the texts about repeated keys may take."""
_RATIO_LOW, _RATIO_HIGH = 400_000, 4_000_000


class YAMLProblem(ValueError):
    """The bytes are not YAML, or YAML without a JSON form. The text is upstream's."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A decoded document. `repeats` is upstream's text about repeated keys, or empty."""

    value: Any
    repeats: str = ""


def read(raw: bytes, *, most_nodes: int = MOST_NODES) -> Reading:
    """Return the first document. The last of repeated keys counts; members are sorted by name, as upstream's conversion leaves them.

    `most_nodes` is the limit of values. Raises YAMLProblem, and the 413 of a request for a document above a limit.
    """
    if raw.count(b"\n%") > MOST_DIRECTIVES:
        raise json_syntax.too_many_values()
    builder = _Builder(most_nodes)
    slashes = _EscapedSlashes(raw)
    try:
        if most_nodes == MOST_NODES:
            _check_count(raw)
        for event in _first_document(raw):
            if slashes.any and isinstance(event, yaml.ScalarEvent):
                slashes.refuse(event)
            builder.take(event)
    except yaml.reader.ReaderError as e:
        raise YAMLProblem(f"yaml: {e.reason}") from e
    except yaml.MarkedYAMLError as e:
        raise YAMLProblem(f"yaml: {_where(e)}{e.problem}") from e
    builder.judge()
    repeats = "\n  ".join(["yaml: unmarshal errors:", *builder.repeats]) if builder.repeats else ""
    return Reading(builder.value, repeats)


def _check_count(raw: bytes) -> None:
    """Raise 413 for a document of too many values before any value is made, which takes four times as long as counting them.

    Raises YAMLProblem for an unknown anchor, and libyaml's error for a document that ends wrongly: the builder would find the same. It
    leaves the other errors to the builder.
    """
    if b"\\/" in raw or sum(map(raw.count, _BETWEEN)) <= FEW_NODES:
        return
    loader = yaml.CBaseLoader(raw)
    depth = 0
    anchors: set[str] = set()
    try:
        for _ in range(MOST_NODES + 1):
            event = loader.get_event()
            if anchor := getattr(event, "anchor", None):
                if type(event) is yaml.AliasEvent and anchor not in anchors:
                    raise _unknown_anchor(anchor)
                anchors.add(anchor)
            step = _STEPS.get(type(event), 0)
            depth += step or 0
            if step is None or depth > COUNTED_DEPTH:
                return
            if type(event) is yaml.DocumentStartEvent and event.version not in (None, VERSION):
                return
        raise json_syntax.too_many_values()
    finally:
        loader.dispose()


FEW_NODES = 45_000
"""Documents with at most this many values are not counted first: making them takes 0.09 s, and a refusal may take 0.1 s."""
_BETWEEN = (b",", b"\n", b":", b"-", b"[", b"{", b"?", b"&")
"""Characters between values or before one: a document has at least as many of these as values."""
COUNTED_DEPTH = 1_000
"""Levels above which values are not counted first: libyaml looks at every open level for every token, and would do it twice."""
_STEPS: dict[type[Any], int | None] = {
    yaml.MappingStartEvent: 1,
    yaml.SequenceStartEvent: 1,
    yaml.MappingEndEvent: -1,
    yaml.SequenceEndEvent: -1,
    yaml.AliasEvent: None,
    yaml.DocumentEndEvent: None,
    yaml.StreamEndEvent: None,
}
"""The change of the depth by an event. None ends the counting."""


def _unknown_anchor(name: str) -> YAMLProblem:
    return YAMLProblem(f"yaml: unknown anchor '{name}' referenced")


def _first_document(raw: bytes) -> Iterator[Any]:
    loader = yaml.CBaseLoader(raw or b"\n")
    try:
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.DocumentEndEvent):
                return
            if isinstance(event, yaml.DocumentStartEvent) and event.version not in (None, VERSION):
                mark: Any = event.start_mark
                raise yaml.parser.ParserError(None, None, "found incompatible YAML document", mark)
            yield event
    finally:
        loader.dispose()


_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


class _EscapedSlashes:
    r"""Finds `\/`, the one escape that libyaml takes and go-yaml does not."""

    def __init__(self, raw: bytes) -> None:
        self.any = b"\\/" in raw
        self._text = raw.decode(errors="replace").removeprefix("\ufeff") if self.any else ""

    def refuse(self, scalar: Any) -> None:
        """Raise the error of go-yaml's scanner for a quoted text that has an escaped slash."""
        if scalar.style != '"':
            return
        start, written = scalar.start_mark, self._text[scalar.start_mark.index : scalar.end_mark.index]
        # An escaped backslash does not escape the next character.
        at = written.replace("\\\\", "--").find("\\/")
        if at >= 0:
            line = start.line + len(_LINE_END.findall(written, 0, at))
            mark = yaml.Mark("", 0, line, 0, "", 0)
            problem = "found unknown escape character"
            raise yaml.scanner.ScannerError("while parsing a quoted scalar", start, problem, mark)


def _where(error: yaml.MarkedYAMLError) -> str:
    """Return the line as go-yaml states it: counted from 0, except for the scanner's errors; the first line is not named."""
    line = error.problem_mark.line if error.problem_mark else 0
    if line:
        line += isinstance(error, yaml.scanner.ScannerError)
    elif error.context_mark:
        line = error.context_mark.line
    return f"line {line}: " if line else ""


@dataclass(frozen=True, slots=True)
class _Unfit:
    """Stands for a value that has no JSON form. It counts only if nothing later takes its place.

    `of` is the value that the message shows, if any, and `key` its key in its mapping.
    """

    text: str
    encoding: bool = False
    of: Any = ...
    key: Any = None

    def __str__(self) -> str:
        return self.text if self.of is ... else f"{self.text}{yaml_scalars.go_syntax(self.of)}"


@dataclass(slots=True)
class _Node:
    """A finished value, the nodes and bytes that it stands for, and its repeated keys."""

    value: Any
    line: int
    count: int = 1
    size: int = 0
    repeats: Sequence[str] = ()
    merge: bool = False


@dataclass(slots=True)
class _Holder:
    """An open mapping (`out` is a dict) or sequence. `key` is the key of the next value, once it is known."""

    out: Any
    line: int
    anchor: str | None
    first_repeat: int
    key: _Node | None = None
    seen: set[tuple[type, Any]] = field(default_factory=set)
    unfit: _Unfit | None = None
    count: int = 1
    size: int = 0


class _Builder:
    """Turns events into a value. The first error in a value is kept, because a later syntax error is reported before it."""

    def __init__(self, most_nodes: int) -> None:
        self.value: Any = None
        self.repeats: list[str] = []
        self._most_nodes = most_nodes
        self._failed = ""
        self._marked = False
        self._holders: list[_Holder] = []
        self._anchors: dict[str, _Node | None] = {}
        self._decoded = 0
        self._aliased = 0
        self._nodes = 0
        self._left = REPEATS_LIMIT
        self._steps = 0

    def judge(self) -> None:
        """Raise the error of decoding, or of the conversion to JSON, or of the JSON encoder, whichever comes first."""
        if self._failed:
            raise YAMLProblem(self._failed)
        if self._marked:
            found = sorted(_unfit_in(self.value), key=lambda u: u.encoding)
            if found:
                raise YAMLProblem(str(found[0]))

    def take(self, event: Any) -> None:
        self._steps += len(self._holders)
        self._nodes += 1
        if self._nodes > self._most_nodes or self._steps > MOST_STEPS:
            raise json_syntax.too_many_values()
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)

    def _count(self, values: int) -> None:
        self._nodes += values
        if self._nodes > self._most_nodes or self._steps > MOST_STEPS:
            raise json_syntax.too_many_values()

    def _fail(self, text: str) -> None:
        self._failed = self._failed or f"yaml: {text}"

    def _scalar(self, event: Any) -> None:
        merge = event.value == "<<" and (event.implicit[0] or event.tag == yaml_scalars.MERGE)
        try:
            value = event.value if merge else yaml_scalars.value(event.tag, event.value, plain=event.implicit[0])
        except ValueError as e:
            self._fail(str(e))
            value = None
        self._decoded += 1
        holder = self._holders[-1] if self._holders else None
        # As `_put`, without a node for each element.
        if holder is not None and type(holder.out) is list and not event.anchor:
            holder.count += 1
            holder.size += len(event.value)
            holder.out.append(self._sayable(value))
            return
        node = _Node(value, event.start_mark.line, size=len(event.value), merge=merge)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._put(node)

    def _open(self, event: Any) -> None:
        mark = event.start_mark
        if len(self._holders) >= MAX_DEPTH:
            problem = f"exceeded max depth of {MAX_DEPTH}"
            raise yaml.scanner.ScannerError(None, None, problem, mark)
        out: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._decoded += 1
        if event.anchor:
            self._anchors[event.anchor] = None
        self._holders.append(_Holder(out, mark.line, event.anchor, len(self.repeats)))

    def _close(self) -> None:
        holder = self._holders.pop()
        value = sorting.by_name(holder.out) if isinstance(holder.out, dict) else holder.out
        if holder.unfit is not None:
            value = holder.unfit
        repeats = self.repeats[holder.first_repeat :]
        node = _Node(value, holder.line, holder.count, holder.size, repeats)
        if holder.anchor:
            self._anchors[holder.anchor] = node
        self._put(node)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _unknown_anchor(event.anchor)
        node = self._anchors[event.anchor]
        if node is None:
            self._fail(f"anchor '{event.anchor}' value contains itself")
            node = _Node(None, event.start_mark.line)
        self._decoded += 1 + node.count
        self._aliased += node.count
        room = MOST_REPEATS - len(self.repeats)
        self.repeats += node.repeats[: max(room, 0)]
        self._put(_Node(node.value, event.start_mark.line, node.count + 1, node.size))
        self._check_expansion()

    def _check_expansion(self) -> None:
        few = self._aliased <= 100 or self._decoded <= 1000
        size = self._holders[-1].size if self._holders else 0
        if size > MOST_EXPANDED or not (few or self._aliased / self._decoded <= _allowed_ratio(self._decoded)):
            raise YAMLProblem("yaml: document contains excessive aliasing")

    def _put(self, node: _Node) -> None:
        """Put a finished value into its holder."""
        if not self._holders:
            self.value = self._sayable(node.value)
            return
        holder = self._holders[-1]
        holder.count += node.count
        holder.size += node.size
        if isinstance(holder.out, list):
            holder.out.append(self._sayable(node.value))
        elif holder.key is None:
            self._check_key(node)
            holder.key = node
        else:
            key, holder.key = holder.key, None
            if key.merge:
                self._merge(holder, node)
            else:
                self._set(holder, key.value, node.value, line=node.line)

    def _check_key(self, node: _Node) -> None:
        if isinstance(node.value, dict | list | _Unfit):
            if not self._failed:
                key = {node.value.key: node.value.of} if isinstance(node.value, _Unfit) else node.value
                self._fail(f"invalid map key: {yaml_scalars.go_syntax(key)}")
            node.value = ""

    def _set(self, holder: _Holder, key: Any, value: Any, *, line: int) -> None:
        identity = (type(key), key)
        if identity in holder.seen and len(self.repeats) < MOST_REPEATS and self._left > 0:
            self.repeats.append(f"line {line + 1}: key {yaml_scalars.go_syntax(key)} already set in map")
            self._left -= len(self.repeats[-1])
        holder.seen.add(identity)
        name = yaml_scalars.key_text(key)
        if name is None:
            kind = "uint64" if key is not None else "%!s(<nil>)"
            shown = hex(key) if key is not None else "<nil>"
            holder.unfit = _Unfit(f"unsupported map key of type: {kind}, key: {shown}, value: ", of=value, key=key)
            self._marked = True
            return
        holder.out[name] = self._sayable(value)

    def _merge(self, holder: _Holder, node: _Node) -> None:
        """Apply `<<`: merge members of a mapping, or of several of which the earlier ones win."""
        sources = node.value if isinstance(node.value, list) else [node.value]
        for source in reversed(sources):
            if not isinstance(source, dict):
                self._fail("map merge requires map or sequence of maps as the value")
                return
            self._count(len(source))
            for name, value in source.items():
                self._set(holder, name, value, line=node.line)

    def _sayable(self, value: Any) -> Any:
        """Return the value as it comes back from JSON text."""
        if type(value) is not float:
            return value
        said = yaml_scalars.json_number(value)
        if isinstance(said, str):
            self._marked = True
            return _Unfit(f"json: unsupported value: {said}", encoding=True)
        return said


def _unfit_in(value: Any) -> Iterator[_Unfit]:
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, _Unfit):
            yield here
        elif isinstance(here, dict):
            left.extend(reversed(here.values()))
        elif isinstance(here, list):
            left.extend(reversed(here))


def _allowed_ratio(decoded: int) -> float:
    """Return the share of nodes that may come from aliases: nearly all in small documents, a tenth in very large ones."""
    part = (min(max(decoded, _RATIO_LOW), _RATIO_HIGH) - _RATIO_LOW) / (_RATIO_HIGH - _RATIO_LOW)
    return 0.99 - 0.89 * part


def dumps(value: Any) -> bytes:
    """Return block style YAML. Members are sorted as go-yaml sorts them; the text ends with a newline, without libyaml's document end
    mark."""
    events = itertools.chain(
        (yaml.StreamStartEvent(), yaml.DocumentStartEvent(explicit=False)),
        _events(value),
        (yaml.DocumentEndEvent(explicit=False), yaml.StreamEndEvent()),
    )
    text: str = yaml.emit(events, Dumper=yaml.CDumper, allow_unicode=True)
    return (text[:-4] if text.endswith("\n...\n") else text).encode()


_END = object()


def _events(value: Any) -> Iterator[Any]:
    """Yield the events of a value without recursion. The stack has the open holders: their remaining (name, value) pairs and their end
    events."""
    open_: list[tuple[Iterator[tuple[str | None, Any]], Any]] = []
    name: str | None = None
    while True:
        if name is not None:
            yield _text_event(name)
        if isinstance(value, dict):
            yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=False)
            open_.append((_members(value), yaml.MappingEndEvent()))
        elif isinstance(value, list):
            yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=False)
            open_.append((zip(itertools.repeat(None), value, strict=False), yaml.SequenceEndEvent()))
        elif isinstance(value, str):
            yield _text_event(value)
        else:
            yield _scalar_event(_plain(value), None)
        while open_:
            name, value = next(open_[-1][0], (None, _END))
            if value is not _END:
                break
            yield open_.pop()[1]
        else:
            return


def _members(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value[name]) for name in in_order(value))


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number(value) if isinstance(value, float) else _whole(value)


def _whole(value: int) -> str:
    """Print an integer as go-yaml does: beyond 64 bits as a float, beyond every float as text."""
    if -(1 << 63) <= value < 1 << 64:
        return str(value)
    try:
        return yaml_scalars.shortest(repr(float(value)))
    except OverflowError:
        return str(value)


def _number(value: float) -> str:
    """Print a float as go-yaml does after it read JSON text as YAML: whole ones that fit are integers."""
    said = yaml_scalars.json_number(value)
    return _whole(said) if isinstance(said, int) else yaml_scalars.shortest(repr(value))


def _text_event(text: str) -> Any:
    if "\n" in text:
        return _scalar_event(text, "|")
    return _scalar_event(text, None if yaml_scalars.reads_as_text(text) else '"')


def _scalar_event(text: str, style: str | None) -> Any:
    return yaml.ScalarEvent(None, None, (True, True), text, style=style)


def in_order(names: dict[str, Any]) -> list[str]:
    """Return the names in go-yaml's order: letters behind everything else, runs of digits by their value."""
    if all(name.isascii() and name.isalpha() for name in names):
        return [*sorting.in_order(names)]
    return sorted(names, key=functools.cmp_to_key(_compare))


def _compare(a: str, b: str) -> int:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if at is None:
        return len(a) - len(b)
    x, y = a[at], b[at]
    if x.isalpha() or y.isalpha():
        return (1 if x > y else -1) if x.isalpha() and y.isalpha() else 1 if x.isalpha() else -1
    return _compare_digits(a, b, at)


def _compare_digits(a: str, b: str, at: int) -> int:
    leading = 0
    if "0" in (a[at], b[at]):
        before = itertools.takewhile(str.isdecimal, reversed(a[:at]))
        leading = int(any(c != "0" for c in before))
    run_a, run_b = ("".join(itertools.takewhile(str.isdecimal, text[at:])) for text in (a, b))
    value_a, value_b = (_value(f"{leading}{run}") for run in (run_a, run_b))
    if value_a != value_b:
        return -1 if value_a < value_b else 1
    if len(run_a) != len(run_b):
        return len(run_a) - len(run_b)
    return -1 if a[at] < b[at] else 1


def _value(digits: str) -> tuple[int, str]:
    """Return a key that sorts numbers of any length by value."""
    plain = unicodedata.normalize("NFKC", digits) if not digits.isascii() else digits
    significant = plain.lstrip("0")
    return len(significant), significant


__all__ = ["Reading", "YAMLProblem", "dumps", "in_order", "read"]
