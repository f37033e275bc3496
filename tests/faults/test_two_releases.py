"""Two servers of different releases on one store, as in a rolling upgrade of Kubernetes: each shows what its release knows."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.test_serve import sluice
from tests.faults.pair import Replica, pair
from tests.fixtures.valkey import Server
from tests.fixtures.varying_kind import GROUP

LAMPS = f"/apis/{GROUP}/v1/lamps"
LANTERNS = f"/apis/{GROUP}/v1/lanterns"
PACKAGE = "tests.fixtures.varying_kind"
NEW = {
    "place": "hall", "colour": "red", "shade": {"b": 1}, "options": {"a": 2},
    "bulbs": [{"socket": "E27", "watts": 5}], "spare": {"x": {"socket": "E14", "watts": 1}},
}  # fmt: skip
KNOWN_TO_OLD = {
    "place": "hall", "options": {"a": 2}, "bulbs": [{"socket": "E27"}], "spare": {"x": {"socket": "E14"}}
}  # fmt: skip


class Client:
    def __init__(self, replica: Replica, context: ssl.SSLContext) -> None:
        self._replica, self._context = replica, context

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", accept: str = "application/json"
    ) -> Any:
        connection = http.client.HTTPSConnection("127.0.0.1", self._replica.port, context=self._context, timeout=60)
        with contextlib.closing(connection):
            headers = {"Content-Type": kind, "Accept": accept}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            raw = answer.read()
            assert answer.status < 300, raw
            return json.loads(raw) if accept == "application/json" else raw

    def spec(self, name: str) -> Any:
        return self.ask("GET", f"{LAMPS}/{name}")["spec"]

    def listed(self, name: str) -> Any:
        items = self.ask("GET", LAMPS)["items"]
        return next(item for item in items if item["metadata"]["name"] == name)["spec"]

    @contextlib.contextmanager
    def watching(self, after: str) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection("127.0.0.1", self._replica.port, context=self._context, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", f"{LAMPS}?watch=1&resourceVersion={after}")
            yield connection.getresponse()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client, Replica, Server]]:
    """One of 1.36, one of 1.37."""
    store = Server(tmp_path_factory.mktemp("v"))
    store.start()
    kinds = [f"--kinds={PACKAGE}"]
    made = sluice("store", "init", *kinds, SLUICE_REDIS_URL=store.url)
    assert made.returncode == 0, made.stderr
    flags = [[*kinds, "--emulated-version=1.36"], [*kinds, "--emulated-version=1.37"]]
    try:
        with pair(tmp_path_factory.mktemp("p"), store, flags) as (authorities, (old, new)):
            context = authorities.admin()
            yield Client(old, context), Client(new, context), old, store
    finally:
        store.stop()


@pytest.fixture
def old(servers: tuple[Client, Client, Replica, Server]) -> Client:
    return servers[0]


@pytest.fixture
def new(servers: tuple[Client, Client, Replica, Server]) -> Client:
    return servers[1]


def lamp(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Lamp", "metadata": {"name": name}, "spec": spec}


def test_each_release_shows_the_members_that_it_knows(old: Client, new: Client) -> None:
    after = old.ask("GET", LAMPS)["metadata"]["resourceVersion"]
    created = new.ask("POST", LAMPS, lamp("a", **NEW))
    assert created["spec"] == NEW
    with old.watching(after) as watched, new.watching(after) as watched_by_new:
        assert json.loads(watched.readline())["object"]["spec"] == KNOWN_TO_OLD
        assert json.loads(watched_by_new.readline())["object"]["spec"] == NEW
    for release, expected in ((old, KNOWN_TO_OLD), (new, NEW)):
        assert release.spec("a") == release.listed("a") == expected
    metadata = f"{LAMPS}/a", None, "application/json", "application/vnd.kubernetes.protobuf"
    assert b"red" not in old.ask("GET", *metadata)
    assert b"red" in new.ask("GET", *metadata)
    # Reading changes nothing.
    assert old.ask("GET", f"{LAMPS}/a")["metadata"] == new.ask("GET", f"{LAMPS}/a")["metadata"] == created["metadata"]


@pytest.mark.parametrize("write", ["put", "patch", "apply"])
def test_a_write_by_the_earlier_release_drops_later_members_as_upstream(old: Client, new: Client, write: str) -> None:
    name = f"written-{write}"
    new.ask("POST", LAMPS, lamp(name, **NEW))
    path = f"{LAMPS}/{name}"
    if write == "put":
        held = old.ask("GET", path)
        held["spec"]["place"] = "attic"
        old.ask("PUT", path, held)
    elif write == "patch":
        old.ask("PATCH", path, {"spec": {"place": "attic"}}, "application/merge-patch+json")
    else:
        applied = lamp(name, place="attic")
        old.ask("PATCH", f"{path}?fieldManager=m&force=true", applied, "application/apply-patch+yaml")
    assert old.spec(name) == {**KNOWN_TO_OLD, "place": "attic"}
    assert new.spec(name) == {**KNOWN_TO_OLD, "place": "attic"}


def test_an_update_without_a_change_rewrites_what_another_release_stored(old: Client, new: Client) -> None:
    """As kube-apiserver does, which compares the bytes: this is how a storage migration works."""
    created = new.ask("POST", LAMPS, lamp("same", **NEW))
    held = old.ask("GET", f"{LAMPS}/same")
    first = old.ask("PUT", f"{LAMPS}/same", held)
    assert first["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    assert old.ask("PUT", f"{LAMPS}/same", first)["metadata"] == first["metadata"]
    assert new.spec("same") == KNOWN_TO_OLD


def test_a_member_that_a_release_removed_is_not_shown_by_it(old: Client, new: Client) -> None:
    old.ask("POST", LAMPS, lamp("wick", place="hall", wick="flat"))
    assert new.spec("wick") == {"place": "hall"}
    assert old.spec("wick") == {"place": "hall", "wick": "flat"}


def test_a_kind_of_the_later_release_stays_while_the_earlier_one_serves(
    servers: tuple[Client, Client, Replica, Server],
) -> None:
    old, new, first, _ = servers
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Lantern", "metadata": {"name": "l"}, "spec": {"place": "yard"}}
    created = new.ask("POST", LANTERNS, body)
    with pytest.raises(AssertionError, match="404"):
        old.ask("GET", LANTERNS)
    assert first.stop() == 0
    first.start()
    assert new.ask("GET", f"{LANTERNS}/l") == created


def test_a_restart_reads_what_the_other_release_stored(servers: tuple[Client, Client, Replica, Server]) -> None:
    old, new, first, _ = servers
    new.ask("POST", LAMPS, lamp("before", **NEW))
    assert first.stop() == 0
    first.start()
    assert old.spec("before") == old.listed("before") == KNOWN_TO_OLD
    assert new.spec("before") == NEW
    assert "unreadable" not in first.log.read_text()


def test_the_store_is_initialised_for_every_release(servers: tuple[Client, Client, Replica, Server]) -> None:
    url = servers[3].url
    for release in ([], ["--emulated-version=1.36"], ["--emulated-version=1.37"]):
        checked = sluice("store", "check", f"--kinds={PACKAGE}", *release, SLUICE_REDIS_URL=url)
        assert checked.returncode == 0, checked.stdout
    info = sluice("store", "info", f"--kinds={PACKAGE}", "--emulated-version=1.36", SLUICE_REDIS_URL=url).stdout
    assert f"{GROUP}/lanterns" not in info
