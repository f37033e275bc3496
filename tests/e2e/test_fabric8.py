"""fabric8, the Java client: its informers watch over WebSockets, through kube-apiserver, and go on when Sluice is replaced or restarted."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import objects
from tests.e2e.controlplane import fabric8
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.connection import Connection

CLASSES = f"{objects.V1}/deviceclasses"
MERGE = {"Content-Type": "application/merge-patch+json"}
NAME = "fabric8"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    try:
        return fabric8.program(tmp_path_factory.mktemp("fabric8"))
    except fabric8.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def single(our_own: None, program: list[str], tmp_path: pathlib.Path) -> Iterator[Bed]:
    with Bed(tmp_path / "bed", serve_flags=["--shutdown-delay-duration=0s", "-v=3"]) as bed:
        yield bed


def change(admin: Connection, method: str, path: str, body: Any = None, **headers: str) -> tuple[str, str]:
    """The name and the version that a write left."""
    reply = admin.ask(method, path, body, headers=headers)
    assert reply.status in {200, 201}, reply.text
    metadata = reply.json["metadata"]
    return metadata["name"], metadata["resourceVersion"]


@pytest.mark.timeout(400)
def test_informers_see_every_change_once_over_a_hand_over_and_a_restart(
    single: Bed, program: list[str], tmp_path: pathlib.Path
) -> None:
    resource = f"deviceclasses.v1.{single.group}"
    log = tmp_path / "fabric8.log"
    replica = single.replicas[0]
    with (
        single.connect() as admin,
        Informers(single.admin, resource, count=3, log=log, program=program) as informers,
    ):
        expected: list[tuple[str, str, str]] = []

        def seen() -> bool:
            return all(informers.events(number)[-1:] == expected[-1:] for number in range(3))

        def round_(number: int) -> None:
            name = f"{NAME}-{number}"
            expected.append(("add", *change(admin, "POST", CLASSES, objects.device_class(name))))
            informers.until(seen, f"a creation is seen by all ({number})")
            patch = {"metadata": {"labels": {"round": str(number)}}}
            expected.append(("update", *change(admin, "PATCH", f"{CLASSES}/{name}", patch, **MERGE)))
            informers.until(seen, f"a change is seen by all ({number})")

        informers.until_synced()
        round_(1)
        replica.replace()
        round_(2)
        replica.stop()
        replica.start()
        round_(3)

        for number in range(3):
            assert informers.events(number) == expected
        listed = admin.ask("GET", CLASSES).json["items"]
        held = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed}
        requests = [line["request"] for line in informers.lines if "request" in line]
        assert informers.stop() == [held] * 3
    # Those of a WebSocket are counted with the code of a connection that was given away.
    assert replica.process is not None
    upgraded = [request for request in requests if "watch=true" in request]
    assert len(upgraded) >= 9, requests
