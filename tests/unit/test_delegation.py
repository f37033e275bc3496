"""Connections to a cluster: what has to be read before a replica serves, and what happens when a read fails."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_asyncio

from apiserver import app, delegation, resources
from apiserver.admission.quota.limited import Limited
from apiserver.apimachinery.errors import GroupResource
from apiserver.apimachinery.releases import V1_36
from apiserver.apimachinery.request import User
from apiserver.cluster import front, namespaces
from apiserver.cluster.configurations import COLLECTIONS
from apiserver.cluster.errors import ClusterError
from apiserver.cluster.requestheader import ClusterTrust, TrustSource
from apiserver.config import config, parsers
from apiserver.filters.request_info import parse
from apiserver.kinds.served import Kinds
from apiserver.schema.featuregate import Gates
from tests.fixtures.authorities import issue
from tests.fixtures.failing import fail_once, failures
from tests.unit.cluster.plane import Clock, Plane, answer, hang, status, until

if TYPE_CHECKING:
    from apiserver.storage.store import Stores

VERSION = "apiserver.config.k8s.io/v1"
POD = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
JANE = User("jane", groups=("system:authenticated",))
LIST_CLAIMS = parse("GET", "/apis/resource.sluice.dev/v1/resourceclaims")
GONE, NO = ClusterError("connection refused", transient=True), ClusterError("forbidden: create a rolebinding")


class Source:
    """Fails as scripted, then succeeds. An unreachable server takes all the time that there is."""

    def __init__(self, *failures: ClusterError) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.clock = Clock()

    async def first(self, seconds: float) -> None:
        self.calls += 1
        if self.failures:
            failure = self.failures.pop(0)
            self.clock.now += seconds if failure.transient else 0
            raise failure


class Synced:
    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.ready.set()
        self.problem = ""


class Rig:
    def __init__(self, source: Source | None, *, tolerant: bool = False) -> None:
        self.clock, self.namespaces = source.clock if source is not None else Clock(), Synced()
        self.start = delegation.Start(
            source,
            {"*v1.Namespace": self.namespaces},
            tolerant=tolerant,
            clock=self.clock,
            sleep=self.clock.sleep,
        )


async def test_a_replica_may_be_asked_once_cas_and_namespaces_were_read() -> None:
    rig = Rig(Source())
    rig.namespaces.ready.clear()
    assert rig.start.missing() == "2 informers not started yet: [*v1.ConfigMap *v1.Namespace]"
    waiting = asyncio.ensure_future(rig.start.ready())
    await until(lambda: "ConfigMap" not in (rig.start.missing() or ""))
    assert rig.start.missing() == "1 informers not started yet: [*v1.Namespace]"
    rig.namespaces.problem = "namespaces is forbidden"
    assert rig.start.missing() == "1 informers not started yet: [*v1.Namespace]; *v1.Namespace: namespaces is forbidden"
    assert not waiting.done()
    rig.namespaces.ready.set()
    await waiting
    assert rig.start.missing() is None


async def test_cas_that_are_not_looked_up_are_not_waited_for() -> None:
    rig = Rig(None)
    assert rig.start.missing() is None
    await rig.start.ready()


async def test_server_waits_for_an_unreachable_kube_apiserver_without_limit() -> None:
    source = Source(*[GONE] * 50)
    await Rig(source).start.ready()
    assert source.calls == 51


@pytest.mark.parametrize("before", [0, 1, 20])
async def test_a_refusal_is_doubted_while_kube_apiserver_may_be_starting(before: int) -> None:
    source = Source(*[GONE] * before, NO, NO, NO, GONE, NO, NO)
    await Rig(source).start.ready()
    assert source.calls == before + 7


async def test_the_cluster_is_followed_from_the_moment_it_answers() -> None:
    source = Source(GONE, GONE)
    rig = Rig(source)
    assert not rig.start.answered.is_set()
    await rig.start.ready()
    assert rig.start.answered.is_set()
    assert Rig(None).start.answered.is_set()


async def test_a_refusal_that_lasts_is_final() -> None:
    rig = Rig(Source(*[NO] * 1000))
    with pytest.raises(ClusterError, match="create a rolebinding"):
        await rig.start.ready()
    assert sum(rig.clock.slept) == pytest.approx(delegation.DOUBT_SECONDS)
    assert rig.start.missing() is not None


@pytest.mark.parametrize("failure", [GONE, NO])
async def test_the_tolerant_start_without(failure: ClusterError) -> None:
    source = Source(failure, failure)
    rig = Rig(source, tolerant=True)
    await rig.start.ready()
    assert (source.calls, rig.start.missing()) == (1, None)


# ------------------------------------------------------------------------------------------------ with a server that plays the cluster

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
CONFIG_MAP = f"{CONFIG_MAPS}/extension-apiserver-authentication"
NAMESPACES = "/api/v1/namespaces"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CONFIGURATIONS = {name: collection.path for name, collection in COLLECTIONS.items()}
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"

KINDS = Kinds(resources.RESOURCES, group="resource.sluice.dev")
PARAMS = {"configmaps": "ConfigMap", "secrets": "Secret"}


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "metadata": {"resourceVersion": "5"}, "items": list(items)}


def named(name: str, **members: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": "4"}, **members}


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    folder = tmp_path / "plane"
    folder.mkdir()
    made = Plane(folder)
    trust = named("extension-apiserver-authentication", data={"client-ca-file": issue("root", ca=True).pem.decode()})
    made.on(CONFIG_MAP, answer(trust))
    made.on(CONFIG_MAPS, answer(listed(trust)), hang)
    made.on(front.PATH, answer({"major": "1", "minor": "36"}))
    made.on(NAMESPACES, answer(listed(named("ns", status={"phase": "Active"}))), hang)
    for path in CONFIGURATIONS.values():
        made.on(path, answer(listed()), hang)
    made.on(ACCESS_REVIEWS, answer({"status": {"allowed": True}}, 201))
    made.on(TOKEN_REVIEWS, answer({"status": {"authenticated": True, "user": {"username": "joe"}}}, 201))
    await made.start()
    yield made
    await made.stop()


def settings(folder: Path, kubeconfig: str, *flags: str, **more: str) -> config.Config:
    pem = folder / "x.pem"
    pem.touch()
    words = ["serve", "--tls-cert-file", str(pem), "--tls-private-key-file", str(pem), "--redis-url", "redis://h"]
    words += ["--authentication-kubeconfig", kubeconfig, *flags]
    for name, value in more.items():
        words += [f"--{name.replace('_', '-')}", value]
    return config.parse(words, {})


def plugins(delegates: delegation.Delegates) -> list[str]:
    """The names of those that are asked, in their order."""
    nothing = cast("Stores", {})
    return [type(plugin).__name__ for plugin in app.admission(delegates, KINDS, nothing, gates=Gates())]


async def test_the_cluster_answers_for_tokens_permissions_cas_and_namespaces(plane: Plane, tmp_path: Path) -> None:
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}))
    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        assert delegates.missing() is None
        assert delegates.bundles is not None
        assert delegates.bundles().client_ca is not None
        assert delegates.tokens is not None
        assert (await delegates.tokens.review("t")).name == "joe"
        assert (await delegates.authorizer.authorize(JANE, LIST_CLAIMS)).allowed
        assert plugins(delegates) == list(parsers.PLUGINS)
    assert len(plane.asked(ACCESS_REVIEWS)) == len(plane.asked(TOKEN_REVIEWS)) == 1
    assert {seen.headers["Authorization"] for seen in plane.seen} == {"Bearer ours"}
    left = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - {asyncio.current_task()}}  # type: ignore[union-attr]
    assert {name for name in left if not name.startswith("RequestHandler.")} == set()


@pytest.mark.parametrize(("flags", "followed"), [((), True), (("--emulated-version=1.37",), False)])
async def test_release_of_the_front_is_followed_unless_a_flag_gives_one(
    plane: Plane, tmp_path: Path, flags: tuple[str, ...], followed: bool
) -> None:
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}), *flags)
    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        assert (delegates.front is not None) == followed
        if delegates.front is not None:
            assert delegates.front.release == V1_36
    assert bool(plane.asked(front.PATH)) == followed


async def test_server_is_unready_until_the_release_of_the_front_is_known(plane: Plane, tmp_path: Path) -> None:
    plane.on(front.PATH, hang)
    async with delegation.opened(settings(tmp_path, plane.kubeconfig({"token": "ours"})), {}) as delegates:
        waiting = asyncio.ensure_future(delegates.ready())
        await until(lambda: delegates.missing() == "1 informers not started yet: [*version.Info]")
        assert not waiting.done()
        waiting.cancel()


@pytest.mark.parametrize(
    ("flags", "unread"),
    [
        ((), ()),
        (("--disable-admission-plugins=ResourceQuota",), ("quotas",)),
        (
            ("--disable-admission-plugins=MutatingAdmissionPolicy,ValidatingAdmissionWebhook",),
            ("mutating_policies", "mutating_bindings", "validating_webhooks"),
        ),
    ],
)
async def test_objects_that_an_admission_plugin_reads_are_followed_while_in_use(
    plane: Plane, tmp_path: Path, flags: tuple[str, ...], unread: tuple[str, ...]
) -> None:
    for name, path in CONFIGURATIONS.items():
        found = listed() if name in unread else listed(named(f"my-{name}"))
        plane.on(path, answer(found), hang)
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}), *flags)
    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        assert delegates.sources is not None
        for name, path in CONFIGURATIONS.items():
            source = getattr(delegates.sources, name)
            assert source.ready.is_set()
            assert list(source.items) == ([] if name in unread else [f"my-{name}"])
            assert bool(plane.asked(path)) == (name not in unread)


async def test_missing_right_keeps_the_server_unready_and_is_logged(plane: Plane, tmp_path: Path) -> None:
    text = 'resourcequotas is forbidden: User "sluice" cannot list resource "resourcequotas"'
    plane.on(CONFIGURATIONS["quotas"], status(403, text))
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}))
    expected = f"1 informers not started yet: [*v1.ResourceQuota]; *v1.ResourceQuota: {text}"
    async with delegation.opened(asked, {}) as delegates:
        waiting = asyncio.ensure_future(delegates.ready())
        await until(lambda: delegates.missing() == expected)
        assert not waiting.done()
        waiting.cancel()


async def test_kinds_of_params_are_followed_while_a_bound_policy_names_them(plane: Plane, tmp_path: Path) -> None:
    policy = named("p", spec={"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}})
    unbound = named("q", spec={"paramKind": {"apiVersion": "v1", "kind": "Secret"}})
    plane.on(CONFIGURATIONS["mutating_policies"], answer(listed(policy, unbound)), hang)
    plane.on(CONFIGURATIONS["mutating_bindings"], answer(listed(named("b", spec={"policyName": "p"}))), hang)
    kinds = [{"name": name, "kind": kind, "namespaced": True} for name, kind in PARAMS.items()]
    plane.on("/api/v1", answer({"resources": kinds}))
    for name in PARAMS:
        plane.on(f"/api/v1/{name}", answer(listed(named("x"))), hang)
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}))
    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        await until(lambda: len(plane.asked("/api/v1/configmaps")) == 2)
        assert not plane.asked("/api/v1/secrets")


async def test_masters_and_health_are_allowed_without_asking(plane: Plane, tmp_path: Path) -> None:
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}), authorization_always_allow_paths="/open*")
    async with delegation.opened(asked, {}) as delegates:
        masters = User("admin", groups=("system:masters",))
        assert (await delegates.authorizer.authorize(masters, LIST_CLAIMS)).allowed
        assert (await delegates.authorizer.authorize(JANE, parse("GET", "/opening"))).allowed
    assert not plane.asked(ACCESS_REVIEWS)


@pytest.mark.parametrize("flags", [("--authentication-skip-lookup",), ()])
async def test_cas_are_looked_up_only_when_a_flag_leaves_one_out(
    plane: Plane, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    more = (
        {}
        if flags
        else {"client_ca_file": str(tmp_path / "x.pem"), "requestheader_client_ca_file": str(tmp_path / "x.pem")}
    )
    (tmp_path / "x.pem").touch()
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}), *flags, **more)
    async with delegation.opened(asked, {}) as delegates:
        assert delegates.bundles is None
        await delegates.ready()
        assert delegates.tokens is not None
    assert not plane.asked(CONFIG_MAP)
    assert not plane.asked(CONFIG_MAPS)


async def test_one_missing_bundle_is_looked_up(plane: Plane, tmp_path: Path) -> None:
    (tmp_path / "x.pem").touch()
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}), client_ca_file=str(tmp_path / "x.pem"))
    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        assert delegates.bundles is not None


async def test_two_identities_ask_each_for_its_purpose(plane: Plane, tmp_path: Path) -> None:
    theirs = shutil.copy(plane.kubeconfig({"token": "theirs"}), tmp_path / "theirs")
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}), authorization_kubeconfig=str(theirs))
    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        assert delegates.tokens is not None
        await delegates.tokens.review("t")
        await delegates.authorizer.authorize(JANE, LIST_CLAIMS)
    who = {seen.path: seen.headers["Authorization"] for seen in plane.seen}
    assert who[TOKEN_REVIEWS] == who[CONFIG_MAP] == "Bearer ours"
    assert who[ACCESS_REVIEWS] == who[NAMESPACES] == "Bearer theirs"


async def test_forbidden_config_map_is_reported_with_the_remedy(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation, "DOUBT_SECONDS", 0)
    plane.on(CONFIG_MAP, status(403, "configmaps is forbidden"))
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}))
    async with delegation.opened(asked, {}) as delegates:
        with pytest.raises(ClusterError, match="kubectl create rolebinding -n kube-system"):
            await delegates.ready()


async def test_missing_config_map_is_tolerated(plane: Plane, tmp_path: Path) -> None:
    plane.on(CONFIG_MAP, status(404, "not found"))
    plane.on(CONFIG_MAPS, answer(listed()), hang)
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}))
    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        assert delegates.bundles is not None
        assert delegates.bundles() == ClusterTrust(None, None, None)


async def test_unusable_kubeconfig_is_reported(tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_text("{}")
    with pytest.raises(ClusterError):
        async with delegation.opened(settings(tmp_path, str(tmp_path / "nonsense")), {}):
            raise AssertionError


async def test_limited_resources_are_configured_in_a_file(plane: Plane, tmp_path: Path) -> None:
    def asked(*limited: dict[str, Any], **flags: str) -> config.Config:
        own = {"kind": "ResourceQuotaConfiguration", "apiVersion": VERSION, "limitedResources": limited}
        plugin = {"name": "ResourceQuota", "configuration": own}
        file = tmp_path / "admission.json"
        file.write_text(json.dumps({"kind": "AdmissionConfiguration", "apiVersion": VERSION, "plugins": [plugin]}))
        flags["admission_control_config_file"] = str(file)
        return settings(tmp_path, plane.kubeconfig({"token": "ours"}), **flags)

    item = {"apiGroup": "g", "resource": "r", "matchContains": ["count/"]}
    async with delegation.opened(asked(item), {}) as delegates:
        assert delegates.limited == [Limited(GroupResource("g", "r"), ("count/",))]
    wrong = '--admission-control-config-file: couldn\'t init admission plugin "ResourceQuota": limitedResources[0].resource: Required value'
    with pytest.raises(config.ConfigError) as caught:
        async with delegation.opened(asked({}), {}):
            raise AssertionError
    assert caught.value.errors == [wrong]
    async with delegation.opened(asked({}, disable_admission_plugins="ResourceQuota"), {}) as delegates:
        assert delegates.limited == ()


async def test_standalone_server_asks_no_cluster_and_every_namespace_exists() -> None:
    asked = config.parse(["dev"], POD)
    async with delegation.opened(asked, POD) as delegates:
        await delegates.ready()
        assert (delegates.tokens, delegates.bundles, delegates.missing()) == (None, None, None)
        assert plugins(delegates) == ["NodeRestriction", "OwnerReferencesPermissionEnforcement"]
        assert not (await delegates.authorizer.authorize(JANE, LIST_CLAIMS)).allowed
        assert (await delegates.authorizer.authorize(JANE, parse("POST", "/readyz"))).allowed


@pytest.mark.parametrize(("followed", "name"), [(namespaces.Namespaces, "namespaces"), (TrustSource, "trust")])
async def test_follower_of_the_cluster_goes_on_after_a_failure(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, followed: type, name: str
) -> None:
    before = failures(name)
    fail_once(monkeypatch, followed, "run")
    asked = settings(tmp_path, plane.kubeconfig({"token": "ours"}))

    async with delegation.opened(asked, {}) as delegates:
        await delegates.ready()
        await until(lambda: len(plane.asked(NAMESPACES)) == len(plane.asked(CONFIG_MAPS)) == 2)
        assert delegates.missing() is None
    assert failures(name) == before + 1
