"""Several processes on one store: they show one state, and replacing them under load costs no event, no relist, and no write that does not
fail with a clean 429."""

from __future__ import annotations

import contextlib
import pathlib
import signal
from collections.abc import Iterator

import pytest

from tests.e2e import objects
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.connection import Connection, Stream
from tests.e2e.load import CLASSES, INFORMERS, under_load
from tests.fixtures.processes import Process


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
    flags = ["--shutdown-watch-termination-grace-period=2s", "-v=3"]
    with Bed(tmp_path_factory.mktemp("single"), serve_flags=flags) as bed:
        yield bed


def test_write_acknowledged_by_one_replica_shows_on_the_other_at_once(pair: Bed) -> None:
    """Reads without a version are the newest state on every replica; a version that one gave out is good at the other."""
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


def test_two_replicas_behind_the_aggregator_restart_one_after_the_other(pair: Bed, tmp_path: pathlib.Path) -> None:
    def restart() -> None:
        for replica in pair.replicas:
            pair.route(replica, ready=False)
            assert replica.stop() == 0
            replica.start()
            pair.route(replica)

    under_load(pair, tmp_path, restart)


def test_informers_of_a_killed_replica_watch_on_at_another_without_a_list(pair: Bed, tmp_path: pathlib.Path) -> None:
    killed = pair.replicas[0]
    resource = f"deviceclasses.v1.{objects.GROUP}"
    pair.route(pair.replicas[1], ready=False)
    with Informers(pair.admin, resource, count=INFORMERS, log=tmp_path / "log") as informers, pair.connect() as admin:

        def until_known(name: str) -> None:
            assert admin.ask("POST", CLASSES, objects.device_class(name)).status == 201
            informers.until(
                lambda: all(name in {key for _, key, _ in informers.events(n)} for n in range(INFORMERS)),
                f"every informer knows {name}",
            )

        informers.until_synced()
        # To client-go a watch that ends within a second, without an event, is an error.
        until_known("before")
        pair.route(pair.replicas[1])
        pair.route(killed, ready=False)
        assert killed.process is not None
        killed.process.stop(signal.SIGKILL)
        until_known("after")
        assert len(informers.lists()) == INFORMERS
    killed.start()
    pair.route(killed)


def _kept_by(process: Process, admin: Connection) -> bool:
    """Whether the connection that kube-apiserver has used last, and uses next, is to this process."""
    path = f"{CLASSES}?limit={1 + len(process.log.read_text())}"
    assert admin.ask("GET", path).status == 200
    return path in process.log.read_text()


def test_watch_over_an_open_connection_reaches_the_successor(single: Bed) -> None:
    """The predecessor ends its watches one by one for two seconds. Meanwhile kube-apiserver keeps an idle connection to it, and sends the
    next watch over that one."""
    replica = single.replicas[0]
    watch = f"{CLASSES}?watch=1&timeoutSeconds=1200"
    with single.connect() as admin, contextlib.ExitStack() as open_:
        version = admin.ask("GET", CLASSES).json["metadata"]["resourceVersion"]
        watch = f"{watch}&resourceVersion={version}"
        held = [open_.enter_context(Stream(admin, watch)) for _ in range(40)]
        old = replica.process
        assert old is not None
        replica.start()
        # The connection that kube-apiserver keeps of this is the predecessor's, unless the successor was quicker.
        while not _kept_by(old, admin):
            pass
        old.send(signal.SIGTERM)
        assert held[0].rest() == []
        assert old.alive, "its other watches still end"

        # kube-apiserver may have opened connections that it never used. The predecessor serves the first watch on each, and ends it.
        back = [open_.enter_context(Stream(admin, watch)) for _ in range(5)]

        assert {each.status for each in back} == {200}
        old.stop()
        created = admin.ask("POST", CLASSES, objects.device_class("for-the-successor")).json
        assert back[-1].next() == {"type": "ADDED", "object": created}
        assert admin.ask("DELETE", f"{CLASSES}/for-the-successor").status == 200


def test_a_process_hands_its_listening_socket_to_its_successor(single: Bed, tmp_path: pathlib.Path) -> None:
    def restart() -> None:
        for _ in range(2):
            single.replicas[0].replace()

    under_load(single, tmp_path, restart)
