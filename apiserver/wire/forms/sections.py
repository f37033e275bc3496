"""Neighbours of a list in one form: what is kept of them, what has to be made of them first, and what they look like then."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from apiserver.watchcache import groups
from apiserver.watchcache.encodings import Divisible, Draft, Elements, Group, Use
from apiserver.watchcache.entry import Entry
from apiserver.watchcache.groups import Run
from apiserver.wire import gzip
from apiserver.wire.forms.syntax import Piece, Pieces, Section
from apiserver.wire.gzip import Deflated

if TYPE_CHECKING:
    from apiserver.wire.forms.form import Form

MOST_ELEMENTS = 256
"""Elements that are made in one step: small objects cost time too."""


class Bodies(Section):
    """Stored bytes, which are elements as they are. They are kept compressed."""

    __slots__ = ("_form", "_run", "size")

    def __init__(self, form: Form, run: Run) -> None:
        self._form, self._run = form, run
        self.size = sum(len(entry.body) for entry in run.entries) + max(len(run.entries) - 1, 0)

    def work(self) -> Pieces:
        yield from ()

    def text(self) -> bytes:
        return b",".join([entry.body for entry in self._run.entries])

    def deflated(self) -> Deflated:
        return _deflated(self._form, self._run.group, self.text)


class Made(Section):
    """Elements that have to be made of what is stored."""

    __slots__ = ("_run", "form", "whole")

    whole: Any
    """All of them together, once the work is done."""

    def __init__(self, form: Form, run: Run) -> None:
        self.form, self._run = form, run
        kept = run.group.get(form.key) if run.group is not None else None
        self.whole = kept if not isinstance(kept, Draft) else None

    def work(self) -> Pieces:
        form, (entries, group) = self.form, self._run
        if self.whole is not None:
            form.cache.uses[Use.OBJECT_FOUND] += len(entries)
            return
        parts = self._begun()
        while places := self._next(parts):
            yield self._piece(parts, places)
        self.whole = form.together(parts)
        if group is not None and form.keeps and group.count:
            before = group.get(form.key)
            instead = before.size if isinstance(before, Divisible) else 0
            form.cache.keep(group, form.key, self.whole, size=self.whole.size, instead=instead)

    def _begun(self) -> list[Any]:
        """What is there of each. Lists that come at the same time share it: each makes what the others have not made yet."""
        form, (entries, group) = self.form, self._run
        if not form.keeps:
            return [None] * len(entries)
        draft = group.get(form.key) if group is not None else None
        if not isinstance(draft, Draft):
            draft = Draft([groups.member(entry, form.key) for entry in entries])
            if group is not None:
                form.cache.keep(group, form.key, draft, size=draft.size)
        missing = draft.parts.count(None)
        form.cache.uses[Use.OBJECT_FOUND] += len(entries) - missing
        form.cache.uses[Use.OBJECT_MADE] += missing
        return draft.parts

    def _next(self, parts: Sequence[Any]) -> list[int]:
        """As many as one step allows of those that are still to be made; one that is heavy by itself stands alone."""
        places: list[int] = []
        size = 0
        for at, part in enumerate(parts):
            if part is None:
                size += self._run.entries[at].size
                if places and (size > self.form.reach or len(places) == MOST_ELEMENTS):
                    break
                places.append(at)
        return places

    def _piece(self, parts: list[Any], places: Sequence[int]) -> Piece[bytes]:
        entries = self._run.entries
        heavy = len(places) == 1 and self.form.heavy(entries[places[0]].size)
        return Piece(functools.partial(_make, self.form, entries, parts, places), heavy)

    def cut(self) -> list[Any]:
        """One by one, once the work is done."""
        whole = self.whole
        return whole.parts() if isinstance(whole, Elements) else [whole.cut(at) for at in range(len(self._run.entries))]

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.text())

    def text(self) -> bytes:
        text: bytes = self.whole.text
        return text

    def deflated(self) -> Deflated:
        return _deflated(self.form, self._run.group if self.form.keeps else None, self.text)


def _make(form: Form, entries: Sequence[Entry], parts: list[Any], places: Sequence[int]) -> bytes:
    """Nothing is sent of it."""
    for at in places:
        parts[at] = form.readable(entries[at], form.made)
    return b""


def _deflated(form: Form, group: Group | None, text: Callable[[], bytes]) -> Deflated:
    kept: Deflated | None = group.get(form.deflated_key) if group is not None else None
    form.cache.uses[Use.PIECE_MADE if kept is None else Use.PIECE_FOUND] += 1
    if kept is None:
        kept = gzip.deflate(text())
        if group is not None:
            form.cache.keep(group, form.deflated_key, kept, size=len(kept.data))
    return kept
