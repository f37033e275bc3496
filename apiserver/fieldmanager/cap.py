"""How many managers an object may have that only updated it: the changes of the oldest become those of one.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/capmanagers.go`.
"""

from __future__ import annotations

from apiserver.codecs.objects.times import order
from apiserver.fieldmanager.entries import EPOCH, Identity, Managed, updater
from structuredmerge.updater import Owned

MAX_UPDATERS = 10
ANCIENT = "ancient-changes"


def capped(managed: Managed) -> Managed:
    """The managers, of those that update as many as there may be. Entries of two versions are never one: there can be more.

    Law: nobody owns together what nobody owned, and nothing is lost but, as upstream does, what the bucket of a version holds that is
    not the oldest of its managers.
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
