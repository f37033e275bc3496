"""Clients that write and clients that hold copies, while something is replaced: what none of them may notice."""

from __future__ import annotations

import http.client
import itertools
import pathlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.e2e import objects
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.external import Cluster
from tests.fixtures.server import Reply
from tests.fixtures.steady import Steady

CLASSES = f"{objects.V1}/deviceclasses"
MERGE = {"Content-Type": "application/merge-patch+json"}
INFORMERS = 20
WRITES_PER_SECOND = 50.0
WRITERS = 5
_RUNS = itertools.count()


class Writers(Steady):
    """Clients that create, change and delete objects of their own, and remember every answer."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(self._write, clients=WRITERS, per_second=WRITES_PER_SECOND)
        self.cluster = cluster
        self.prefix = f"w{next(_RUNS)}-"
        self.accepted: list[tuple[str, str, str]] = []
        self.refused: list[str] = []

    def _write(self, number: int, turns: Iterator[None]) -> None:
        with self.cluster.connect() as admin:
            turn = 0
            for _ in turns:
                name, step = f"{self.prefix}{number}-{turn // 3}", turn % 3
                try:
                    if step == 0:
                        reply = admin.ask("POST", CLASSES, objects.device_class(name))
                    elif step == 1:
                        patch = {"metadata": {"labels": {"turn": str(turn)}}}
                        reply = admin.ask("PATCH", f"{CLASSES}/{name}", patch, headers=MERGE)
                    else:
                        reply = admin.ask("DELETE", f"{CLASSES}/{name}")
                except OSError as e:
                    self.refused.append(f"{name}: {e!r}")
                    continue
                if self._told(name, step, reply):
                    turn += 1

    def _told(self, name: str, step: int, reply: Reply) -> bool:
        """Whether the write happened. A 429 that says when to come back is clean: the client repeats it."""
        if reply.status in {200, 201}:
            version = "" if step == 2 else reply.json["metadata"]["resourceVersion"]
            self.accepted.append((name, ("add", "update", "delete")[step], version))
            return True
        if reply.status == 429 and reply.headers["Retry-After"] and reply.json["reason"] == "TooManyRequests":
            return False
        self.refused.append(f"{name}: {reply.status} {reply.text[:300]}")
        return False


def under_load(cluster: Cluster, folder: pathlib.Path, restart: Callable[[], None], *, ended: int = INFORMERS) -> str:
    """The promise itself, whatever is restarted: no request fails, nobody lists again. At least so many watches are `ended` and opened
    again. Returns figures for people."""
    resource = f"deviceclasses.v1.{objects.GROUP}"
    with Informers(cluster.admin, resource, count=INFORMERS, log=folder / "informers.log") as informers:
        informers.until_synced()
        with Writers(cluster) as writers:
            until_written(writers, 100)
            restart()
            until_written(writers, len(writers.accepted) + 100)
        with cluster.connect() as admin:
            last = admin.ask("POST", CLASSES, objects.device_class("the-last")).json["metadata"]["resourceVersion"]
            informers.until(
                lambda: all(("add", "the-last", last) in informers.events(n)[-5:] for n in range(INFORMERS)),
                "every informer has seen the last write",
            )
            listed = admin.ask("GET", CLASSES).json["items"]
            admin.ask("DELETE", f"{CLASSES}/the-last")
            requests = informers.requests()
            expected = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed}
        held = informers.stop()

    assert writers.refused == [], writers.refused[:5]
    assert len(requests) >= INFORMERS + ended, "watches were ended by their server and opened again"
    assert {410} & {status for _, status in requests} == set()
    assert len(informers.lists()) == INFORMERS, [query for query, _ in informers.lists()]
    written = Counter(event for _, event, _ in writers.accepted)
    for number in range(INFORMERS):
        events = [event for event in informers.events(number) if event[1].startswith(writers.prefix)]
        versions = [(kind, name, version) for name, kind, version in writers.accepted if version]
        assert set(versions) <= set(events)
        assert Counter(kind for kind, _, _ in events) == written
        assert {name: held[number].get(name) for name in expected if name != "the-last"} == {
            name: version for name, version in expected.items() if name != "the-last"
        }
    return f"0 of {len(writers.accepted)} writes failed, 0 of {INFORMERS} informers listed again"


def until_written(writers: Writers, count: int) -> None:
    end = time.monotonic() + 120
    while len(writers.accepted) < count:
        assert time.monotonic() < end, writers.refused
        time.sleep(0.05)


class Outage:
    """Clients that create objects while something dies without a word, and what became of that. A write without an answer may have
    happened or not; nobody repeats it."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.prefix = prefix
        self.acknowledged: dict[str, tuple[str, str]] = {}
        """uid and version by name."""
        self.failed: list[str] = []
        self._times = [time.monotonic()]
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._create, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Outage:
        for thread in self._threads:
            thread.start()
        self.until_written(50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)

    def until_written(self, more: int) -> None:
        """Returns when so many writes are acknowledged that were not yet."""
        end, wanted = time.monotonic() + 120, len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < end, self.failed[-5:]
            time.sleep(0.02)

    @property
    def silence(self) -> float:
        """The longest time without an acknowledged write."""
        return max(later - earlier for earlier, later in itertools.pairwise(self._times))

    def lost(self) -> list[str]:
        """Acknowledged objects that are missing or have changed."""
        with self.cluster.connect() as admin:
            items = admin.ask("GET", CLASSES).json["items"]
        there = {item["metadata"]["name"]: _identity(item["metadata"]) for item in items}
        return [name for name, identity in self.acknowledged.items() if there.get(name) != identity]

    def __str__(self) -> str:
        return (
            f"{len(self.acknowledged)} writes acknowledged and {len(self.lost())} of them lost, {len(self.failed)} failed, "
            f"{self.silence:.1f} s without one"
        )

    def _create(self, number: int) -> None:
        with self.cluster.connect() as admin:
            for turn in itertools.count():
                if self._stopping.wait(WRITERS / WRITES_PER_SECOND):
                    return
                name = f"{self.prefix}-{number}-{turn}"
                try:
                    reply = admin.ask("POST", CLASSES, objects.device_class(name))
                except (OSError, http.client.HTTPException) as e:
                    self.failed.append(f"{name}: {e!r}")
                    continue
                if reply.status == 201:
                    self.acknowledged[name] = _identity(reply.json["metadata"])
                    self._times.append(time.monotonic())
                else:
                    self.failed.append(f"{name}: {reply.status} {reply.text[:300]}")


def _identity(metadata: dict[str, str]) -> tuple[str, str]:
    return metadata["uid"], metadata["resourceVersion"]
