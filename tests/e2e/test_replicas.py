"""Several processes on one store: they show one state, and replacing them under load costs no event, no relist, and no write that does not
fail with a clean 429."""

from __future__ import annotations

import pathlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.e2e import objects
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.connection import Stream
from tests.fixtures.server import Reply

CLASSES = f"{objects.V1}/deviceclasses"
MERGE = {"Content-Type": "application/merge-patch+json"}
INFORMERS = 20
WRITES_PER_SECOND = 50.0
WRITERS = 5


@pytest.fixture(scope="module")
def pair(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Two replicas, each with an EndpointSlice of its own (recipe b)."""
    folder = tmp_path_factory.mktemp("pair")
    flags = ["--shutdown-delay-duration=3s", "--shutdown-watch-termination-grace-period=3s"]
    with Bed(folder, routing="endpoint-slices", replicas=2, serve_flags=flags) as bed:
        yield bed


@pytest.fixture(scope="module")
def single(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """One port that successive processes hand over (recipe a)."""
    flags = ["--shutdown-delay-duration=0s", "--shutdown-watch-termination-grace-period=2s"]
    with Bed(tmp_path_factory.mktemp("single"), serve_flags=flags) as bed:
        yield bed


def test_what_one_replica_has_acknowledged_the_other_shows_at_once(pair: Bed) -> None:
    """Reads without a version are the newest state, whoever is asked; a version that one gave out is good at the other."""
    first, second = (pair.connect(pair.straight(pair.admin, replica=number)) for number in range(2))
    with first, second:
        listed = first.ask("GET", CLASSES).json["metadata"]["resourceVersion"]
        with Stream(second, f"{CLASSES}?watch=1&resourceVersion={listed}&timeoutSeconds=1200") as watching:
            for turn in range(100):
                writer, reader = (first, second) if turn % 2 else (second, first)
                path = f"{CLASSES}/seen-{turn}"
                created = writer.ask("POST", CLASSES, objects.device_class(f"seen-{turn}")).json
                assert reader.ask("GET", path).json == created
                version = created["metadata"]["resourceVersion"]
                exact = f"{CLASSES}?resourceVersion={version}&resourceVersionMatch=Exact&limit=500"
                assert created["metadata"] in [item["metadata"] for item in reader.ask("GET", exact).json["items"]]
                assert watching.next() == {"type": "ADDED", "object": created}
                assert reader.ask("DELETE", path).status == 200
                assert writer.ask("GET", path).status == 404
                assert watching.next()["type"] == "DELETED"


class Writers:
    """Clients that create, change and delete objects of their own at a steady rate, and remember every answer."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.stopping = threading.Event()
        self.accepted: list[tuple[str, str, str]] = []
        self.refused: list[str] = []
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(120)

    def _write(self, number: int) -> None:
        pause = WRITERS / WRITES_PER_SECOND
        due = time.monotonic()
        with self.bed.connect() as admin:
            turn = 0
            while not self.stopping.is_set():
                due += pause
                self.stopping.wait(max(0.0, due - time.monotonic()))
                name, step = f"w{number}-{turn // 3}", turn % 3
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


def under_load(bed: Bed, folder: pathlib.Path, restart: Callable[[], None]) -> None:
    """The promise itself, whatever is restarted."""
    resource = f"deviceclasses.v1.{objects.GROUP}"
    with Informers(bed.admin, resource, count=INFORMERS, log=folder / "informers.log") as informers:
        informers.until_synced()
        with Writers(bed) as writers:
            until_written(writers, 100)
            restart()
            until_written(writers, len(writers.accepted) + 100)
        with bed.connect() as admin:
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

    assert writers.refused == []
    assert len(requests) >= 2 * INFORMERS, "every watch was ended by its server and opened again"
    assert {410} & {status for _, status in requests} == set()
    assert len(informers.lists()) == INFORMERS, [query for query, _ in informers.lists()]
    written = Counter(event for _, event, _ in writers.accepted)
    for number in range(INFORMERS):
        events = [event for event in informers.events(number) if event[1].startswith("w")]
        versions = [(kind, name, version) for name, kind, version in writers.accepted if version]
        assert set(versions) <= set(events)
        assert Counter(kind for kind, _, _ in events) == written
        assert {name: held[number].get(name) for name in expected if name != "the-last"} == {
            name: version for name, version in expected.items() if name != "the-last"
        }


def until_written(writers: Writers, count: int) -> None:
    end = time.monotonic() + 120
    while len(writers.accepted) < count:
        assert time.monotonic() < end, writers.refused
        time.sleep(0.05)


def test_two_replicas_behind_the_aggregator_are_restarted_one_after_the_other(
    pair: Bed, tmp_path: pathlib.Path
) -> None:
    def restart() -> None:
        for replica in pair.replicas:
            pair.route(replica, ready=False)
            assert replica.stop() == 0
            replica.start()
            pair.route(replica)

    under_load(pair, tmp_path, restart)


def test_a_process_hands_its_listening_socket_to_its_successor(single: Bed, tmp_path: pathlib.Path) -> None:
    def restart() -> None:
        for _ in range(2):
            single.replicas[0].replace()

    under_load(single, tmp_path, restart)
