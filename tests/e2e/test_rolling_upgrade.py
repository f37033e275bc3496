"""An upgrade of a control plane from one Kubernetes release to the next and back, in front of two replicas that serve `resource.k8s.io/v1`.

kube-apiserver, its clients and the release of Sluice change; the store, the replicas' processes and the watches' versions stay.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e import workloads
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import DRA_GROUP, Bed
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import until
from tests.fixtures.server import Reply
from tests.fixtures.steady import Steady

V1 = workloads.V1
SLICES, RULES = f"{V1}/resourceslices", f"{V1}/devicetaintrules"
OLDER_RULES = f"/apis/{DRA_GROUP}/v1beta2/devicetaintrules"
GATES = "DRADeviceTaintRules=true,DRANodeAllocatableResources=true,DRAOptionalNodeOperations=true"
"""The last one is unknown in 1.36, and ignored there."""
INFORMERS = 5
WRITERS, WRITES_PER_SECOND = 2, 10.0
FOLLOWED_SECONDS = 400.0
"""Within which a change of `/version` is followed: seven equal answers, ten to twelve seconds apart, after at most 72 seconds."""

Object = workloads.Object


@pytest.fixture
def older(our_own: None) -> str:
    """The version before the newest one: the chosen one."""
    return binaries.version().removeprefix("v")


@pytest.fixture
def newer() -> str:
    return binaries.versions()[0]


@pytest.fixture
def cluster_of_two(older: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """Sluice follows kube-apiserver, as in production."""
    monkeypatch.delenv("SLUICE_EMULATED_VERSION", raising=False)
    flags = [f"--feature-gates={GATES}", "--shutdown-watch-termination-grace-period=2s"]
    with Bed(
        tmp_path / "bed",
        group=DRA_GROUP,
        routing="endpoint-slices",
        replicas=2,
        controllers=True,
        scheduler=True,
        serve_flags=flags,
    ) as bed:
        yield bed


class Writers(Steady):
    """Clients of the replicas that create, change and delete slices, and remember what was accepted. A 429 is repeated."""

    def __init__(self, bed: Bed) -> None:
        super().__init__(self._write, clients=WRITERS, per_second=WRITES_PER_SECOND)
        self._kubeconfigs = [bed.straight(bed.admin, replica=number) for number in range(WRITERS)]
        self.accepted: list[tuple[str, str, str]] = []
        self.refused: list[str] = []

    def _write(self, number: int, turns: Iterator[None]) -> None:
        with Connection(self._kubeconfigs[number]) as admin:
            turn = 0
            for _ in turns:
                name, step = f"load-{number}-{turn // 3}", ("add", "update", "delete")[turn % 3]
                reply = _written(admin, name, step)
                if reply.status in {200, 201}:
                    version = "" if step == "delete" else reply.json["metadata"]["resourceVersion"]
                    self.accepted.append((step, name, version))
                    turn += 1
                elif reply.status != 429:
                    self.refused.append(f"{step} {name}: {reply.status} {reply.text[:300]}")


def _written(admin: Connection, name: str, step: str) -> Reply:
    path = f"{SLICES}/{name}"
    match step:
        case "add":
            return admin.ask("POST", SLICES, offered(name))
        case "update":
            return admin.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=workloads.MERGE)
    return admin.ask("DELETE", path)


def offered(name: str, **device: object) -> Object:
    """A slice with one device, of a driver that no class has."""
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": "load.example.com",
            "nodeName": "node-load",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", **device}],
        },
    }


def rule(name: str, **selector: str) -> Object:
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


def until_followed(bed: Bed, *, rules: int) -> None:
    """Return when each replica answers to a list of rules with this code: only the newer release has them in `v1`."""
    for number in range(len(bed.replicas)):
        with bed.connect(bed.straight(bed.admin, replica=number)) as straight:
            until(
                lambda straight=straight: straight.ask("GET", RULES).status == rules,  # type: ignore[misc]
                f"replica {number} is the release of kube-apiserver",
                seconds=FOLLOWED_SECONDS,
            )


def runs_with_a_device(bed: Bed, name: str) -> str:
    """Create a pod with a claim, and return the claim's uid when both are bound."""
    with bed.connect() as admin:
        workloads.pod(admin, name, template="gpu")
        until(lambda: workloads.is_bound(admin, name), f"{name} is bound")
        [claim] = workloads.claims_of(admin, name)
        assert claim["status"]["allocation"]["devices"]["results"][0]["driver"] == workloads.DRIVER
        uid: str = claim["metadata"]["uid"]
        return uid


def spec(admin: Connection, path: str) -> Object:
    reply = admin.ask("GET", path)
    assert reply.status == 200, reply.text
    found: Object = reply.json["spec"]
    return found


@pytest.mark.releases("1.36")
@pytest.mark.timeout(1800)
def test_upgrade_and_rollback_lose_no_object_and_no_event(
    cluster_of_two: Bed, older: str, newer: str, tmp_path: pathlib.Path
) -> None:
    bed, resource = cluster_of_two, f"resourceslices.v1.{DRA_GROUP}"
    watching: list[Informers] = []
    for number, version in enumerate((older, newer)):
        # Informers of both releases, each at a replica of its own: none of them may list again.
        with binaries.choosing(version):
            straight = bed.straight(bed.admin, replica=number)
            watching.append(Informers(straight, resource, count=INFORMERS, log=tmp_path / f"{version}.log"))
            watching.append(Informers(bed.admin, resource, log=tmp_path / f"{version}.through.log"))
    for informers in watching:
        informers.until_synced()

    with Writers(bed) as writers, bed.connect() as admin:
        # The older release.
        with bed.connect(bed.straight(bed.admin)) as first:
            assert first.ask("GET", RULES).status == 404
            early = workloads.made(first, OLDER_RULES, rule("early", driver="nobody.example.com"))
        mapped = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
        before = workloads.made(admin, SLICES, offered("before", **mapped))
        assert before["spec"]["devices"][0] == {"name": "gpu-0", **mapped}
        workloads.node(admin, "node-1")
        workloads.devices(admin, "node-1", count=8)
        workloads.template(admin, "gpu")
        first_claim = runs_with_a_device(bed, "p-before")

        # The upgrade: kube-apiserver first, then its clients.
        with binaries.choosing(newer):
            bed.plane.restart_apiserver()
            admin.close()
            assert admin.ask("GET", "/version").json["gitVersion"] == f"v{newer}"
            workloads.made(admin, SLICES, offered("during"))
            runs_with_a_device(bed, "p-during")
            until_followed(bed, rules=200)
            admin.close()
            bed.plane.restart_clients()
        assert spec(admin, f"{SLICES}/before")["devices"] == [{"name": "gpu-0"}]
        assert spec(admin, f"{SLICES}/during") == offered("during")["spec"]
        assert spec(admin, f"{RULES}/early") == early["spec"]
        [claim] = workloads.claims_of(admin, "p-before")
        assert (claim["metadata"]["uid"], "allocation" in claim["status"]) == (first_claim, True)
        runs_with_a_device(bed, "p-after")
        [claim] = workloads.claims_of(admin, "p-after")
        device = claim["status"]["allocation"]["devices"]["results"][0]["device"]
        broken = workloads.made(admin, RULES, rule("late", driver=workloads.DRIVER, pool="node-1", device=device))
        evicted = "/api/v1/namespaces/default/pods/p-after"
        until(
            lambda: (told := admin.ask("GET", evicted)).status == 404 or "deletionTimestamp" in told.json["metadata"],
            "the pod with the tainted device is evicted",
        )
        assert "deletionTimestamp" not in admin.ask("GET", evicted.replace("p-after", "p-before")).json["metadata"]
        skipping = offered("newer")
        skipping["spec"]["skipNodeOperations"] = ["*"]
        assert workloads.made(admin, SLICES, skipping)["spec"]["skipNodeOperations"] == ["*"]

        # The rollback: the other way round.
        bed.plane.restart_clients()
        runs_with_a_device(bed, "p-older-clients")
        bed.plane.restart_apiserver()
        admin.close()
        assert admin.ask("GET", "/version").json["gitVersion"] == f"v{older}"
        until_followed(bed, rules=404)
        admin.close()
        assert spec(admin, f"{SLICES}/before")["devices"] == [{"name": "gpu-0", **mapped}]
        assert spec(admin, f"{SLICES}/newer") == offered("newer")["spec"]
        with bed.connect(bed.straight(bed.admin)) as first:
            kept = first.ask("GET", f"{OLDER_RULES}/late").json
        assert (kept["metadata"]["uid"], kept["spec"]) == (broken["metadata"]["uid"], broken["spec"])
        [claim] = workloads.claims_of(admin, "p-before")
        assert (claim["metadata"]["uid"], "allocation" in claim["status"]) == (first_claim, True)
        runs_with_a_device(bed, "p-again")

    assert writers.refused == []
    for informers in watching[::2]:
        informers.until(
            lambda informers=informers: len(informers.requests()) >= 3 * INFORMERS,  # type: ignore[misc]
            "each change of the release ended the watches",
        )
    with bed.connect() as admin:
        last = workloads.made(admin, SLICES, offered("the-last"))["metadata"]["resourceVersion"]
        for informers in watching:
            informers.until(
                lambda informers=informers: all(  # type: ignore[misc]
                    ("add", "the-last", last) in informers.events(n)[-5:] for n in range(informers.count)
                ),
                "every informer has seen the last write",
            )
        listed = admin.ask("GET", SLICES).json["items"]
    expected = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed}
    written = Counter(step for step, _, _ in writers.accepted)
    for informers in watching:
        asked = informers.requests()
        assert informers.stop() == [expected] * informers.count
        assert 410 not in {status for _, status in asked}
    for informers in watching[::2]:
        assert len(informers.lists()) == INFORMERS, informers.lists()
        for number in range(INFORMERS):
            events = [event for event in informers.events(number) if event[1].startswith("load-")]
            assert Counter(step for step, _, _ in events) == written
            assert set(events) >= {event for event in writers.accepted if event[2]}
