"""Bugs that `make faults` must find: each is planted in a copy of the server, which then runs a campaign.

`python -m tests.faults.bugs` runs all, or those that are named, and lists which were found. Ends with 1 if one was not.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import apiserver
from tests.faults.campaign import Load, Report, campaign
from tests.fixtures.processes import Died

PACKAGE = Path(apiserver.__file__).parent
LAGGING = ("lagging replica promoted",)
KILLED, CUT = ("node killed and back",), ("server's connections cut", "node killed and back")
AWAY = ("node cut off from a server", "server stopped")
ANY = ("server's connections cut",)


@dataclass(frozen=True)
class Bug:
    """`old` becomes `new` wherever it stands in `file`. `faults` are those that should bring it to light."""

    name: str
    file: str
    old: str
    new: str
    faults: tuple[str, ...] = ANY
    topology: str = "one"

    def source(self) -> str:
        """Return the text of the file with this bug."""
        text = (PACKAGE / self.file).read_text()
        if self.old not in text:
            raise ValueError(f"{self.name}: {self.file} does not hold the text that it replaces")
        return text.replace(self.old, self.new)

    def plant(self, folder: Path) -> None:
        """Put a copy of the server with this bug into a folder."""
        shutil.copytree(PACKAGE, folder / "apiserver", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "apiserver" / self.file).write_text(self.source())


BUGS = (
    Bug(
        "a promoted process goes on in the epoch before",
        "storage/functions.lua",
        "if left[m[3]] == m[2] and stored >= met then return",
        "if stored >= met then left[m[3]] = m[2] return",
        LAGGING,
        "sentinel",
    ),
    Bug(
        "a write does not compare the version that it expects",
        "storage/functions.lua",
        "if expected ~= '*' and expected ~= id then return { 'CONFLICT', id, old } end",
        "",
    ),
    Bug(
        "a create replaces an object that the server does not know yet",
        "storage/functions.lua",
        "if expected == '-' then return { 'EXISTS', id, old } end",
        "if expected == '-' then expected = id end",
        AWAY,
    ),
    Bug(
        "a consistent read does not ask the store",
        "storage/barrier.py",
        "session.reads.submit(question, partial(self._answered, session, round_))",
        "self._asking = False; self._pass(round_)",
        AWAY,
    ),
    Bug(
        "a write whose connection broke is refused",
        "storage/writes.py",
        "if isinstance(error, (Disconnected, Failed)):",
        "if isinstance(error, Failed):",
        CUT,
    ),
    Bug(
        "a write in doubt is repeated before the log is read",
        "storage/writes.py",
        "await writes.log.caught_up(head.last)",
        "await asyncio.sleep(0)",
        CUT,
    ),
    Bug(
        "watches go on when memory is filled from another lineage",
        "storage/replica.py",
        "self.hub.end_all()",
        "pass",
        LAGGING,
        "sentinel",
    ),
    Bug(
        "an entry that follows another one is applied",
        "storage/replica.py",
        "if record.predecessor != self._last:",
        "if not record.predecessor:",
        LAGGING,
        "sentinel",
    ),
    Bug(
        "every version names a state",
        "watchcache/mvcc.py",
        "return epoch == keys.parts(self._applied)[0] or n <= self._ended.get(epoch, -1)",
        "return True",
        LAGGING,
        "sentinel",
    ),
    Bug(
        "the last version of an epoch names no state",
        "watchcache/mvcc.py",
        "n <= self._ended.get(epoch, -1)",
        "n < self._ended.get(epoch, -1)",
        KILLED,
    ),
    Bug(
        "a watch from a version that this server has not reached gets 410",
        "watchcache/hub.py",
        "if after <= self._index.applied and not self._index.names_state(after):",
        "if not self._index.names_state(after):",
        AWAY,
    ),
    Bug(
        "watches that wait for a lost version go on",
        "watchcache/hub.py",
        "self.expire(watcher for watcher in self._ahead if ended < watcher.start < begun)",
        "pass",
        LAGGING,
        "sentinel",
    ),
    Bug(
        "a watch that resumes misses the first event",
        "verbs/watch.py",
        "for event in events:",
        "for event in events[1:]:",
    ),
    Bug(
        "a deletion has the version of the state before",
        "storage/replica.py",
        "held.at(revision), EventType.DELETED",
        "held, EventType.DELETED",
    ),
    Bug(
        "an exact list shows the newest state",
        "verbs/read.py",
        "return not revision or wanted.match",
        "return True or wanted.match",
    ),
    Bug(
        "a list goes on with another state in the next chunk",
        "verbs/read.py",
        "    revision = Revision(token.revision)\n",
        "    return call.store.view()\n    revision = Revision(token.revision)\n",
    ),
    Bug(
        "a session stays with a primary that the sentinels have left",
        "storage/primaries/sentinel.py",
        "if other != node:\n                self._left",
        "if other is None:\n                self._left",
        ("failed over by hand",),
        "sentinel",
    ),
    Bug(
        "a watch that lists first begins one version late",
        "verbs/watch.py",
        "return Start(view.revision, view,",
        "return Start(Revision(view.revision + 1), view,",
    ),
    Bug(
        "a PUT ignores its resourceVersion",
        "verbs/replace.py",
        "    _check_version(call, order.name, new, live)\n",
        '    new["metadata"]["resourceVersion"] = str(live.revision)\n',
    ),
    Bug(
        "a DELETE ignores the precondition of a resourceVersion",
        "verbs/delete.py",
        '(wanted.resource_version, metadata["resourceVersion"], VERSION_DIFFERS),',
        "",
    ),
    Bug(
        "memory is read while it is filled",
        "storage/replica.py",
        "raise Initializing(",
        "Initializing(",
        ("server started without the store",),
    ),
    Bug(
        "an object that leaves a selection is not told as deleted",
        "verbs/watch.py",
        '        return "DELETED", event.previous.at(event.revision)',
        "        return None",
    ),
    Bug(
        "a watch of a namespace misses an event when it resumes",
        "watchcache/scope.py",
        "event.entry.key.startswith(prefix)] if prefix else events",
        "event.entry.key.startswith(prefix)][1:] if prefix else events",
    ),
    Bug(
        "a write is acknowledged with the version before",
        "storage/writes.py",
        "self._acknowledged(session, pending, keys.revision(answer[1]))",
        'self._succeed(pending, writes.log.entry(write.key, Revision(keys.revision(answer[1]) - 1), write.value or b"{}"))',
    ),
    Bug(
        "a takeover does not rise above the epochs that were met",
        "storage/lineage.py",
        "if not head.own or head.epoch < highest:",
        "if not head.own:",
        ("first primary back",),
        "sentinel",
    ),
    Bug(
        "a server that could not connect does not try again",
        "storage/primaries/connector.py",
        "                self._down(str(error))\n",
        "                self._down(str(error))\n                await self._closing.wait()\n",
        ("server cut off from the store",),
    ),
)


async def hunt(bug: Bug, *, faults: int, seed: int) -> Report:
    """Run a campaign on a server with this bug, until it is found or the faults are over."""
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        code = Path(folder) / "code"
        await asyncio.to_thread(bug.plant, code)
        async with campaign(
            Path(folder) / "c", bug.topology, seed=seed, load=Load(watchers=30), only=bug.faults, code=code
        ) as running:
            while running.report.injected < faults and not running.report.findings:
                await running.round(min(6, faults - running.report.injected))
        return running.report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.bugs", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the seed of each campaign (default: 1)")
    parser.add_argument("--faults", type=int, default=24, help="how many at most, for each bug (default: 24)")
    parser.add_argument("name", nargs="*", help="words of the names of bugs (default: all)")
    chosen = parser.parse_args()
    bugs = [bug for bug in BUGS if not chosen.name or any(word in bug.name for word in chosen.name)]
    missed = 0
    for bug in bugs:
        try:
            report = asyncio.run(hunt(bug, faults=chosen.faults, seed=chosen.seed))
        except Died as error:  # on a machine that is too busy
            print(f"NOT TRIED: {bug.name}\n    {error!r:.200}", flush=True)
            missed += 1
            continue
        missed += not report.findings
        first = report.findings[0][:200] if report.findings else ""
        print(f"{'found' if first else 'MISSED'} after {report.injected} faults: {bug.name}\n    {first}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} bugs were found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
