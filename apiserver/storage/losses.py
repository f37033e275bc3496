"""Count the acknowledged writes that a store lost in a failover, and name their objects.

n counts by one inside an epoch, and the store remembers the n with which each epoch ended. Two numbers per epoch give the loss:
the highest n that this process applied or acknowledged, and the n at which the surviving log left the epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from apiserver.storage.functions import Head
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Event, Key, Revision

NAMED = 100
"""The most keys that one log line names: an operator can act on so many, and the line stays short."""


@dataclass(frozen=True, slots=True)
class Losses:
    """`survived`: the epochs that lost writes → the last n of each that the store still has.

    `unknown`: the store has forgotten the epoch that this process followed last, so the loss cannot be counted.
    """

    count: int
    survived: Mapping[int, int]
    unknown: bool

    def lost(self, revision: Revision) -> bool:
        epoch, n = keys.parts(revision)
        return n > self.survived.get(epoch, n)


def highest(ended: Mapping[int, int], revisions: Iterable[Revision]) -> dict[int, int]:
    """Return epoch → the highest known n. `ended`: epochs that a fence closed, with their last n."""
    found = dict(ended)
    for revision in revisions:
        epoch, n = keys.parts(revision)
        found[epoch] = max(found.get(epoch, 0), n)
    return found


async def compare(known: Mapping[int, int], *, head_of: Callable[[int], Awaitable[Head]]) -> Losses:
    """Ask the store what it still has of each epoch. `head_of` also returns where an epoch ended. Raises what it raises."""
    count, survived, unknown = 0, dict[int, int](), False
    for epoch, n in known.items():
        head = await head_of(epoch)
        if epoch == head.epoch:
            left = keys.parts(head.last)[1]
        elif head.fenced is not None:
            left = head.fenced
        elif epoch < keys.parts(head.floor)[0]:
            # The store forgets the epochs below its floor, so it cannot say whether it ever had this one.
            unknown = unknown or epoch == max(known)
            continue
        else:
            left = 0
        if n > left:
            survived[epoch] = left
            count += n - left
    return Losses(count, survived, unknown=unknown)


def lost_keys(losses: Losses, unseen: Mapping[Revision, Key], newest_first: Iterable[Event]) -> list[Key]:
    """Return the objects whose writes were lost, newest writes first, at most `NAMED`.

    `unseen`: acknowledged writes that the log had not brought. `newest_first`: the events that were applied.
    """
    found: dict[Key, None] = {}
    for key in _keys(losses, unseen, newest_first):
        found[key] = None
        if len(found) == NAMED:
            break
    return list(found)


def _keys(losses: Losses, unseen: Mapping[Revision, Key], newest_first: Iterable[Event]) -> Iterator[Key]:
    for revision in sorted(unseen, reverse=True):
        if losses.lost(revision):
            yield unseen[revision]
    for event in newest_first:
        if not losses.lost(event.revision):
            return  # a branch is lost from its beginning on
        yield event.entry.key
