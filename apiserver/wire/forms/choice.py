"""Choose the form of a request."""

from __future__ import annotations

from collections.abc import Callable

from apiserver.apimachinery.request import NO_QUERY, Query
from apiserver.listcache.encoding import EncodingCache
from apiserver.schema.resource import Resource
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
"""The form for each kind that objects can be converted to."""


class Forms:
    """The forms of a server's answers. A form that reads nothing of the query is made once."""

    def __init__(self, *, clock: Callable[[], float], cache: EncodingCache) -> None:
        self._clock = clock
        self._cache = cache
        self._whole: dict[tuple[Representation, str, str, str], Form] = {}

    def of(self, chosen: Representation, resource: Resource, query: Query) -> Form:
        """Return the form of an answer. There are few representations and few resources."""
        if chosen.target is not None:
            return form(chosen, resource, query=query, clock=self._clock, cache=self._cache)
        key = chosen, resource.group, resource.plural, resource.version
        made = self._whole.get(key)
        if made is None:
            made = form(chosen, resource, query=NO_QUERY, clock=self._clock, cache=self._cache)
            self._whole[key] = made
        return made


def form(
    chosen: Representation, resource: Resource, *, query: Query, clock: Callable[[], float], cache: EncodingCache
) -> Form:
    """Make a form. `clock` returns seconds since the epoch. Raises 400 for a query that does not fit the form."""
    made = FORMS[chosen.target.kind if chosen.target is not None else ""]
    return made(chosen, resource, query=query, clock=clock, cache=cache)
