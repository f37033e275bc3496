"""Define a patch type: one entry of the table in `app`. Routing, errors, OpenAPI and the write loop follow from it."""

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

    * `check(raw)` refuses a body before the object is looked up. It raises 400 and 413; None refuses nothing.
    * `read(raw, validation)` decodes a body. It raises 400. `validation` is Strict, Warn or Ignore.
    * `apply(patch, live, writer)` returns the new object, whole, with kind and apiVersion. `live` is the object as clients of this version
      see it, and stays unchanged. The result is JSON text, or a value if patches of this type respell raw JSON. The patch may be modified.
      Raises 413, 422 and other errors for the client.
    * `decode(terms, result, patch)` decodes the result of `apply`. It raises 422, and for an applied configuration 400 and 500.
    * `touches(patch)` returns the members of an object that the patch may change, or None if that is unknown. The others need not be
      encoded and decoded: `apply` and `decode` may see an object without them.
    * `growth(raw)` returns how many bytes longer the result may be than the live object and the body together.
    * `creates`: an absent object is created, from a live one that has only kind and apiVersion.
    * `applies`: this is server-side apply. It needs a fieldManager, may use force, and sets metadata.managedFields itself.
    """

    media: str
    read: Callable[[bytes, str], Document]
    apply: Callable[[Any, Object, Writer], Any]
    decode: Callable[[Terms, Any, Document], Object] = decode_patched
    touches: Callable[[Any], Set[str] | None] = lambda patch: None
    growth: Callable[[bytes], int] = lambda raw: 0
    check: Callable[[bytes], None] | None = None
    creates: bool = False
    applies: bool = False
