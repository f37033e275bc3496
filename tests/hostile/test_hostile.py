"""Half a minute of what `make hostile` does for minutes: the same requests for everybody."""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
from collections.abc import Iterator

import pytest

from tests.fixtures.server import DevServer, dev_server
from tests.hostile import custom, handshakes
from tests.hostile.campaign import FLAGS, Campaign, Report
from tests.hostile.forms import BODY, HEADERS, PATCHES, STANDING, Hostile
from tests.hostile.generator import COLLECTIONS, FAMILIES, GROUP, SPECS, Generator
from tests.hostile.rules import as_files

SEED = 8
MOST = 256 << 10
EACH, TOGETHER, MANY = 8, 80, 600
QUIET = ("accept", "many headers", "token", "protocol")
"""Families that write nothing, and of which many are sent in a second."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    with custom.serving(tmp_path_factory.mktemp("custom")) as folder:
        yield folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, definitions: pathlib.Path) -> Iterator[DevServer]:
    folder = tmp_path_factory.mktemp("hostile")
    with as_files(folder) as rules, dev_server(folder, *FLAGS, f"--crds={definitions}", *rules) as started:
        yield started


def played(
    server: DevServer, requests: Iterator[Hostile], *, most: int, connections: int = 1, each: int = 1, warm: int = MANY
) -> Report:
    [folder] = [
        pathlib.Path(option.removeprefix("--crds=")) for option in server.options if option.startswith("--crds=")
    ]
    campaign = Campaign(server, connections=connections, each=each, warm=warm, definitions=folder)
    return asyncio.run(campaign.run(requests, most=most))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_request_of_a_family_is_above_the_budget(server: DevServer, family: str) -> None:
    generator = Generator(SEED, most=MOST)
    report = played(server, generator.only(itertools.repeat(family)), most=EACH)
    assert not report.breaches, str(report)
    assert report.sent == EACH


@pytest.mark.parametrize("kind", handshakes.ATTACKS)
def test_no_handshake_delays_other_clients(server: DevServer, kind: str) -> None:
    head = f"HANDSHAKE {kind} {handshakes.MOST_RECORDS} {handshakes.MOST_BYTES}\r\n\r\n".encode()
    report = played(
        server, itertools.repeat(Hostile(handshakes.FAMILY, head, anonymous=True)), most=8, connections=4, each=2
    )
    assert not report.breaches, str(report)
    assert report.codes.total() == 8


def test_four_at_once_of_all_families_are_within_the_budget_of_four(server: DevServer) -> None:
    report = played(server, iter(Generator(SEED, most=MOST)), most=TOGETHER, connections=4)
    assert not report.breaches, str(report)
    assert report.sent == TOGETHER


def test_hundreds_of_requests_leave_nothing_in_memory(server: DevServer) -> None:
    generator = Generator(SEED, most=MOST)
    report = played(server, generator.only(itertools.cycle(QUIET)), most=MANY, connections=4, each=10, warm=MANY // 3)
    assert not report.breaches, str(report)
    assert report.warm > 0


def test_a_campaign_that_is_stopped_ends_with_what_was_found_so_far(server: DevServer) -> None:
    said: list[str] = []
    campaign = Campaign(server, say=said.append)
    generator = Generator(SEED, most=MOST)

    def requests() -> Iterator[Hostile]:
        yield from itertools.islice(generator, 3)
        campaign.stop()
        yield from generator

    report = asyncio.run(campaign.run(requests()))
    assert report.stopped
    assert report.sent <= 4
    assert str(report).startswith(f"{report.sent} requests, 0 breaches, stopped\n")


def test_breach_is_reported_at_once_with_the_arguments_to_repeat_it(server: DevServer) -> None:
    generator = Generator(SEED, most=MOST)
    [request] = itertools.islice(generator.numbered(17), 1)
    said: list[str] = []
    campaign = Campaign(server, say=said.append, again=generator.again)
    campaign.found(request, "went wrong")
    assert said == [f"BREACH {campaign.report.breaches[0]}"]
    assert said[0].endswith(f'again: make hostile ARGS="--seed {SEED} --only 17 --largest {MOST}"')
    assert Generator(SEED, most=MOST).at(17) == request


def test_large_managed_fields_under_a_mutating_policy_delay_no_request(server: DevServer) -> None:
    owners: dict[str, dict[str, object]] = {
        "k:" + json.dumps({"uid": str(at)}): {".": {}, "f:name": {}} for at in range(8000)
    }
    fields = {"f:metadata": {"f:ownerReferences": owners}}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    report = played(server, iter([patched(json.dumps({"metadata": {"managedFields": [entry]}}))]), most=1)
    assert not report.breaches, str(report)
    assert report.codes == {("managed fields", 200): 1}


def test_mutated_apply_of_forty_thousand_labels_keeps_the_memory_budget(
    server: DevServer,
) -> None:
    metadata = {"name": STANDING, "labels": {f"a-label-{at}": "v" * 9 for at in range(40_000)}}
    applied = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": metadata}
    body = json.dumps(applied).encode()
    head = (
        f"PATCH {COLLECTIONS['ResourceClaim']}/{STANDING}?fieldManager=m&force=true&dryRun=All HTTP/1.1\r\nHost: server\r\n"
        f"Content-Type: application/apply-patch+yaml\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    report = played(server, iter([Hostile("apply", head.encode(), body)]), most=1)
    assert not report.breaches, str(report)
    # Only once all is made is it known that this is too much for the store.
    assert report.codes == {("apply", 500): 1}


def test_number_outside_cel_is_reported_by_the_policy_that_would_read_it(
    server: DevServer,
) -> None:
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": {"p": 0}}}]
    spec = {"devices": {**SPECS["ResourceClaim"]["devices"], "config": config}}
    claim = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": {"name": "number"}, "spec": spec}
    body = json.dumps(claim).replace('"p": 0', '"p": 1e999').encode()
    headers = {"Content-Type": "application/json"}
    reply = server.request("POST", COLLECTIONS["ResourceClaim"], body, headers=headers)
    assert reply.status == 422, reply.text
    assert "json: cannot unmarshal number 1e999 into Go value of type float64" in reply.json["message"]


def patched(body: str) -> Hostile:
    """A merge patch of the claim that is always there, which a policy gives a label."""
    head = f"PATCH {COLLECTIONS['ResourceClaim']}/{STANDING} HTTP/1.1\r\nHost: server\r\nContent-Type: {PATCHES[1]}\r\n"
    return Hostile("managed fields", f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body.encode())


def test_the_same_seed_draws_the_same_requests() -> None:
    def drawn(seed: int) -> list[Hostile]:
        return list(itertools.islice(Generator(seed, most=1 << 10), 100))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_request_is_of_its_family_and_near_or_within_the_limits(family: str) -> None:
    generator = Generator(SEED)
    for request in (generator.draw(family) for _ in range(10)):
        assert request.family == family
        assert request.head.endswith(b"\r\n\r\n")
        assert len(request.head) <= HEADERS * 1.5
        assert len(request.body) <= BODY * 1.5


def test_all_families_are_drawn() -> None:
    assert {request.family for request in itertools.islice(Generator(SEED, most=1 << 10), 500)} == set(FAMILIES)
