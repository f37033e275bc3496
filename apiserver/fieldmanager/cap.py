"""Limit the managers of an object that only updated it: the fields of the oldest become those of one manager.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/capmanagers.go`.
"""

from __future__ import annotations

from apiserver.codecs.objects.times import order
from apiserver.fieldmanager.entries import EPOCH, Identity, Managed, updater
from structuredmerge.updater import Owned

MAX_UPDATERS = 10
ANCIENT = "ancient-changes"


def capped(managed: Managed) -> Managed:
    """Return the managers, with at most the allowed number of updaters. Entries of two versions are never merged, so there can be more.

    Invariant: the managers together own no new fields. They lose none either, except one case, as upstream: the fields in a version's
    bucket that is not the oldest of its managers.
    """
    updaters = [name for name, owned in managed.managers.items() if not owned.applied]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return managed
    updaters.sort(key=lambda name: (order(managed.times.get(name, EPOCH)), name))
    managers, times = dict(managed.managers), dict(managed.times)
    buckets: dict[str, Identity] = {}
    first: dict[str, str] = {}
    for name in updaters:
        if excess <= 0:
            break
        owned = managers[name]
        version = owned.version
        if version not in first:
            first[version] = name
            continue
        identity = updater(ANCIENT, version, "")
        bucket = identity.text
        buckets[bucket] = identity
        if bucket not in managers:
            managers[bucket] = managers.pop(first[version])
        managers[bucket] = Owned(managers[bucket].set | owned.set, version, applied=False)
        del managers[name]
        excess -= 1
        if name in managed.times:
            times[bucket] = managed.times[name]
        else:
            times.pop(bucket, None)
    return Managed(managers, times, {**managed.identities, **buckets}, managed.stored)
