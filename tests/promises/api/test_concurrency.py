"""Many clients at once: what each of them may rely on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import pytest

from tests.promises.api.client import JSON_PATCH, MERGE, Client, claim, names, version
from tests.promises.api.target import Target

CLIENTS = 16


@pytest.fixture(scope="module")
def clients(target: Target) -> Iterator[list[Client]]:
    """Connections that are there already, so that requests really meet."""
    opened = [Client(target) for _ in range(CLIENTS)]
    for client in opened:
        client.ask("GET", "/livez")
    yield opened
    for client in opened:
        client.close()


def at_once(clients: list[Client], act: Callable[[Client, int], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(act, clients, range(len(clients))))


def test_patches_without_a_version_never_conflict(api: Client, clients: list[Client], mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    api.create(api.claims(mine), claim("one", annotations={}, labels={"n": "0"}))

    def patch(client: Client, number: int) -> list[int]:
        done = []
        for i in range(6):
            if i % 2:
                body: Any = [{"op": "add", "path": f"/metadata/labels/c{number}-{i}", "value": "x"}]
                kind = JSON_PATCH
            else:
                body, kind = {"metadata": {"labels": {f"c{number}-{i}": "x"}}}, MERGE
            done.append(version(client.patch(path, body, kind=kind)))
        return done

    versions = at_once(clients, patch)

    assert len(api.get(path)["metadata"]["labels"]) == CLIENTS * 6 + 1, "no patch was lost"
    assert len({v for done in versions for v in done}) == CLIENTS * 6
    assert all(done == sorted(done) for done in versions)


def test_exactly_one_of_several_puts_from_one_version_wins(api: Client, clients: list[Client], mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    stored = api.create(api.claims(mine), claim("one"))
    for turn in range(5):
        base = {**stored["metadata"], "labels": {"turn": str(turn)}}

        bodies = [
            {**stored, "metadata": {**base, "labels": {**base["labels"], "by": str(number)}}}
            for number in range(CLIENTS)
        ]

        replies = at_once(clients, lambda client, number, bodies=bodies: client.ask("PUT", path, bodies[number]))  # type: ignore[misc]

        assert sorted(reply.status for reply in replies) == [200] + [409] * (CLIENTS - 1)
        (winner,) = (reply.json for reply in replies if reply.status == 200)
        stored = api.get(path)
        assert stored == winner


def test_exactly_one_of_several_creates_of_one_name_wins(api: Client, clients: list[Client], mine: str) -> None:
    replies = at_once(
        clients, lambda client, n: client.ask("POST", api.claims(mine), claim("one", labels={"by": str(n)}))
    )

    assert sorted(reply.status for reply in replies) == [201] + [409] * (CLIENTS - 1)
    (winner,) = (reply.json for reply in replies if reply.status == 201)
    assert api.get(f"{api.claims(mine)}/one") == winner


def test_exactly_one_of_several_deletions_of_one_object_wins(api: Client, clients: list[Client], mine: str) -> None:
    made = api.create(api.claims(mine), claim("one"))

    replies = at_once(clients, lambda client, _: client.ask("DELETE", f"{api.claims(mine)}/one"))

    assert sorted(reply.status for reply in replies) == [200] + [404] * (CLIENTS - 1)
    (gone,) = (reply.json for reply in replies if reply.status == 200)
    assert version(gone) > version(made)


def test_the_last_finalizers_are_removed_by_many_and_the_object_goes_once(
    api: Client, clients: list[Client], mine: str
) -> None:
    api.create(api.claims(mine), claim("one", finalizers=["example.com/f"]))
    marked = api.delete(f"{api.claims(mine)}/one")
    patch = {"metadata": {"finalizers": None}}

    with api.watch(api.claims(mine), resourceVersion=version(marked)) as watch:
        replies = at_once(
            clients,
            lambda client, _: client.ask("PATCH", f"{api.claims(mine)}/one", patch, headers={"Content-Type": MERGE}),
        )
        api.create(api.claims(mine), claim("two"))
        assert [kind for kind, _ in watch.take(2)] == ["DELETED", "ADDED"]

    assert {reply.status for reply in replies} <= {200, 404}
    assert 200 in {reply.status for reply in replies}


def test_generated_names_never_clash_for_their_clients(api: Client, clients: list[Client], mine: str) -> None:
    def generate(client: Client, _: int) -> list[str]:
        return [client.create(api.claims(mine), claim(generateName="g-"))["metadata"]["name"] for _ in range(8)]

    made = [name for done in at_once(clients, generate) for name in done]

    assert len(set(made)) == CLIENTS * 8
    assert names(api.get(api.claims(mine))) == sorted(made)


class Done(NamedTuple):
    """A successful write, in the client's time."""

    begin: float
    end: float
    version: int


@contextmanager
def timed(done: list[Done]) -> Iterator[Callable[[int], None]]:
    begin = time.monotonic()
    yield lambda version: done.append(Done(begin, time.monotonic(), version))


def test_versions_rise_strictly_in_real_time_order(api: Client, clients: list[Client], mine: str) -> None:
    """Invariant 3, and no version names two changes; the log of the watch is the very same set."""
    start = version(api.get(api.claims(mine)))

    def write(client: Client, number: int) -> list[Done]:
        rng, done = random.Random(number), list[Done]()
        for _ in range(15):
            name = f"x{rng.randrange(6)}"
            method, path, body = rng.choice(
                [
                    ("POST", api.claims(mine), claim(name)),
                    ("PATCH", f"{api.claims(mine)}/{name}", {"metadata": {"labels": {"r": str(rng.random())}}}),
                    ("DELETE", f"{api.claims(mine)}/{name}", None),
                ]
            )
            with timed(done) as record:
                headers = {"Content-Type": MERGE} if method == "PATCH" else None
                reply = client.ask(method, path, body, headers=headers)
                assert reply.status in (200, 201, 404, 409), reply.text
                if reply.status < 300:
                    record(version(reply.json))
        return done

    with api.watch(api.claims(mine), resourceVersion=start) as watch:
        done: list[Done] = [one for writes in at_once(clients, write) for one in writes]
        last = version(api.create(api.claims(mine), claim("last")))
        log = [version(obj) for _, obj in watch.up_to(last)]

    assert log == sorted(set(log))
    assert sorted([one.version for one in done] + [last]) == log
    ended = sorted(done, key=lambda one: one.end)
    newest = at = 0
    for one in sorted(done, key=lambda one: one.begin):
        while ended[at].end < one.begin:
            newest = max(newest, ended[at].version)
            at += 1
        assert one.version > newest


def test_parallel_collection_deletions_leave_nothing_and_all_succeed(
    api: Client, clients: list[Client], mine: str
) -> None:
    for i in range(40):
        last = api.create(api.claims(mine), claim(f"c{i:02}"))

    with api.watch(api.claims(mine), resourceVersion=version(last)) as watch:
        replies = at_once(clients[:6], lambda client, _: client.ask("DELETE", api.claims(mine)))
        end = version(api.create(api.claims(mine), claim("end")))
        events = watch.up_to(end)

    assert {reply.status for reply in replies} == {200}
    assert [kind for kind, _ in events] == ["DELETED"] * 40 + ["ADDED"]


def test_a_connection_may_be_shared_by_requests_one_after_the_other(target: Target, mine: str) -> None:
    with closing(Client(target)) as client:
        for i in range(30):
            assert client.ask("POST", client.claims(mine), claim(f"c{i}")).status == 201
            assert client.ask("POST", client.claims(mine), "{").status == 400
            assert client.ask("GET", f"{client.claims(mine)}/none").status == 404
