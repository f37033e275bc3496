"""The composition: which filter stands where, and what answers which path. The store is one that has nothing."""

from __future__ import annotations

import asyncio
import pathlib
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from apiserver import apigroups, app, delegation, metrics
from apiserver.admission.core.attributes import Attributes
from apiserver.apimachinery import errors, selectors
from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from apiserver.config import config
from apiserver.config.following import Following
from apiserver.filters import authorize
from apiserver.filters.authenticate import Trust
from apiserver.filters.state import Peer
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object
from apiserver.serving.x509 import chains
from apiserver.storage.errors import Initializing, Unavailable
from apiserver.storage.store import Stores
from tests.fixtures.authorities import issue
from tests.fixtures.connection import Answer, Connection

GROUP = "resource.sluice.dev"
V1 = f"/apis/{GROUP}/v1"
USERS = issue("users", ca=True)
ADMIN, JANE = issue("admin", USERS, groups=("system:masters",)), issue("jane", USERS)


class NoStore:
    """A resource whose memory was never filled, and that nobody fills."""

    object_limit = 1 << 20

    filling = False

    async def barrier(self) -> None:
        raise Initializing(0.0)

    def view(self) -> None:
        raise Initializing(0.0)

    async def commit(self, *_: object, **__: object) -> None:
        raise Unavailable("no store")


class NoStores(Mapping[str, NoStore]):
    def __init__(self) -> None:
        self.ended: list[int | None] = []
        self.missing: str | None = "memory is being filled"

    def __getitem__(self, name: str) -> NoStore:
        return NoStore()

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def why_not_ready(self) -> str | None:
        return self.missing

    def store_state(self) -> str | None:
        return "gone"

    def end_watches(self, *, at_most: int | None = None) -> int:
        self.ended.append(at_most)
        return 1


class Rig:
    def __init__(self, *flags: str, standalone: bool = True, **answers: Any) -> None:
        """`answers` replace what the delegates of `dev` say."""
        self.stores = NoStores()
        settings = config.parse(["dev", *flags], {})
        settings = replace(settings, delegation=replace(settings.delegation, standalone=standalone))
        self.live = settings.live
        trust = Trust(client=chains.verifier(USERS.pem), proxy=None)
        self.app = app.build(
            settings,
            apigroups.kinds(settings.serving),
            stores=cast(Stores, self.stores),
            trust=lambda: trust,
            delegates=replace(delegation.alone(settings), **answers),
        )

    async def ask(
        self, path: str, *, method: str = "GET", peer: Peer | None = ADMIN.peer, body: bytes = b"", **headers: str
    ) -> Answer:
        pairs = {name.replace("_", "-"): value for name, value in headers.items()}
        return await Connection(self.app.handler, peer=peer).ask(method, path, pairs, body=body)


@pytest.mark.parametrize(
    ("path", "status", "begins"),
    [
        ("/livez", 200, b"ok"),
        ("/livez/ping", 200, b"ok"),
        ("/healthz/", 404, b"404 page not found\n"),
        ("/readyz/nonsense", 404, b"404 page not found\n"),
        ("/version", 200, b'{\n  "major": "1"'),
        ("/apis", 200, b'{"kind":"APIGroupList"'),
        (f"/apis/{GROUP}", 200, b'{"kind":"APIGroup"'),
        (V1, 200, b'{"kind":"APIResourceList"'),
        (f"{V1}/", 200, b'{"kind":"APIResourceList"'),
        ("/api", 200, b'{"kind":"APIVersions"'),
        ("/foo", 404, b"404 page not found\n"),
        ("/", 200, b'{\n  "paths": ['),
        ("/api/v1", 200, b'{"kind":"APIResourceList"'),
        ("/api/v1/pods", 404, b'{"kind":"Status"'),
        (f"/{V1}/deviceclasses", 404, b"404 page not found\n"),
        (f"{V1}/nonsense", 404, b'{"kind":"Status"'),
        (f"/apis/{GROUP}/v9/deviceclasses", 404, b'{"kind":"Status"'),
        (f"{V1}/watch", 500, b"Internal Server Error: "),
        ("/openapi/v2", 200, b'{"swagger":"2.0"'),
        ("/openapi/v3", 200, b'{"paths":'),
        (f"/openapi/v3{V1}", 200, b'{"openapi":"3.0.0"'),
        ("/openapi/v3/apis/nope/v1", 404, b""),
        ("/metrics", 200, b"# HELP "),
    ],
)
async def test_every_path_has_its_answer_without_a_store(path: str, status: int, begins: bytes) -> None:
    answer = await Rig().ask(path)
    assert answer.status == status, answer.body[:200]
    assert answer.body.startswith(begins), answer.body[:200]
    assert answer.headers["Audit-Id"]


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/api/v1/pods"])
async def test_the_core_group_is_kube_apiservers_where_there_is_one(path: str) -> None:
    answer = await Rig(standalone=False).ask(path)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")


async def test_the_index_lists_what_there_is() -> None:
    paths = (await Rig().ask("/")).json["paths"]
    assert paths == sorted(paths)
    assert {"/apis", V1, "/livez", "/readyz/store", "/metrics", "/openapi/v2", "/openapi/v3", "/version"} <= set(paths)


async def test_readiness_waits_for_memory_and_not_for_the_store() -> None:
    rig = Rig()
    assert (await rig.ask("/readyz")).status == 500
    rig.stores.missing = None
    assert (await rig.ask("/readyz")).text == "ok"
    assert "[-]store failed, not counted" in (await rig.ask("/readyz?verbose")).text
    assert (await rig.ask("/readyz/store")).text == "internal server error: gone\n"
    rig.app.stopping = True
    assert "[-]shutdown failed" in (await rig.ask("/readyz")).text
    assert (await rig.ask("/livez")).text == "ok"


async def test_readiness_waits_for_what_has_to_be_read_from_the_cluster() -> None:
    missing: list[str | None] = ["1 informers not started yet: [*v1.Namespace]"]
    rig = Rig(missing=lambda: missing[-1])
    rig.stores.missing = None
    answer = await rig.ask("/readyz")
    assert (answer.status, "[-]informer-sync failed: reason withheld\n" in answer.text) == (500, True)
    assert (await rig.ask("/readyz/informer-sync")).text == f"internal server error: {missing[0]}\n"
    assert (await rig.ask("/livez")).text == "ok"
    missing.append(None)
    assert "[+]informer-sync ok\n" in (await rig.ask("/readyz?verbose")).text


class Unreachable:
    """Neither tokens nor permissions can be asked about."""

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        raise ClusterError("connection refused")

    async def review(self, token: str, *, source: str = "") -> User:
        raise ClusterError("connection refused")


async def test_outage_of_kube_apiserver_leaves_only_masters_and_health() -> None:
    nobody = Unreachable()
    rig = Rig(tokens=nobody, authorizer=authorize.Delegated(nobody, always_allowed=("/livez",)))
    assert (await rig.ask(V1)).status == 200
    assert (await rig.ask("/livez", peer=None)).status == 200
    answer = await rig.ask(V1, peer=JANE.peer)
    assert (answer.status, answer.text) == (500, f'Internal Server Error: "{V1}": connection refused\n')
    assert (await rig.ask(V1, peer=None, Authorization="Bearer x")).status == 401


class Closed:
    """An admission plugin that lets nothing in."""

    async def admit(self, attributes: Attributes) -> Object | None:
        raise errors.bad_request(f"{attributes.user.name} closed {attributes.namespace}")

    async def validate(self, attributes: Attributes) -> None:
        raise AssertionError


async def test_admission_is_asked_before_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "admission", lambda *of, **more: [Closed()])
    rig = Rig()
    path, json = f"{V1}/namespaces/ns/resourceclaims", "application/json"
    for body in (b'{"metadata":{"name":"Not Valid"},"spec":{}}', b'{"metadata":{"name":"x"},"spec":{}}'):
        answer = await rig.ask(path, method="POST", body=body, Content_Type=json)
        assert (answer.status, answer.json["message"]) == (400, "admin closed ns")
    undecodable = await rig.ask(path, method="POST", body=b"{", Content_Type=json)
    assert "closed" not in undecodable.text


async def test_the_verbs_are_reached_and_word_what_storage_says() -> None:
    rig = Rig()
    assert (await rig.ask(f"{V1}/deviceclasses")).status == 429
    assert (await rig.ask(f"{V1}/deviceclasses?watch=1")).status == 429
    body = b'{"metadata":{"name":"x"},"spec":{}}'
    created = await rig.ask(f"{V1}/deviceclasses", method="POST", body=body, Content_Type="application/json")
    assert created.status == 503


ORDER = [
    # The first request has every error, so the outermost filter refuses it; each next one has one error less.
    ("/watch?timeout=x", {"Upgrade": "x", "Authorization": "Bearer x"}, 400, "only watches can be upgraded"),
    ("/watch?timeout=x", {"Authorization": "Bearer x"}, 500, "failed to create RequestInfo"),
    ("/deviceclasses/x?timeout=x", {"Authorization": "Bearer x"}, 400, "invalid timeout"),
    ("/deviceclasses/x", {"Authorization": "Bearer x", "Impersonate-Uid": "1"}, 401, "Unauthorized"),
    ("/deviceclasses/x", {"Impersonate-Uid": "1"}, 400, "without impersonating a user name"),
    ("/nonsense", {"Accept": "text/html"}, 403, "cannot list resource"),
]


@pytest.mark.parametrize(("path", "headers", "status", "text"), ORDER)
async def test_failures_come_in_upstreams_order(path: str, headers: dict[str, str], status: int, text: str) -> None:
    answer = await Connection(Rig().app.handler).ask("GET", V1 + path, headers)
    assert (answer.status, text in answer.text) == (status, True), answer.text


async def test_authorization_comes_before_the_router() -> None:
    rig = Rig()
    assert (await rig.ask(f"{V1}/nonsense", peer=JANE.peer)).status == 403
    assert (await rig.ask(f"{V1}/deviceclasses", method="PUT", peer=JANE.peer)).status == 403
    assert (await rig.ask("/apis/nope.example", peer=JANE.peer)).status == 404
    assert (await rig.ask("/foo", peer=JANE.peer)).status == 403


async def test_stopping_server_refuses_watches_before_authentication() -> None:
    rig = Rig()
    rig.app.drain.stop(handed_over=False)
    answer = await rig.ask(f"{V1}/deviceclasses?watch=1", peer=None)
    assert (answer.status, answer.json["reason"]) == (429, "TooManyRequests")


async def test_a_body_is_invited_only_when_the_request_is_allowed() -> None:
    rig = Rig()
    head = f"POST {V1}/deviceclasses HTTP/1.1\r\nHost: s\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n".encode()
    allowed = Connection(rig.app.handler, peer=ADMIN.peer)
    allowed.feed(head)
    assert (await allowed.answer(head_only=True)).status == 100
    allowed.feed(b"{}")
    assert (await allowed.answer()).status == 422
    refused = Connection(rig.app.handler, peer=JANE.peer)
    refused.feed(head)
    assert (await refused.answer()).status == 403


async def test_another_expectation_fails() -> None:
    answer = await Rig().ask(f"{V1}/deviceclasses", Expect="miracles")
    assert (answer.status, answer.headers["Connection"]) == (417, "close")


@pytest.mark.parametrize(("seconds", "calls"), [(0.0, [None]), (0.3, [4, 5, None])])
async def test_the_ends_of_watches_are_spread(
    seconds: float, calls: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_seconds: float) -> None:
        return None

    rig = Rig()
    rig.app.drain.watches = 10
    monkeypatch.setattr(asyncio, "sleep", at_once)
    await rig.app.end_watches(seconds)
    assert rig.stores.ended == calls


async def test_a_watch_that_was_just_opening_is_ended_too() -> None:
    rig = Rig()
    rig.app.drain.watches = 1
    finishing = asyncio.ensure_future(rig.app.finish())
    await asyncio.sleep(0)
    assert rig.stores.ended == [None]
    rig.app.drain.watches = 0
    await finishing


def gates(*flags: str, release: Release = V1_36) -> Gates:
    emulated = f"--emulated-version={release}"
    serving = config.parse(["dev", emulated, *(f"--feature-gates={flag}" for flag in flags)], {}).serving
    return apigroups.gates(serving, apigroups.kinds(serving))


GRANULAR = "DRAResourceClaimGranularStatusAuthorization"
STAGES = {
    "ALPHA": {
        *("AllAlpha", "AllowUnsafeMalformedObjectDeletion", "DRAListTypeAttributes", "DRANodeAllocatableResources"),
        *("DRAResourcePoolStatus", "DRAWorkloadResourceClaims", "GenericWorkload", "ShardedListAndWatch"),
    },
    "BETA": {
        *(
            "AllBeta",
            "ComponentFlagz",
            "ComponentStatusz",
            "ConstrainedImpersonation",
            "DRAConsumableCapacity",
            "DRADeviceBindingConditions",
            "DRADeviceTaintRules",
            "DRADeviceTaints",
        ),
        *("DRAExtendedResource", "DRAPartitionableDevices", "DRAResourceClaimDeviceStatus"),
        GRANULAR,
        "NodeDeclaredFeatures",
        "SizeBasedListCostEstimate",
    },
    "": {"DRAAdminAccess", "DRAPrioritizedList", "DynamicResourceAllocation"},
}
OFF = {*STAGES["ALPHA"], "AllBeta", "DRADeviceTaintRules"}
LOCKED = {"DRAAdminAccess", "DynamicResourceAllocation"}


def test_the_feature_gates_stand_as_in_1_36() -> None:
    known = dict(gates().all())
    assert {stage: {g.name for g in known if g.stage.value == stage} for stage in STAGES} == STAGES
    assert {gate.name for gate, on in known.items() if not on} == OFF
    assert {gate.name for gate in known if gate.locked} == LOCKED


def test_gate_moves_to_another_stage_in_a_later_release() -> None:
    states = {
        release: {gate.name: (gate.stage.name, on) for gate, on in gates(release=release).all()}
        for release in (V1_36, V1_37)
    }
    name = "AllowUnsafeMalformedObjectDeletion"
    assert (states[V1_36][name], states[V1_37][name]) == (("ALPHA", False), ("BETA", True))


def test_inconsistent_gates_are_an_error_of_the_operator() -> None:
    for flag, told in (
        ("DRAAdminAccess=false", "cannot set feature gate DRAAdminAccess to false, feature is locked to true"),
        ("WatchList=true", "unrecognized feature gate: WatchList"),
        (
            "DRAResourceClaimDeviceStatus=false,DRADeviceBindingConditions=false",
            f"{GRANULAR} is enabled, but depends on features that are disabled: [DRAResourceClaimDeviceStatus]",
        ),
        (
            "DRAWorkloadResourceClaims=true",
            "DRAWorkloadResourceClaims is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        (
            "DRADeviceTaints=false,DRADeviceTaintRules=1",
            "DRADeviceTaintRules is enabled, but depends on features that are disabled: [DRADeviceTaints]",
        ),
    ):
        with pytest.raises(config.ConfigError) as caught:
            gates(flag)
        assert caught.value.errors == [f"--feature-gates: {told}"]


def test_all_gates_of_a_stage_can_be_switched() -> None:
    stands = {gate.name: on for gate, on in gates("AllAlpha=true", "AllBeta=false,DRADeviceTaints=true").all()}
    assert {name for name, on in stands.items() if not on} == STAGES["BETA"] - {"DRADeviceTaints"}


def test_gates_of_kinds_that_are_not_served_are_known_too() -> None:
    only = f"--runtime-config={V1}=false,{V1}/deviceclasses=true".replace("/apis/", "")
    serving = config.parse(["dev", only, "--feature-gates=DRADeviceTaints=false,DRADeviceTaintRules=false"], {}).serving
    served = apigroups.kinds(serving)
    assert [kind.plural for kind in served] == ["deviceclasses"]
    assert {gate.name: on for gate, on in apigroups.gates(serving, served).all()}["DRADeviceTaints"] is False


async def test_a_metric_says_how_each_gate_stands(caplog: pytest.LogCaptureFixture) -> None:
    switched = "DRAPrioritizedList=false,ShardedListAndWatch=true,DRADeviceTaints=false"
    rig = Rig("--emulated-version=1.36", f"--feature-gates={switched}")
    [record] = [record for record in caplog.records if record.name == app.__name__]
    assert record.message == "Warning: setting GA feature gate. It will be removed in a future release."
    assert (record.featureGate, record.value) == ("DRAPrioritizedList", False)  # type: ignore[attr-defined]
    lines = (await rig.ask("/metrics")).text.splitlines()
    stated = [line for line in lines if line.startswith("kubernetes_feature_enabled{")]
    assert len(stated) == sum(map(len, STAGES.values()))
    off = {line.split('"')[1] for line in stated if line.endswith("} 0.0")}
    assert off == OFF - {"ShardedListAndWatch"} | {"DRAPrioritizedList", "DRADeviceTaints"}
    assert 'kubernetes_feature_enabled{name="DynamicResourceAllocation",stage=""} 1.0' in stated
    assert 'kubernetes_feature_enabled{name="DRADeviceTaintRules",stage="BETA"} 0.0' in stated


@pytest.mark.parametrize(("release", "count"), [(V1_36, 17), (V1_37, 25)])
async def test_watch_lists_are_counted_in_the_buckets_of_the_release(release: Release, count: int) -> None:
    """WATCH_LIST_BUCKETS"""
    Rig(f"--emulated-version={release}")
    buckets = metrics.WATCH_LIST_SECONDS.labels("", "v1", "pods", "cluster").buckets()
    metrics.WATCH_LIST_SECONDS.remove("", "v1", "pods", "cluster")
    assert [bound for bound, _ in buckets][-2:] == (["60", "+Inf"] if release is V1_36 else ["300", "+Inf"])
    assert len(buckets) == count + 1


def test_the_kinds_are_in_the_operators_group() -> None:
    found = apigroups.kinds(config.parse(["dev", "--group", "x.example.com"], {}).serving)
    assert {kind.group for kind in found} == {"x.example.com"}
    assert "x.example.com/resourceslices" in {kind.storage_name for kind in found.stored}


def test_uuids_are_random_and_well_formed() -> None:
    make = app.Uuids()
    made = [make() for _ in range(3 * app.Uuids.BATCH)]
    assert len(set(made)) == len(made)
    assert all(uuid.UUID(text).version == 4 and str(uuid.UUID(text)) == text for text in made)


LONG_SELECTOR = "labelSelector=" + ",".join(f"k{n}=v" for n in range(2000))


@pytest.mark.parametrize(
    ("method", "path", "accept", "status"),
    [
        ("GET", f"{V1}/nonsense", "*/*", 404),
        ("GET", f"/apis/{GROUP}/v9/deviceclasses", "*/*", 404),
        ("GET", f"{V1}/namespaces/a/deviceclasses", "*/*", 404),
        ("INVENT", f"{V1}/deviceclasses", "*/*", 405),
        ("PUT", f"{V1}/deviceclasses", "*/*", 405),
        ("GET", f"{V1}/deviceclasses", "text/html", 406),
        ("GET", f"{V1}/deviceclasses", "application/json;as=Nothing;v=v1;g=meta.k8s.io", 406),
        ("DELETE", f"{V1}/deviceclasses", "text/html", 406),
        ("POST", f"{V1}/deviceclasses", "*/*", 400),
    ],
)
async def test_long_selector_of_a_refused_request_is_not_read(
    method: str, path: str, accept: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    for name in ("parse_labels", "check_labels"):
        monkeypatch.setattr(selectors, name, read.append)
    answer = await Rig().ask(f"{path}?{LONG_SELECTOR}", method=method, Accept=accept)
    assert (answer.status, read) == (status, [])


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        ("--feature-gates=ComponentStatusz=false", "/statusz"),
        ("--feature-gates=ComponentFlagz=false", "/flagz"),
        ("--enable-priority-and-fairness=false", "/debug/api_priority_and_fairness/dump_queues"),
        ("--profiling=false", "/debug/flags"),
        ("--profiling=false", "/debug/pprof/"),
    ],
)
async def test_pages_about_the_process_can_be_switched_off(flag: str, path: str) -> None:
    assert (await Rig().ask(path)).status == 200
    assert (await Rig(flag).ask(path)).status == 404


async def test_changed_settings_are_shown(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text("max-requests-inflight: 10")
    rig = Rig(f"--config={file}")
    file.write_text("max-requests-inflight: 77")
    await Following(file, rig.live, prepared=[]).reload()
    assert re.search(r"^max-requests-inflight[:= ]+77$", (await rig.ask("/flagz")).text, re.MULTILINE)


def test_flags_that_are_shown_hide_the_address_of_the_store() -> None:
    shown = config.parse(["store", "check", "--redis-url=redis://u:secret@h:1", "-v=3"], {}).live.shown
    assert (shown["redis-url"], shown["v"]) == ("CLASSIFIED", "3")
