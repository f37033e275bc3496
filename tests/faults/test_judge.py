"""The judge excuses what docs/store-ha.md says, and nothing more."""

from __future__ import annotations

import pytest

from tests.faults import injection
from tests.faults.history import History
from tests.faults.injection import Window
from tests.faults.judge import Judge
from tests.faults.load import FORMS
from tests.faults.records import Answer, Kind, Listing, Operation, Records, kinds
from tests.faults.seen import Listed, Object, Seen, Selection
from tests.faults.truth import Change, Truth

KEY = ("a", "o0000")
[CLAIMS, SLICES] = kinds(1)
START, SURVIVED, LOST, AFTER = 100, 101, 102, 1000
"""Versions: the last one belongs to the epoch that follows."""
FAULTS = {fault.name: fault for fault in (*injection.SENTINEL_FAULTS, *injection.CLUSTER_FAULTS)}
KILLED, TAKEN_OVER = FAULTS["lagging replica promoted"], FAULTS["taken over by hand"]
WOKEN = next(fault for fault in injection.SENTINEL_FAULTS if fault.name == "primary stopped and woken")


def held(version: int, mark: str) -> Object:
    obj = CLAIMS.make(KEY, color="red", mark=mark)
    obj["metadata"]["resourceVersion"] = str(version)
    return obj


def truth() -> Truth:
    history = History(START, [held(90, "w0-1")])
    history.add("MODIFIED", held(SURVIVED, "w0-2"))
    return Truth(
        START, history, {START, SURVIVED, AFTER}, {SURVIVED: Change(SURVIVED, KEY, deletes=False, previous=90)}
    )


def judged(
    records: Records,
    *,
    durability: str = "replica",
    fault: injection.Fault = KILLED,
    moved: Kind = CLAIMS,
    down_ms: int = 5000,
) -> list[str]:
    window = Window(fault, 10.0, 20.0, frozenset([moved.resource]))
    judge = Judge(durability, lasting=False, down_ms=down_ms, windows=[window], truths={CLAIMS.plural: truth()})
    judge.round(records, [], {})
    return judge.findings


def write(verb: str, sent: float, done: float, *, status: int = 504) -> Operation:
    return Operation(CLAIMS, KEY, verb, "w1-1" if verb != "delete" else "", 0, Answer("server-0", sent, done, status))


def get(sent: float, done: float) -> Operation:
    answer = Answer("server-0", sent, done, 200)
    return Operation(CLAIMS, KEY, "get", "", 0, answer, LOST, held(LOST, "w1-1"))


def missing(sent: float, done: float) -> Operation:
    return Operation(CLAIMS, KEY, "get", "", 0, Answer("server-0", sent, done, 404))


def test_read_may_show_a_lost_write_that_was_under_way() -> None:
    assert judged(Records([write("update", 10.5, 11.5), get(11.0, 11.2)])) == []
    assert judged(Records([write("delete", 10.5, 11.5), missing(11.0, 11.2)])) == []


@pytest.mark.parametrize("sent", [11.6, 10.0])
def test_read_must_not_show_a_lost_write_that_was_not_under_way(sent: float) -> None:
    [finding] = judged(Records([write("update", 10.5, 11.5), get(sent, sent + 0.1)]))
    assert "no state explains get" in finding
    [finding] = judged(Records([write("delete", 10.5, 11.5), missing(sent, sent + 0.1)]))
    assert "no state explains get" in finding


def test_read_must_not_show_another_write_than_the_one_under_way() -> None:
    assert len(judged(Records([write("delete", 10.5, 11.5), get(11.0, 11.2)]))) == 1
    assert len(judged(Records([write("update", 10.5, 11.5), missing(11.0, 11.2)]))) == 1


def test_refused_write_excuses_nothing() -> None:
    assert len(judged(Records([write("update", 10.5, 11.5, status=503), get(11.0, 11.2)]))) == 1


def test_failover_of_another_resource_excuses_nothing() -> None:
    records = Records([write("update", 10.5, 11.5), get(11.0, 11.2)])
    assert len(judged(records, moved=SLICES)) == 1
    assert len(judged(records, moved=SLICES, durability="primary")) == 1


@pytest.mark.parametrize(
    ("now", "before", "found"),
    [([], [], 1), ([503, 404], [], 1), ([], [503], 1), ([504], [], 0), ([], [504], 0), ([-1], [503], 0)],
)
def test_deletion_was_asked_for_by_a_request_in_doubt(now: list[int], before: list[int], found: int) -> None:
    """Perhaps by one of the round before: its server may have gone on with it."""
    history = History(START, [held(90, "w0-1")])
    history.add("DELETED", held(SURVIVED, "w0-1"))
    changes = {SURVIVED: Change(SURVIVED, KEY, deletes=True, previous=90)}
    truths = {CLAIMS.plural: Truth(START, history, {START, SURVIVED}, changes)}
    judge = Judge("replica", lasting=False, down_ms=5000, windows=[], truths=truths)
    records = Records([write("create", 9.0, 9.1, status=503), *(write("delete", 11.0, 11.1, status=s) for s in now)])
    judge.round(records, [], {}, before=[write("delete", 1.0, 2.0, status=status) for status in before])
    assert [f"{KEY} was deleted at [{SURVIVED}]" in finding for finding in judge.findings] == [True] * found


def listing(version: int, item: int, sent: float) -> Listing:
    form = FORMS[0]
    seen = Seen(KEY, item, form.look(held(item, {LOST: "w1-1", 90: "w0-1"}[item])))
    listed = Listed(version, "", [seen])
    return Listing(CLAIMS, form, Selection(), "newest", 0, "server-0", sent, sent + 0.1, listed)


def test_consistent_list_may_show_a_lost_write_only_while_it_is_under_way() -> None:
    writes = [write("update", 10.5, 11.5)]
    assert judged(Records(writes, [listing(LOST, LOST, 11.0)])) == []
    [finding] = judged(Records(writes, [listing(LOST, LOST, 11.6)]))
    assert f"at the lost {LOST}" in finding
    assert judged(Records(writes, [listing(LOST, LOST, 11.6)]), durability="primary") == []


def test_acknowledged_write_is_lost_only_where_the_promise_says_so() -> None:
    lost = write("update", 11.0, 11.1, status=200)
    lost.version, lost.obj = LOST, held(LOST, "w1-1")
    assert len(judged(Records([lost]))) == 1
    assert judged(Records([lost]), durability="primary") == []
    assert judged(Records([lost]), fault=WOKEN) == []
    assert len(judged(Records([lost]), fault=TAKEN_OVER)) == 1
    assert judged(Records([lost]), fault=TAKEN_OVER, durability="primary") == []
    assert len(judged(Records([lost]), fault=WOKEN, durability="all")) == 1


def test_confirmed_writes_are_lost_for_a_second_only() -> None:
    def lost(at: float, version: int) -> Operation:
        wrote = write("update", at - 0.1, at, status=200)
        wrote.version, wrote.obj = version, held(version, "w1-1")
        return wrote

    records = Records([lost(11.0, LOST), lost(15.0, LOST + 1)])
    [finding] = judged(records, fault=WOKEN)
    assert "2 writes were lost for 4.0 s" in finding
    assert judged(records, fault=WOKEN, durability="primary") == []
    assert judged(records, fault=FAULTS["primary cut off with a replica"]) == []


def test_consistent_list_is_stale_only_where_the_old_primary_cannot_know() -> None:
    wrote = write("update", 10.5, 10.6, status=200)
    wrote.mark, wrote.version, wrote.obj = "w0-2", SURVIVED, held(SURVIVED, "w0-2")
    records = Records([wrote], [listing(START, 90, 11.0)])
    [finding] = judged(records, fault=TAKEN_OVER)
    assert f"at {START} after {SURVIVED}" in finding
    assert judged(records, fault=TAKEN_OVER, down_ms=1000) == []
    assert judged(records, fault=TAKEN_OVER, durability="primary") == []
    assert len(judged(records, fault=KILLED, durability="replica", down_ms=1000)) == 1


@pytest.mark.parametrize(("started", "found"), [([], 1), ([9.0], 1), ([10.7], 0)])
def test_server_must_not_acknowledge_a_lower_version_than_it_has_shown(started: list[float], found: int) -> None:
    """A server that has started since did not show that version itself."""
    written = write("update", 11.0, 11.2, status=200)
    written.version, written.obj = SURVIVED, held(SURVIVED, "w0-2")
    records = Records([written], shown={("server-0", CLAIMS.plural): [(9.5, START), (10.5, LOST)]})
    window = Window(KILLED, 10.0, 20.0, frozenset([CLAIMS.resource]))
    judge = Judge("replica", lasting=False, down_ms=5000, windows=[window], truths={CLAIMS.plural: truth()})
    judge.round(records, [], {}, {"server-0": started})
    assert [f"came after {LOST}" in finding for finding in judge.findings] == [True] * found
