"""Count the watches that a write concerns: each is work after the write.

Upstream: kubernetes/apiserver `pkg/util/flowcontrol/watch_tracker.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Query, RequestInfo

Place = tuple[str, str, str, str]
"""Group, resource, namespace, name; "" for all."""


class Watches:
    """`indexed` are the labels of fields by which events find their watchers, by group and resource.

    A watch of one value of such a field is not counted: few writes concern it. Upstream has one such field, the node of a pod.
    """

    def __init__(self, indexed: Mapping[tuple[str, str], Sequence[str]]) -> None:
        self._indexed = indexed
        self._counts: dict[Place, int] = {}

    def opened(self, info: RequestInfo, query: Query) -> Place | None:
        """Count a watch. Return what `closed` needs."""
        fields = self._indexed.get((info.group, info.resource), ())
        if fields and _names_one(query, fields):
            return None
        place = (info.group, info.resource, info.namespace, info.name)
        self._counts[place] = self._counts.get(place, 0) + 1
        return place

    def closed(self, place: Place | None) -> None:
        """Count a watch no longer."""
        if place is None:
            return
        left = self._counts[place] - 1
        if left:
            self._counts[place] = left
        else:
            del self._counts[place]

    def concerned(self, info: RequestInfo) -> int:
        """Return how many watches a write concerns."""
        counts = self._counts
        if not counts:
            return 0
        group, resource, namespace, name = info.group, info.resource, info.namespace, info.name
        found = counts.get((group, resource, "", ""), 0)
        if namespace:
            found += counts.get((group, resource, namespace, ""), 0)
        if name:
            found += counts.get((group, resource, namespace, name), 0)
        return found


def _names_one(query: Query, fields: Sequence[str]) -> bool:
    """Return whether the field selector names a value of one of these fields. An invalid one does not: the watch will be refused."""
    given = query.selectors
    if not given.field_text or given.large:
        return False
    try:
        return any(given.fields.requires(label) for label in fields)
    except StatusError:
        return False
