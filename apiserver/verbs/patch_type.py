"""What a patch type is: one entry of the table that `app` composes. Routing, errors, OpenAPI and the write loop follow from it."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from apiserver.fieldmanager.writer import Writer
from apiserver.schema.resource import Object
from apiserver.wire.body import Terms, decode_patched
from apiserver.wire.patches import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchType:
    """One media type of PATCH. All functions are pure, and called again in every round of the write.

    `read(raw, validation)` decodes a body; it raises 400, `validation` is Strict, Warn or Ignore.
    `apply(patch, live, writer)` makes the new object, whole, with kind and apiVersion, of the decoded patch and the live object as clients
    of this version see it, which it leaves as it is: its JSON text, or its value where a patch of this type respells raw JSON. The patch
    may be used up. Raises 413, 422, and whatever else a client is to be told.
    `decode(terms, result, patch)` reads what `apply` made; it raises 422, and 400 and 500 of an applied configuration.
    `touches(patch)` names the members of an object that the patch may change, or says None where that is not known. The others need not be
    written down and read again: `apply` and `decode` may see an object without them.
    `growth(raw)` says by how many bytes the result may be longer than the live object and the body together.
    `creates`: an object that is absent is created, of a live one that has nothing but kind and apiVersion.
    `applies`: it is server-side apply. It needs a fieldManager, may use force, and keeps metadata.managedFields itself.
    """

    media: str
    read: Callable[[bytes, str], Document]
    apply: Callable[[Any, Object, Writer], Any]
    decode: Callable[[Terms, Any, Document], Object] = decode_patched
    touches: Callable[[Any], Set[str] | None] = lambda patch: None
    growth: Callable[[bytes], int] = lambda raw: 0
    creates: bool = False
    applies: bool = False
