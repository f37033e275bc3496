"""Compare all that clients got with what the store held in the end, and with what a durability promises (docs/storage.md).

A version is lost if the log that survived does not have it. Acknowledged writes may be lost, reads may be stale, and a 410 may be about a
version that survived, only in windows of faults that say so. Where replicas confirm writes, a consistent answer may also rest on a write
that was under way while it was asked for, and that a failover has lost (docs/store-ha.md).
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from apiserver.watchcache import keys
from tests.faults.history import Broken, mark_of
from tests.faults.injection import Window
from tests.faults.records import Expired, Kind, Listing, Operation, Records, Segment, Watcher
from tests.faults.seen import Key, Listed, Seen, Selection, bare, version_of
from tests.faults.truth import Truth

IN_FLIGHT = 2.0
"""Seconds before a fault within which a replica may not have what was acknowledged, on a busy machine."""
AFTER = 1.0
"""Seconds after a fault within which servers may still follow the old primary."""
TWO_PRIMARIES = 2.0
"""Seconds for which a replica may confirm what another one, which takes over, will never have: one in docs/store-ha.md, and one for a busy
machine."""
LAG_MS = 5000
"""A primary that is alone stops answering consistent reads before this time, if acknowledgements need replicas."""

_NOBODY: Mapping[str, Sequence[float]] = MappingProxyType({})


class Judge:
    """Finds what is wrong in one round. `findings` are texts; `counts` say how much was compared, and what was excused."""

    def __init__(
        self, durability: str, *, lasting: bool, down_ms: int, windows: Sequence[Window], truths: dict[str, Truth]
    ) -> None:
        """`lasting`: a store of one node, which loses nothing that anybody saw."""
        self.durability, self._lasting, self._truths = durability, lasting, truths
        self._windows = windows
        self._confirms = durability != "primary"
        self._lossy = [window for window in windows if durability in window.fault.loses]
        self._split = [window for window in windows if window.fault.splits]
        self._may_be_stale = durability == "primary" or down_ms < LAG_MS
        self._losses: dict[int, list[float]] = defaultdict(list)
        """By the place of a window: when each acknowledged write was answered that it excuses."""
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()

    # Excuses

    def _within(self, windows: Iterable[Window], kind: Kind, sent: float, done: float, before: float) -> bool:
        """`before`: seconds before a fault that still count."""
        return any(
            kind.resource in w.moved and w.begin - before <= done and sent <= min(w.end + AFTER, w.left)
            for w in windows
        )

    def _of_lost_branch(self, kind: Kind, sent: float, done: float, windows: Iterable[Window] | None = None) -> bool:
        # A fault loses no confirmed write that a client got before it.
        before = 0 if self._confirms else IN_FLIGHT
        return self._within(self._lossy if windows is None else windows, kind, sent, done, before)

    def _spans(self) -> None:
        """Where replicas confirm, only a replica that is cut off with the old primary confirms lost writes for long."""
        for place, times in self._losses.items():
            window, span = self._lossy[place], max(times) - min(times)
            if self._confirms and not window.fault.blind and span > TWO_PRIMARIES:
                self._find(f"{len(times)} writes were lost for {span:.1f} s{self._during(min(times), max(times))}")

    def _lost(self, what: str, kind: Kind, sent: float, done: float) -> None:
        if self._of_lost_branch(kind, sent, done):
            self.counts["excused: lost"] += 1
            for place, window in enumerate(self._lossy):
                if self._of_lost_branch(kind, sent, done, [window]):
                    self._losses[place].append(done)
        else:
            self._find(f"lost: {what}{self._during(sent, done)}")

    def _stale(self, what: str, kind: Kind, sent: float, done: float) -> None:
        """An answer that the surviving log does not explain."""
        if self._may_be_stale and self._within(self._split, kind, sent, done, 0):
            self.counts["excused: stale"] += 1
        elif self._of_lost_branch(kind, sent, done):
            self.counts["excused: of a lost branch"] += 1
        else:
            self._find(f"{what}{self._during(sent, done)}")

    def _under_way(self, writes: Iterable[Operation], kind: Kind, sent: float, done: float) -> bool:
        """Whether one of these writes was under way while an answer was asked for, and a failover may have lost it since."""
        return (
            self._confirms
            and any(w.answer.sent <= done and _ended(w) >= sent for w in writes)
            and self._within(self._windows, kind, sent, done, IN_FLIGHT)
        )

    def _during(self, sent: float, done: float) -> str:
        names = [
            f"{w.fault.name} ({w.begin:.2f}-{w.end:.2f}{''.join(f', moved {name}' for name in sorted(w.moved))})"
            for w in self._windows
            if w.begin - IN_FLIGHT <= done and sent <= w.end + AFTER
        ]
        return f"; during {', '.join(names) or 'no fault'}"

    def _find(self, text: str) -> None:
        self.findings.append(text)

    # All

    def round(
        self,
        records: Records,
        watchers: Sequence[Watcher],
        down: Mapping[str, Sequence[tuple[float, float]]],
        started: Mapping[str, Sequence[float]] = _NOBODY,
        before: Sequence[Operation] = (),
    ) -> None:
        """Judge all answers. `down`: when servers were stopped or killed; `started`: when they were started again. `before`: writes of the
        round before that were in doubt, because a server may have gone on with them."""
        self.findings += records.wrong
        by_kind: dict[str, list[Operation]] = defaultdict(list)
        for operation in records.operations:
            by_kind[operation.kind.plural].append(operation)
        for plural, operations in by_kind.items():
            self._writes(self._truths[plural], operations, [write for write in before if write.kind.plural == plural])
            self._order(self._truths[plural], operations)
            self._answers(self._truths[plural], operations)
        self._rising(records, started)
        self._spans()
        newest = {plural: self._newest_before(plural, operations) for plural, operations in by_kind.items()}
        writes: dict[tuple[str, Key], list[Operation]] = defaultdict(list)
        for operation in records.operations:
            if operation.verb != "get" and not operation.refused:
                writes[operation.kind.plural, operation.key].append(operation)
        for listing in records.lists:
            self._listing(listing, newest.get(listing.kind.plural, _nothing), writes)
        for watcher in watchers:
            for segment in watcher.segments:
                self._try(watcher.name, self._segment, watcher, segment, last=segment is watcher.segments[-1])
        self._one_state(records, watchers)
        for expired in records.expired:
            self._expired(expired)
        for server, at, what in records.cut:
            if not any(begin - 0.5 <= at <= end + 0.5 for begin, end in down.get(server, ())):
                self._find(f"{server} did not end an answer: {what}")

    def _try(self, name: str, check: Callable[..., None], *args: object, **options: object) -> None:
        try:
            check(*args, **options)
        except (Broken, AssertionError) as broken:
            self._find(f"{name}: {broken}")

    # Writes

    def _writes(self, truth: Truth, operations: Sequence[Operation], before: Sequence[Operation]) -> None:
        marks = truth.history.marks()
        deletions: dict[Key, set[int]] = defaultdict(set)
        for change in truth.changes.values():
            if change.deletes:
                deletions[change.key].add(change.version)
        for mark, count in marks.items():
            if count > 1:
                self._find(f"the write {mark} happened {count} times")
        for operation in operations:
            if operation.verb == "get":
                continue
            if operation.acknowledged:
                self.counts["acknowledged writes"] += 1
                deletions[operation.key].discard(operation.version)
                self._acknowledged(truth, operation)
            elif operation.refused:
                self.counts["refused writes"] += 1
                if operation.mark and marks[operation.mark]:
                    self._find(f"refused, and done: {operation}")
            else:
                self.counts["writes in doubt"] += 1
        self._deletions(truth, [*before, *operations], deletions)

    def _acknowledged(self, truth: Truth, operation: Operation) -> None:
        change = truth.changes.get(operation.version)
        if change is None:
            if operation.version in truth.survivors:
                self._find(f"acknowledged with the version of an epoch: {operation}")
            else:
                self.counts["lost writes"] += 1
                self._lost(str(operation), operation.kind, operation.answer.sent, operation.answer.done)
            return
        if change.key != operation.key or change.deletes != (operation.verb == "delete"):
            self._find(f"a version names two states: {operation} and {change}")
            return
        assert operation.obj is not None
        if operation.verb != "delete" and truth.history.at(operation.key, operation.version) != bare(operation.obj):
            self._find(
                f"a version names two states: {operation} and {truth.history.at(operation.key, operation.version)}"
            )
        if operation.expected and change.previous != operation.expected:
            self._find(f"{operation} was done on {change.previous}")
        if operation.verb == "create" and change.previous:
            self._find(f"{operation} replaced {change.previous}")

    def _deletions(self, truth: Truth, operations: Sequence[Operation], left: dict[Key, set[int]]) -> None:
        """Each deletion in the log is an acknowledged one, or one in doubt."""
        asked: dict[Key, list[Operation]] = defaultdict(list)
        for operation in operations:
            if operation.verb == "delete" and operation.version not in truth.changes:
                asked[operation.key].append(operation)
        for key, versions in left.items():
            doubtful = sum(operation.doubtful for operation in asked[key])
            if len(versions) > doubtful:
                others = "; ".join(f"{each}{self._during(each.answer.sent, each.answer.done)}" for each in asked[key])
                self._find(f"{key} was deleted at {sorted(versions)}, for {doubtful} in doubt; not done: {others}")

    def _order(self, truth: Truth, operations: Sequence[Operation]) -> None:
        """A write that began after another was acknowledged has a higher version."""
        mine = [o for o in operations if o.acknowledged and o.version in truth.survivors]
        before = _Highest((o.answer.done, o.version) for o in mine)
        for operation in mine:
            if before.until(operation.answer.sent) >= operation.version:
                self._find(f"{operation} came after {before.until(operation.answer.sent)}")

    def _rising(self, records: Records, started: Mapping[str, Sequence[float]]) -> None:
        """A server acknowledges no lower version than it has shown before, even if the store has lost that one since."""
        for operation in filter(lambda o: o.acknowledged, records.operations):
            server, sent = operation.answer.server, operation.answer.sent
            shown = records.shown.get((server, operation.kind.plural), ())
            place = bisect.bisect_left(shown, (sent, 0))
            begun = max((at for at in started.get(server, ()) if at < sent), default=0.0)
            if place and shown[place - 1][0] >= begun and shown[place - 1][1] > operation.version:
                self._find(f"{operation} came after {shown[place - 1][1]}{self._during(sent, operation.answer.done)}")

    # Answers about one object

    def _answers(self, truth: Truth, operations: Sequence[Operation]) -> None:
        by_key: dict[Key, list[Operation]] = defaultdict(list)
        for operation in operations:
            by_key[operation.key].append(operation)
        for mine in by_key.values():
            done = [o for o in mine if o.acknowledged and o.version in truth.survivors]
            before = _Highest((o.answer.done, o.version) for o in done)
            after = _Highest((-o.answer.sent, -o.version) for o in done)
            for operation in mine:
                if operation.answer.status in (404, 409) or (operation.verb == "get" and operation.version):
                    low = max(before.until(operation.answer.sent), truth.start)
                    high = -after.until(-operation.answer.done, default=-(1 << 63))
                    self._answer(truth, mine, operation, low, high)

    def _answer(self, truth: Truth, mine: Sequence[Operation], operation: Operation, low: int, high: int) -> None:
        """Some state of the object between these versions explains the answer."""
        self.counts["answers about objects"] += 1
        key = operation.key
        versions = truth.history.versions(key)
        first = bisect.bisect_right(versions, low)
        states = [(low, truth.history.at(key, low))] + [
            (version, truth.history.at(key, version)) for version in versions[first:] if version < high
        ]
        held = [int(obj["metadata"]["resourceVersion"]) if obj is not None else 0 for _, obj in states]
        verb, status = operation.verb, operation.answer.status
        if status == 404:
            right = 0 in held
        elif verb == "get":
            right = operation.version in held
            if right and operation.obj is not None and truth.history.at(key, operation.version) != bare(operation.obj):
                self._find(f"a version names two states: {operation}")
        elif verb == "create":
            right = any(held)
        elif operation.expected:
            right = any(version not in (0, operation.expected) for version in held)
        else:
            right = len(states) > 1  # it gave up after retries
        if right:
            return
        answer, kind = operation.answer, operation.kind
        if self._under_way(_shown(operation, mine), kind, answer.sent, answer.done):
            self.counts["excused: unconfirmed"] += 1
        else:
            text = f"no state explains {operation}: the object was {held} between {low} and {high}"
            self._stale(text, kind, answer.sent, answer.done)

    def _newest_before(self, plural: str, operations: Sequence[Operation]) -> Callable[[float], int]:
        survivors = self._truths[plural].survivors
        highest = _Highest((o.answer.done, o.version) for o in operations if o.acknowledged and o.version in survivors)
        return highest.until

    # Lists and watches

    def _listing(
        self,
        listing: Listing,
        newest: Callable[[float], int],
        writes: Mapping[tuple[str, Key], Sequence[Operation]],
    ) -> None:
        truth, version = self._truths[listing.kind.plural], listing.listed.version
        name = f"list {listing.way} of {listing.kind.plural} by {listing.server}"
        self.counts["lists"] += 1
        if listing.way == "exact" and version != listing.known:
            self._find(f"{name} at {version}, for {listing.known}")
        if listing.way == "least" and version < listing.known and listing.known in truth.survivors:
            self._find(f"{name} at {version}, for at least {listing.known}")
        consistent = listing.way in ("newest", "walk")
        if consistent and version < newest(listing.sent):
            self._stale(f"{name} at {version} after {newest(listing.sent)}", listing.kind, listing.sent, listing.done)
        if version not in truth.survivors:
            if self._lasting:
                self._find(f"{name}: the version {version} was lost")
            elif consistent and self._confirms:
                self._of_lost_version(name, truth, listing, writes)
            return
        self._try(name, truth.history.check_list, listing.form, listing.chosen, listing.listed)

    def _of_lost_version(
        self, name: str, truth: Truth, listing: Listing, writes: Mapping[tuple[str, Key], Sequence[Operation]]
    ) -> None:
        """Its difference from the log that survived is made of writes that were under way."""
        listed, kind = {seen.key: seen.version for seen in listing.listed.items}, listing.kind
        held, known = {}, truth.history.keys()
        for key in known:
            obj = truth.history.at(key, listing.listed.version)
            if obj is not None and listing.chosen.selects(obj):
                held[key] = version_of(obj)
        different = {key for key in listed.keys() | held.keys() if listed.get(key) != held.get(key)}
        for key in different:
            if self._under_way(writes.get((kind.plural, key), ()), kind, listing.sent, listing.done):
                self.counts["excused: unconfirmed"] += 1
            else:
                text = (
                    f"{name} at the lost {listing.listed.version} has {key} at {listed.get(key)}, not {held.get(key)}"
                )
                self._stale(text, kind, listing.sent, listing.done)

    def _segment(self, watcher: Watcher, segment: Segment, *, last: bool) -> None:
        truth, survivors = self._truths[watcher.kind.plural], self._truths[watcher.kind.plural].survivors
        if segment.begin in survivors and segment.initial is not None:
            truth.history.check_list(watcher.form, watcher.chosen, Listed(segment.begin, "", segment.initial))
        told = [event for event, _, _ in segment.told]
        versions = [event.seen.version for event in told]
        if any(one > other for one, other in itertools.pairwise(versions)):
            raise Broken(f"versions go back in {versions}")
        end = next((place for place, version in enumerate(versions) if version not in survivors), len(versions))
        if segment.begin not in survivors:
            end = 0
        for event in told[end:]:
            self.counts["lost events"] += 1
            if event.seen.version in survivors:
                raise Broken(f"{event} comes after the lost version {versions[end] if versions else segment.begin}")
        lost = end < len(versions) or segment.begin not in survivors
        if lost and self._lasting:
            raise Broken(f"a lost version was shown: {versions[end : end + 1] or segment.begin}")
        if segment.begin in survivors:
            truth.history.check_watch(watcher.form, watcher.chosen, segment.begin, told[:end], whole=last and not lost)
        if watcher.chosen == Selection():
            _dense(segment.begin, [event.seen.version for event in told if event.type != "BOOKMARK"])
        if last and lost:
            raise Broken("it ends on a lost branch")
        self.counts["events"] += len(told)

    def _one_state(self, records: Records, watchers: Sequence[Watcher]) -> None:
        """All clients see a version in one state, whether it survived or not."""
        known: dict[tuple[type, str, bool, int], Seen] = {}
        for watcher in watchers:
            for segment in watcher.segments:
                for event, server, _ in segment.told:
                    if event.type == "BOOKMARK":
                        continue
                    name = (type(watcher.form), watcher.kind.plural, event.type == "DELETED", event.seen.version)
                    if known.setdefault(name, event.seen) != event.seen:
                        self._find(f"a version names two states: {watcher.name} by {server}: {event}")
        writes: dict[tuple[str, int], tuple[Key, str]] = {}
        for operation in records.operations:
            if operation.version and operation.obj is not None and operation.verb != "delete":
                state = operation.key, mark_of(operation.obj)
                if writes.setdefault((operation.kind.plural, operation.version), state) != state:
                    self._find(f"a version names two states: {operation}")

    def _expired(self, expired: Expired) -> None:
        self.counts["410"] += 1
        survivors = self._truths[expired.kind.plural].survivors
        if expired.version not in survivors:
            return
        behind = expired.shown < expired.version or expired.shown not in survivors
        split = any(
            expired.kind.resource in w.moved and w.begin - AFTER <= expired.done and expired.sent <= w.end + AFTER
            for w in self._split
        )
        if behind and split:
            self.counts["excused: 410 of an old primary"] += 1
        else:
            text = f"410 by {expired.server} for {expired.version}, which survived; it had shown {expired.shown}"
            self._find(f"{text}{self._during(expired.sent, expired.done)}")


def _ended(write: Operation) -> float:
    """Return when a write can no longer begin. Nobody knows of what a killed server had sent."""
    return write.answer.done + (IN_FLIGHT if write.answer.status == -1 else 0)


def _shown(operation: Operation, mine: Iterable[Operation]) -> list[Operation]:
    """Return the writes of the same object that may have brought an answer about."""
    writes = [write for write in mine if write is not operation and write.verb != "get" and not write.refused]
    if operation.answer.status == 404:
        return [write for write in writes if write.verb == "delete"]
    if operation.verb == "get":
        assert operation.obj is not None
        return [write for write in writes if write.mark == mark_of(operation.obj)]
    return [write for write in writes if write.verb != "delete"]


class _Highest:
    """The highest value up to a point."""

    def __init__(self, pairs: Iterable[tuple[float, int]]) -> None:
        ordered = sorted(pairs)
        self._at = [at for at, _ in ordered]
        self._values = list(itertools.accumulate((value for _, value in ordered), max))

    def until(self, at: float, default: int = 0) -> int:
        """Return the highest value that lies before a point."""
        place = bisect.bisect_left(self._at, at)
        return self._values[place - 1] if place else default


def _dense(begin: int, versions: Sequence[int]) -> None:
    """Inside an epoch, versions count by one."""
    for before, now in itertools.pairwise((begin, *versions)):
        one, other = keys.parts(before), keys.parts(now)
        if one[0] == other[0] and other[1] != one[1] + 1:
            raise Broken(f"{keys.stream_id(now)} follows {keys.stream_id(before)}")


def _nothing(_at: float) -> int:
    return 0


__all__ = ["Judge", "Kind"]
