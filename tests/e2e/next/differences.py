"""Differences between two versions of Kubernetes, by topic, and the page that lists them."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOPICS = (
    "feature gates", "discovery", "OpenAPI", "kinds and validation", "admission", "CEL", "apply and patches", "deletion", "lists", "watch",
    "tables", "representations", "authorization", "requests", "metrics", "flags",
)  # fmt: skip
"""In the order in which a release is built: what later topics need comes first."""
SHOWN = 4
"""Places that an item names; the rest is a number."""
REPEATED = 5
"""From how many changes of one form on they are one line: a generator changed, not the API."""
LONGEST = 300
"""Characters of a text that are shown."""


@dataclass(frozen=True)
class Difference:
    """One answer that differs. `where` is a request, a case, a promise or a name; `lines` say how."""

    topic: str
    where: str
    lines: Sequence[str]


def topic_of_step(scenario: str, title: str, members: Iterable[str]) -> str:
    """The topic of a step of the corpus: by its request, then by what differs, then by its scenario."""
    if "/openapi" in title or "openapi" in scenario:
        return "OpenAPI"
    if scenario.startswith("routes"):
        return "discovery"
    if any("columnDefinitions" in path or ".cells" in path for path in members) and "watch" not in scenario:
        return "tables"
    if any(path.startswith("body.details.causes") for path in members):
        return "kinds and validation"
    return _BY_NAME.get(scenario.partition(".")[0], "requests")


def topic_of_promise(file: str) -> str:
    """The topic of a file of promises, as in `tests/promises/api/test_lists.py`."""
    if "/admission/" in file:
        return "admission"
    words = re.split(r"[_./]", file.rpartition("test_")[2])
    return next((_BY_NAME[word] for word in words if word in _BY_NAME), "requests")


_BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("apply", "patch", "management", "managed"), "apply and patches"),
    **dict.fromkeys(("delete", "deletion"), "deletion"),
    **dict.fromkeys(("list", "lists", "continue", "history", "shards"), "lists"),
    **dict.fromkeys(("watch", "watches", "websockets"), "watch"),
    **dict.fromkeys(("table", "tables"), "tables"),
    **dict.fromkeys(("format", "representations", "protobuf", "raw", "accept", "surrogates"), "representations"),
    **dict.fromkeys(("auth", "access", "write"), "authorization"),
    **dict.fromkeys(("routes", "discovery", "versions"), "discovery"),
    "openapi": "OpenAPI",
    "selectors": "CEL",
    "gates": "feature gates",
    "status": "kinds and validation",
}


def changes(before: Any, after: Any) -> list[str]:
    """How a document differs, one line for each smallest part. A part added or removed as a whole is one line, and so are many changes
    of one form."""
    lines = list(_changes(before, after, ""))
    forms = Counter(map(_form, lines))
    said: dict[str, None] = {}
    for line in lines:
        form = _form(line)
        said[line if forms[form] < REPEATED else f"{form} ({forms[form]} times)"] = None
    return list(said)


def _form(line: str) -> str:
    """A line without the place where it is and without the names that it refers to."""
    sign, path, value = _LINE.fullmatch(line).groups()  # type: ignore[union-attr]
    return f"{sign} …{'.'.join(path.rsplit('.', 2)[1:])}: {_REFERENCE.sub('…', value)}"


_LINE = re.compile(r"([-+!]) (.*?): (.*)", re.DOTALL)
_REFERENCE = re.compile(r"#/\w+/[\w./]+")


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            inner = f"{path}.{name}" if path else str(name)
            if name not in after:
                yield f"- {inner}: {shown(before[name])}"
            elif name not in before:
                yield f"+ {inner}: {shown(after[name])}"
            else:
                yield from _changes(before[name], after[name], inner)
    elif isinstance(before, list) and isinstance(after, list):
        yield from (f"- {path}: {shown(item)}" for item in before if item not in after)
        yield from (f"+ {path}: {shown(item)}" for item in after if item not in before)
    elif before != after:
        yield f"! {path}: {shown(before)} → {shown(after)}"


def shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def page(title: str, differences: Iterable[Difference], *, played: Sequence[str] = ()) -> str:
    """The work list, in Markdown. Differences of one topic with the same lines are one item."""
    found = list(differences)
    lines = [f"# {title}", "", *played, ""]
    named = sorted({difference.topic for difference in found} - set(TOPICS))
    for topic in (*TOPICS, *named):
        items: dict[tuple[str, ...], list[str]] = {}
        for difference in found:
            if difference.topic == topic:
                items.setdefault(_signature(difference.lines), []).append(difference.where)
        if items:
            lines += [f"## {topic[0].upper()}{topic[1:]}: {len(items)}", ""]
            lines += itertools.chain.from_iterable(_item(where, said) for said, where in items.items())
            lines.append("")
    if not found:
        lines += ["Nothing differs.", ""]
    return "\n".join(lines)


def _signature(lines: Sequence[str]) -> tuple[str, ...]:
    """Equal for lines that differ only in the numbers of list items."""
    return tuple(dict.fromkeys(re.sub(r"^( *[-+!] [^ :]*?)\[\d+\]", r"\1[]", line.rstrip()) for line in lines))


def _item(where: Sequence[str], said: Sequence[str]) -> Iterator[str]:
    places = list(dict.fromkeys(where))
    more = [f"and {len(places) - SHOWN} more"] if len(places) > SHOWN else []
    yield f"- [ ] {', '.join([*(f'`{shown(place)}`' for place in places[:SHOWN]), *more])}"
    if said:
        yield "  ```"
        yield from (f"  {line}" for line in said)
        yield "  ```"
