"""Losses: which acknowledged writes a surviving log does not hold."""

from __future__ import annotations

from apiserver.storage import losses
from apiserver.storage.functions import Head
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Event, EventType, Key, Revision, Unreadable


def revision(epoch: int, n: int) -> Revision:
    return keys.revision(f"{epoch}-{n}")


async def compared(known: dict[int, int], *, last: Revision, floor: Revision, ended: dict[int, int]) -> losses.Losses:
    async def head_of(epoch: int) -> Head:
        return Head(keys.parts(last)[0], last, floor, True, 0, 0, 0, ended.get(epoch), "", "1")

    return await losses.compare(known, head_of=head_of)


def event(at: Revision, name: str) -> Event:
    return Event(at, EventType.CREATED, Unreadable.named(Key(name), at, ()), None)


async def test_nothing_is_lost_when_the_store_has_gone_on() -> None:
    found = await compared({7: 4, 8: 2}, last=revision(9, 1), floor=revision(7, 1), ended={7: 4, 8: 5})
    assert found == losses.Losses(0, {}, unknown=False)


async def test_the_end_of_an_epoch_and_a_whole_epoch_are_lost() -> None:
    found = await compared({7: 9, 8: 3, 9: 1}, last=revision(9, 1), floor=revision(7, 0), ended={7: 4})
    assert found == losses.Losses(5 + 3, {7: 4, 8: 0}, unknown=False)
    assert found.lost(revision(7, 5))
    assert not found.lost(revision(7, 4))
    assert found.lost(revision(8, 1))
    assert not found.lost(revision(9, 7))


async def test_the_present_epoch_may_have_lost_its_end() -> None:
    found = await compared({7: 9}, last=revision(7, 6), floor=revision(7, 0), ended={})
    assert found == losses.Losses(3, {7: 6}, unknown=False)


async def test_an_epoch_below_the_floor_cannot_be_judged() -> None:
    last, floor = revision(9, 1), revision(9, 0)
    assert await compared({7: 9}, last=last, floor=floor, ended={}) == losses.Losses(0, {}, unknown=True)
    assert await compared({7: 9, 9: 1}, last=last, floor=floor, ended={}) == losses.Losses(0, {}, unknown=False)


def test_highest_joins_ended_epochs_and_revisions() -> None:
    known = losses.highest({6: 3, 7: 1}, (revision(7, 4), revision(8, 2), revision(8, 1)))
    assert known == {6: 3, 7: 4, 8: 2}


def test_keys_of_lost_writes_are_unique_bounded_and_newest_first() -> None:
    found = losses.Losses(250, {7: 4}, unknown=False)
    events = [event(revision(7, n), f"ns/o{n}") for n in range(400, 0, -1)]
    unseen = {revision(7, 401): Key("ns/o400"), revision(7, 402): Key("ns/late")}
    named = losses.lost_keys(found, unseen, events)
    assert named[:3] == ["ns/late", "ns/o400", "ns/o399"]
    assert len(named) == len(set(named)) == losses.NAMED
    few = losses.lost_keys(found, {}, events[-6:])
    assert few == ["ns/o6", "ns/o5"]
