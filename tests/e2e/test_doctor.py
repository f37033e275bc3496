"""`sluice doctor` names what is wrong: an installation behind a real kube-apiserver is broken in one way after the other."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import yaml

from apiserver.doctor.checks.rights import GRANTED
from apiserver.doctor.installation import Names
from apiserver.serving import pki
from apiserver.storage import functions
from tests.e2e import clinic as clinic_
from tests.e2e.clinic import APISERVICE, HOST, PLACE, RBAC, SERVICE, SLICES, Clinic, bundle, issued, skipped, wrong
from tests.e2e.controlplane.bed import Bed
from tests.fixtures.processes import free_port

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
UNAVAILABLE = {"apiservice-unavailable", "aggregation"}
"""Consequences: kube-apiserver finds Sluice unavailable a moment after something else broke."""
NO_PODS = {"deployment-scaled-to-zero", "secret-missing"}
"""Findings where no Service says that Sluice runs outside of the cluster: its pods are then missed."""


@pytest.fixture(scope="module")
def clinic(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    with Clinic(tmp_path_factory.mktemp("clinic"), bed) as clinic:
        clinic.until(set(), set())
        yield clinic


Break = Callable[[Clinic], AbstractContextManager[Any]]
Case = tuple[Break, set[str], set[str]]
"""How it is broken, the codes that doctor must name, and consequences that it may name as well."""


def _apiservice(**spec: Any) -> Break:
    return lambda clinic: clinic.changed(APISERVICE, {"spec": spec})


def _presents(name: str, hosts: list[str], after: dt.timedelta) -> Break:
    return lambda clinic: clinic.presenting(issued(clinic, name, hosts, NOW + after))


def _service(**spec: Any) -> Break:
    return lambda clinic: clinic.changed(SERVICE, clinic.own_pods() | {"spec": clinic.own_pods()["spec"] | spec})


def _not_ready(clinic: Clinic) -> AbstractContextManager[None]:
    """A Service without selector, with an endpoint that is not ready."""
    body = {
        "metadata": {"name": "by-hand", "labels": {"kubernetes.io/service-name": "sluice"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": clinic.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["192.0.2.7"], "conditions": {"ready": False}}],
    }
    return clinic.created(SLICES, body)


LIFETIME = 365
"""Days of a certificate of `pki.make_serving`."""

CASES: dict[str, Case] = {
    "APIService deleted": (
        lambda clinic: clinic.deleted(APISERVICE), {"apiservice-missing"}, {*UNAVAILABLE, "certificate-untrusted"},
    ),
    "caBundle of another CA": (
        lambda clinic: clinic.changed(APISERVICE, bundle(pki.make_ca("other", now=NOW).cert_pem)),
        {"certificate-untrusted"}, UNAVAILABLE,
    ),
    "caBundle of an expired CA": (
        lambda clinic: clinic.changed(APISERVICE, bundle(pki.make_ca("old", now=NOW - 9000 * DAY).cert_pem)),
        {"ca-bundle-expired", "certificate-untrusted"}, UNAVAILABLE,
    ),
    "caBundle removed": (_apiservice(caBundle=None), {"ca-bundle-missing"}, UNAVAILABLE),
    "insecureSkipTLSVerify": (
        _apiservice(caBundle=None, insecureSkipTLSVerify=True), {"apiservice-insecure"}, UNAVAILABLE,
    ),
    "APIService of another Service": (
        _apiservice(service={"name": "sluce"}), {"apiservice-wrong-service"}, UNAVAILABLE,
    ),
    "priorities of another kind": (
        _apiservice(groupPriorityMinimum=7, versionPriority=7), {"apiservice-priority"}, UNAVAILABLE,
    ),
    "Service deleted": (lambda clinic: clinic.deleted(SERVICE), {"service-missing"}, {*UNAVAILABLE, *NO_PODS}),
    "Service that selects no pods": (
        _service(), {"endpoints-missing", "deployment-scaled-to-zero"}, {*UNAVAILABLE, "secret-missing"},
    ),
    "Service with another port": (
        _service(ports=[{"name": "https", "port": 4, "targetPort": "https"}]),
        {"service-port"}, {*UNAVAILABLE, "secret-missing", "endpoints-missing", "deployment-scaled-to-zero"},
    ),
    "Service with another selector": (
        _service(selector={"app": "other"}),
        {"service-selector"}, {*UNAVAILABLE, "secret-missing", "endpoints-missing", "deployment-scaled-to-zero"},
    ),
    "Service that leads to a port of no container": (
        lambda clinic: clinic.changed(
            SERVICE,
            {"spec": clinic.own_pods()["spec"] | {"ports": [{"name": "h", "port": clinic.port, "targetPort": "htps"}]}},
        ),
        {"service-target-port"}, {*UNAVAILABLE, "secret-missing", "endpoints-missing", "deployment-scaled-to-zero"},
    ),
    "expired certificate": (
        _presents("expired", [HOST, "localhost"], -3000 * DAY), {"certificate-expired"}, UNAVAILABLE,
    ),
    "certificate of tomorrow": (
        _presents("tomorrow", [HOST, "localhost"], 2 * DAY), {"certificate-not-yet-valid"}, UNAVAILABLE,
    ),
    "certificate that ends soon": (
        _presents("soon", [HOST, "localhost"], -(LIFETIME - 3) * DAY), {"certificate-expires-soon"}, UNAVAILABLE,
    ),
    "certificate of another name": (_presents("named", ["other.svc"], dt.timedelta()), {"certificate-name"}, UNAVAILABLE),
    "server without TLS": (lambda clinic: clinic.presenting(None), {"tls-refused"}, UNAVAILABLE),
    "port where nobody listens": (
        lambda clinic: clinic.changed(APISERVICE, {"spec": {"service": {"port": free_port()}}}),
        {"apiservice-unavailable", "aggregation"}, {"secret-missing"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_doctor_names_what_is_wrong_between_kube_apiserver_and_sluice(clinic: Clinic, name: str) -> None:
    break_, named, also = CASES[name]
    with break_(clinic):
        clinic.until(named, also)


def test_doctor_names_endpoints_that_are_not_ready(clinic: Clinic) -> None:
    spec = clinic.own_pods()["spec"] | {"selector": None}
    with clinic.changed(SERVICE, {"spec": spec}), _not_ready(clinic):
        clinic.until({"endpoints-not-ready"}, {*UNAVAILABLE, "secret-missing"})


READER = [rule for rule in GRANTED if rule.file == "clusterrole-reader.yaml"]


@pytest.mark.parametrize("place", range(len(READER)), ids=[", ".join(rule.resources) for rule in READER])
def test_doctor_names_the_manifest_line_of_a_right_that_is_missing(clinic: Clinic, place: int) -> None:
    path = f"{RBAC}/clusterroles/{PLACE}-sluice-reader"
    with clinic.bed.connect() as admin:
        rules = admin.ask("GET", path).json["rules"]
    rule = READER[place]
    with clinic.changed(path, {"rules": [each for number, each in enumerate(rules) if number != place]}):
        code = "rbac-optional" if rule.optional else "rbac-missing"
        [finding] = clinic.until({code}, set(), f"manifests/base/{rule.file} line {rule.line} ")
    assert rule.resources[0] in finding.text
    assert f"-f manifests/base/{rule.file}" in finding.do


@pytest.mark.parametrize(
    ("path", "file"),
    [
        (f"{RBAC}/clusterrolebindings/{PLACE}-sluice-reader", "clusterrolebinding-reader.yaml"),
        (f"{RBAC}/clusterrolebindings/{PLACE}-sluice-auth-delegator", "clusterrolebinding-auth-delegator.yaml"),
        (
            f"{RBAC}/namespaces/kube-system/rolebindings/{PLACE}-sluice-authentication-reader",
            "rolebinding-authentication-reader.yaml",
        ),
    ],
)
def test_doctor_names_the_binding_that_is_missing(clinic: Clinic, path: str, file: str) -> None:
    with clinic.deleted(path):
        count = sum(rule.binding == file for rule in GRANTED)
        findings = clinic.until({"rbac-missing"}, {"rbac-optional"})
        while len(findings) != count:
            findings = clinic.until({"rbac-missing"}, {"rbac-optional"})
    assert all(file in finding.do for finding in findings)


def test_doctor_names_a_service_account_that_is_missing(clinic: Clinic) -> None:
    names = Names(namespace=PLACE, account="nobody")
    clinic.until({"service-account-missing", "rbac-missing", "rbac-optional"}, set(), "clinic/nobody", names=names)


def test_doctor_names_a_namespace_that_is_missing(clinic: Clinic) -> None:
    also = {
        "service-account-missing",
        "rbac-missing",
        "rbac-optional",
        "deployment-missing",
        "apiservice-wrong-service",
        "certificate-name",
    }
    names = Names(namespace="no-such-place")
    clinic.until({"namespace-missing", "service-missing"}, {*also, "secret-missing"}, names=names)


STORES: dict[str, tuple[dict[str, str], str]] = {
    "eviction": ({"maxmemory_policy": "allkeys-lru"}, "store-eviction"),
    "no append-only file": ({"appendonly": "no"}, "store-volatile"),
    "fsync each second": ({"appendfsync": "everysec"}, "store-fsync"),
    "no fsync during rewrites": ({"no_appendfsync_on_rewrite": "yes"}, "store-fsync"),
}


@pytest.mark.parametrize("name", STORES)
def test_doctor_names_settings_of_the_store_that_do_not_fit(clinic: Clinic, name: str) -> None:
    settings, code = STORES[name]
    with clinic.configured(**settings) as url:
        clinic.until({code}, set(), store=clinic.at(url))


def test_doctor_names_memory_that_is_full(clinic: Clinic) -> None:
    limit = int(clinic.bad_store.info("used_memory")) + 4096
    with clinic.configured(maxmemory=str(limit)) as url:
        clinic.until({"store-memory"}, set(), store=clinic.at(url))


def test_doctor_names_a_store_that_is_a_replica(clinic: Clinic) -> None:
    clinic.bad_store("REPLICAOF", "127.0.0.1", free_port())
    try:
        clinic.until({"store-replica"}, set(), store=clinic.at(clinic.bad_store.url))
    finally:
        clinic.bad_store("REPLICAOF", "NO", "ONE")


def test_doctor_names_a_function_library_that_is_missing_or_differs(clinic: Clinic) -> None:
    store = clinic.bad_store
    try:
        store("FUNCTION", "LOAD", "REPLACE", functions.CODE + b"\n-- other")
        clinic.until({"store-library-differs"}, set(), store=clinic.at(store.url))
        store("FUNCTION", "DELETE", functions.LIBRARY)
        clinic.until({"store-library-missing"}, set(), store=clinic.at(store.url))
    finally:
        store("FUNCTION", "LOAD", "REPLACE", functions.CODE)


def test_doctor_names_a_resource_that_the_store_lost(clinic: Clinic) -> None:
    resources = [*clinic.resources, f"{clinic_.GROUP}/ships"]
    store = clinic.at(clinic.bad_store.url)
    clinic.until({"store-resource-missing"}, set(), "ships", store=store, resources=resources)


def test_doctor_names_a_wrong_password_of_the_store(clinic: Clinic) -> None:
    url = clinic_.with_password(clinic.store.url, "wrong")
    [finding] = clinic.until({"store-password"}, set(), store=clinic.at(url))
    assert "wrong" not in finding.text.replace("WRONGPASS", "").replace("wrong number", "")


def test_doctor_names_rights_that_the_stores_user_lacks(clinic: Clinic) -> None:
    store = clinic.bad_store
    store("ACL", "SETUSER", "sluice", "on", ">pw", "resetkeys", "-@all", "+ping", "+info", "~{sl:*")
    try:
        clinic.until({"store-rights"}, set(), "fcall", store=clinic.at(store.url))
    finally:
        store("ACL", "DELUSER", "sluice")


def test_doctor_names_a_store_that_is_down(clinic: Clinic, tmp_path: pathlib.Path) -> None:
    clinic.until({"store-unreachable"}, set(), store=clinic.at(f"unix://{tmp_path}/none"))


def test_doctor_names_clocks_that_differ(clinic: Clinic) -> None:
    clinic.until({"clock-skew"}, set(), "-3", wall=lambda: time.time() + 3600)


def test_doctor_names_a_release_to_which_sluice_is_fixed(clinic: Clinic) -> None:
    clinic.until({"version-emulated"}, set(), emulated="1.30")


def test_doctor_names_a_kube_apiserver_that_nobody_runs(clinic: Clinic, tmp_path: pathlib.Path) -> None:
    document = yaml.safe_load(clinic.bed.admin.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    clinic.until({"kube-apiserver-unreachable"}, set(), kubeconfig=file)


def test_doctor_names_credentials_that_kube_apiserver_refuses(clinic: Clinic) -> None:
    stranger = clinic.bed.plane.token_kubeconfig("stranger", "no-such-token")
    clinic.until({"kube-apiserver-unauthorized"}, set(), kubeconfig=stranger)


async def test_doctor_says_what_its_user_may_not_read(clinic: Clinic) -> None:
    results = await clinic.examine(kubeconfig=clinic.bed.user("nobody-special"))
    assert skipped(results) >= {"not-permitted"}
    assert not {finding.code for finding in wrong(results)} - clinic_.IGNORED


def _run(clinic: Clinic, *words: str) -> tuple[int, str]:
    done = clinic.bed.sluice(
        "doctor", f"--kubeconfig={clinic.bed.admin}", f"--group={clinic_.GROUP}", "-n", PLACE,
        f"--redis-url={clinic.store.url}", "--timeout=60s", *words, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_healthy_installation_has_no_finding(clinic: Clinic) -> None:
    clinic.until(set(), set())
    code, text = _run(clinic, "-o", "json")
    document = json.loads(text)
    assert code == 0
    codes = {finding["code"] for check in document["checks"] for finding in check["findings"]}
    assert codes - clinic_.IGNORED == {"ok"}


def test_doctor_exits_with_one_and_prints_the_command_that_mends(clinic: Clinic) -> None:
    with clinic.deleted(SERVICE):
        clinic.until({"service-missing"}, {*UNAVAILABLE, *NO_PODS})
        code, text = _run(clinic)
    assert code == 1
    assert f"FAIL service         there is no Service {PLACE}/sluice [service-missing]" in text
    assert "     do: kubectl apply -f manifests/base/service.yaml" in text
    assert text.splitlines()[-1].startswith("something is broken: ")


def test_doctor_names_the_store_as_the_reason_of_a_server_without_writes(clinic: Clinic) -> None:
    clinic.store.kill()
    try:
        clinic.until({"server-store", "store-unreachable"}, set())
    finally:
        clinic.store.start()
    clinic.until(set(), {"server-store"})


def test_doctor_names_a_server_that_does_not_run(clinic: Clinic) -> None:
    """The last test: the server stays down. Another test's server may have taken its port."""
    clinic.stop()
    clinic.until(UNAVAILABLE, {"certificate-name", "certificate-untrusted", "tls-refused"})
