"""Which class makes a form."""

from __future__ import annotations

from collections.abc import Callable

from apiserver.apimachinery.request import Query
from apiserver.schema.resource import Resource
from apiserver.watchcache.encodings import EncodingCache
from apiserver.wire import representation
from apiserver.wire.forms.form import Form
from apiserver.wire.forms.partial import Partial, PartialList
from apiserver.wire.forms.table import Table
from apiserver.wire.forms.whole import Whole
from apiserver.wire.representation import Representation

FORMS: dict[str, type[Form]] = {
    "": Whole,
    representation.TABLE: Table,
    representation.PARTIAL: Partial,
    representation.PARTIAL_LIST: PartialList,
}
"""By the kind that an object is turned into."""


def form(
    chosen: Representation, resource: Resource, *, query: Query, clock: Callable[[], float], cache: EncodingCache
) -> Form:
    """What a request is answered in; `clock` is in seconds since the epoch. Raises 400 for a query that does not fit the form."""
    made = FORMS[chosen.target.kind if chosen.target is not None else ""]
    return made(chosen, resource, query=query, clock=clock, cache=cache)
