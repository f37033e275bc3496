"""Neighbours of a list in one form: what is kept of them, what has to be made of them first, and what they look like then."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from apiserver.listcache import group as groups
from apiserver.listcache import gzip
from apiserver.listcache.encoding import Group, IncompleteEncoding, JoinedEncoding, Use
from apiserver.listcache.group import Chunk
from apiserver.listcache.gzip import CompressedEncoding
from apiserver.watchcache.entry import Entry
from apiserver.wire.forms.syntax import ChunkPiece, Pieces, Step

if TYPE_CHECKING:
    from apiserver.wire.forms.form import Form


class StoredPiece(ChunkPiece):
    """Stored bytes, which are elements as they are. They are kept compressed, and asked for to be sent so."""

    __slots__ = ("_form", "_packed", "_run")

    def __init__(self, form: Form, run: Chunk) -> None:
        self._form, self._run = form, run
        self._packed: CompressedEncoding | None = None

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.text())

    def cached_bytes(self) -> int:
        kept = self._packed = _cached_compressed(self._form, self._run)
        return len(kept.data) if kept is not None else 0

    def steps(self) -> Pieces:
        yield from ()

    def text(self) -> bytes:
        return b",".join([entry.body for entry in self._run.entries])

    def texts(self) -> Sequence[bytes]:
        """Nothing is copied, for who holds a list for long."""
        between = [piece for entry in self._run.entries for piece in (entry.body, b",")]
        return between[:-1]

    def compressed(self) -> CompressedEncoding:
        return _deflated(self._form, self._run, self.text, kept=self._packed)

    def release(self, *, entirely: bool = False) -> None:
        """Nothing was made."""


class EncodedPiece(ChunkPiece):
    """JoinedEncoding that have to be made of what is stored. `compressed`: they are asked for to be sent so."""

    __slots__ = ("_packed", "_run", "form", "wants_gzip", "whole")

    whole: Any
    """All of them together, once the work is done."""

    def __init__(self, form: Form, run: Chunk, *, compressed: bool = False) -> None:
        self.form, self._run, self.wants_gzip = form, run, compressed
        self._packed: CompressedEncoding | None = None
        self.whole = self._found()

    def _found(self) -> Any:
        """What is kept of all of them together; None when there is nothing."""
        group = self._run.group
        kept = group.use(self.form.key) if group is not None else None
        if kept is None or isinstance(kept, IncompleteEncoding):
            return None
        self.form.cache.uses[Use.OBJECT_FOUND] += self._run.length
        return kept

    def cached_bytes(self) -> int:
        if self.whole is None:
            return 0
        if not self.wants_gzip:
            return self.size
        kept = self._packed = _cached_compressed(self.form, self._run)
        return len(kept.data) if kept is not None else 0

    def steps(self) -> Pieces:
        if self.whole is None:
            self.whole = self._found()  # another list may have made them since
        if self.whole is not None:
            return
        form, group = self.form, self._run.group
        parts, at = self._begun(), 0
        while places := self._next(parts, at):
            yield self._piece(parts, places)
            at = places[-1] + 1
        self.whole = form.joined(parts)
        if group is not None and form.keeps and group.count:
            form.cache.keep(group, form.key, self.whole, size=self.whole.size)

    def release(self, *, entirely: bool = False) -> None:
        group = self._run.group
        if entirely or group is None or group.get(self.form.key) is not self.whole:
            self.whole = None

    def _begun(self) -> list[Any]:
        """What is there of each. Lists that come at the same time share it: each makes what the others have not made yet."""
        form, entries, group = self.form, self._run.entries, self._run.group
        if not form.keeps:
            return [None] * len(entries)
        draft = group.use(form.key) if group is not None else None
        if not isinstance(draft, IncompleteEncoding):
            # What was kept of them was taken over when they were put together.
            draft = IncompleteEncoding([groups.member(entry, form.key) if group is None else None for entry in entries])
            if group is not None:
                form.cache.keep(group, form.key, draft, size=draft.size)
        missing = draft.parts.count(None)
        form.cache.uses[Use.OBJECT_FOUND] += len(entries) - missing
        form.cache.uses[Use.OBJECT_MADE] += missing
        return draft.parts

    def _next(self, parts: Sequence[Any], at: int) -> list[int]:
        """As many as one step allows of those that are still to be made, from that place on; one that is heavy by itself stands alone."""
        entries, start, reach = self._run.objects, self._run.start, self.form.reach
        places, size = list[int](), 0
        for place in range(at, len(parts)):
            if parts[place] is None:
                entry = entries[start + place]
                size += len(entry.body) + len(entry.verbatim)
                if size > reach and places:
                    break
                places.append(place)
        return places

    def _piece(self, parts: list[Any], places: Sequence[int]) -> Step[bytes]:
        entries = self._run.entries
        heavy = len(places) == 1 and self.form.heavy(entries[places[0]].size)
        return Step(functools.partial(_make, self.form, entries, parts, places), heavy)

    def cut(self) -> list[Any]:
        """One by one, once the work is done."""
        whole = self.whole
        return whole.parts() if isinstance(whole, JoinedEncoding) else [whole.cut(at) for at in range(self._run.length)]

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.text())

    def text(self) -> bytes:
        text: bytes = self.whole.text
        return text

    def compressed(self) -> CompressedEncoding:
        return _deflated(self.form, self._run, self.text, kept=self._packed, keep=self.form.keeps)


def _make(form: Form, entries: Sequence[Entry], parts: list[Any], places: Sequence[int]) -> bytes:
    """Nothing is sent of it."""
    for at, made in zip(places, form.encodings_of([entries[at] for at in places]), strict=True):
        parts[at] = made
    return b""


def _place(form: Form, run: Chunk) -> tuple[Group | None, object]:
    """Where these are kept compressed: beside which group, under which key."""
    part = run.part
    return (
        (run.group, form.compressed_key) if part is None else (part.group, (form.compressed_key, part.start, part.stop))
    )


def _cached_compressed(form: Form, run: Chunk) -> CompressedEncoding | None:
    if run.part is None:
        return run.group.use(form.compressed_key) if run.group is not None else None
    group, key = _place(form, run)
    return group.use(key) if group is not None else None


def _deflated(
    form: Form,
    run: Chunk,
    text: Callable[[], bytes],
    *,
    kept: CompressedEncoding | None,
    keep: bool = True,
) -> CompressedEncoding:
    """`kept` is what has just been found of it."""
    if kept is None:
        kept = _cached_compressed(form, run)
    form.cache.uses[Use.PIECE_MADE if kept is None else Use.PIECE_FOUND] += 1
    if kept is None:
        kept = gzip.compress(text())
        group, key = _place(form, run)
        if keep and group is not None and group.count:
            form.cache.keep(group, key, kept, size=len(kept.data))
    return kept
