"""Shorten applied configurations that are too large for the store: most of their texts need not be merged to find that out.

An apply must still report conflicts and invalid members before the store refuses the object. Conflicts occur only where another manager
owns a field already. A text that is new to all managers is in the result in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from apiserver.apimachinery import meta
from apiserver.schema.resource import Object
from kubetext import sorting
from structuredmerge import paths
from structuredmerge.sets import EMPTY, Set
from structuredmerge.values import STRING

Excess = dict[str, Any]
"""The texts removed from a configuration, by member of metadata: labels, annotations or finalizers."""


def taken(patch: Object, live: Object, owned: Iterable[Set], *, most: int) -> tuple[Object, Excess]:
    """Return a valid configuration without its new texts, and these texts. Nothing is removed if the texts have up to `most` bytes.

    `owned` has the fields of all managers. One new text stays in each member, so that the object changes.
    """
    metadata = patch.get("metadata") or {}
    if meta.text_bytes(metadata) <= most:
        return patch, {}
    before, sets = live.get("metadata") or {}, list(owned)
    left, excess = dict(metadata), {}
    for name in meta.TEXTS:
        if texts := metadata.get(name):
            known = _known(name, before.get(name) or (), sets)
            left[name], excess[name] = _divided(texts, known)
    return {**patch, "metadata": left}, excess


def put_back(excess: Excess, metadata: Object) -> None:
    """Add the removed texts to the metadata of the result."""
    for name, texts in excess.items():
        before = metadata.get(name)
        metadata[name] = {**(before or {}), **texts} if isinstance(texts, dict) else [*(before or ()), *texts]


def _divided(texts: Any, known: set[str]) -> tuple[Any, Any]:
    new = [text for text in texts if text not in known][1:]
    if isinstance(texts, list):
        drop = sorting.members(new)
        return [text for text in texts if text not in drop], new
    added = {text: texts[text] for text in new}
    return {text: value for text, value in texts.items() if text not in added}, added


def _known(name: str, before: Iterable[str], owned: Iterable[Set]) -> set[str]:
    """Return the texts of a member that the live object has or that a manager owns."""
    known = set(before)
    for set_ in owned:
        below = set_.children.get(paths.field("metadata"), EMPTY).children.get(paths.field(name), EMPTY)
        for kind, value in (*below.members, *below.children):
            if kind == paths.FIELD:
                known.add(value)
            elif kind == paths.VALUE and value[0] == STRING:
                known.add(value[1])
    return known
