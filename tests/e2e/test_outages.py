"""Outages of Sluice or its store in a cluster: reads from memory go on, and nothing else suffers."""

from __future__ import annotations

import contextlib
import os
import pathlib
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e import objects
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Connection, Stream
from tests.e2e.controlplane.pki import Pair
from tests.e2e.controlplane.plane import until
from tests.promises.admission.hooks import Hooks, add, patch

CLASSES = f"{objects.V1}/deviceclasses"
AVAILABLE_SECONDS = 5.0


@pytest.fixture(scope="module")
def frail(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster whose parts these tests stop."""
    with Bed(tmp_path_factory.mktemp("frail"), serve_flags=["-v=3"]) as bed:
        yield bed


def ask_for_a_probe(bed: Bed) -> None:
    """kube-apiserver looks at an APIService every 30 s, and whenever it changes."""
    bed.kubectl("annotate", "apiservice", bed.apiservice, "--overwrite", f"probe={time.monotonic_ns()}")


def probes(bed: Bed) -> int:
    """How many of kube-apiserver's availability probes were answered."""
    process = bed.replicas[0].process
    assert process is not None
    return process.log.read_text().count('"user_agent":"Go-http-client/1.1"')


def retry_after(reply_headers: object) -> int:
    value = reply_headers.get("Retry-After")  # type: ignore[attr-defined]
    return int(value or 0)


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_apiservice_is_available_within_5_seconds_of_work_after_the_start(frail: Bed) -> None:
    """How long that takes on a machine that does something else too, or whose disk is slow, is not this program's business."""
    [replica] = frail.replicas
    [apiservice] = [item for item in frail.objects if item["kind"] == "APIService"]
    collection = "/apis/apiregistration.k8s.io/v1/apiservices"
    with frail.connect() as admin:
        assert admin.ask("DELETE", f"{collection}/{frail.apiservice}").status == 200
        replica.stop()

        replica.start()
        assert admin.ask("POST", collection, apiservice).status == 201
        until(frail.is_available, "the APIService is available")

    assert replica.process is not None
    assert cpu_seconds(replica.process.popen.pid) < AVAILABLE_SECONDS


def test_a_stopped_store_takes_nothing_down_but_what_needs_it(frail: Bed) -> None:
    with frail.connect() as admin, frail.connect(frail.straight(frail.admin)) as straight:
        assert admin.ask("POST", CLASSES, objects.device_class("kept")).status == 201
        listed = admin.ask("GET", CLASSES).json
        version = listed["metadata"]["resourceVersion"]
        with Stream(admin, f"{CLASSES}?watch=1&resourceVersion={version}&timeoutSeconds=1200") as held:
            frail.store.stop()
            try:
                _reads_from_memory_go_on(admin, version)
                _what_needs_the_store_is_told_to_come_back(admin)
                _health_tells_where_the_fault_is(straight)
                _the_apiservice_stays_available(frail)
            finally:
                frail.store.start()
            until(lambda: admin.ask("POST", CLASSES, objects.device_class("after")).status == 201, "writes work again")
            seen = [held.next()["object"]["metadata"]["name"]]
            assert seen == ["after"]
        assert straight.ask("GET", "/readyz/store").status == 200


def _reads_from_memory_go_on(admin: Connection, version: str) -> None:
    until(lambda: admin.ask("POST", CLASSES, objects.device_class("probe")).status != 201, "the outage is noticed")
    for query in ("resourceVersion=0", f"resourceVersion={version}&resourceVersionMatch=NotOlderThan"):
        reply = admin.ask("GET", f"{CLASSES}?{query}")
        assert reply.status == 200, reply.text
        assert "kept" in [item["metadata"]["name"] for item in reply.json["items"]]
    assert admin.ask("GET", f"{CLASSES}/kept?resourceVersion=0").status == 200
    with Stream(admin, f"{CLASSES}?watch=1&resourceVersion={version}&timeoutSeconds=1") as watching:
        assert watching.status == 200
        assert watching.rest() == []


def _what_needs_the_store_is_told_to_come_back(admin: Connection) -> None:
    for method, path, body in [
        ("GET", CLASSES, None),
        ("GET", f"{CLASSES}/kept", None),
        ("POST", CLASSES, objects.device_class("lost")),
        ("DELETE", f"{CLASSES}/kept", None),
    ]:
        reply = admin.ask(method, path, body)
        assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable"), (method, path, reply.text)
        assert retry_after(reply.headers) >= 1
    from_now = admin.ask("GET", f"{CLASSES}?watch=1&timeoutSeconds=5")
    assert (from_now.status, from_now.json["reason"]) == (429, "TooManyRequests")
    assert retry_after(from_now.headers) >= 1


def _health_tells_where_the_fault_is(straight: Connection) -> None:
    assert straight.ask("GET", "/readyz").text == "ok"
    assert straight.ask("GET", "/livez").text == "ok"
    store = straight.ask("GET", "/readyz/store")
    assert store.status == 500
    assert store.text.startswith("internal server error: ")


def _the_apiservice_stays_available(bed: Bed) -> None:
    before = probes(bed)
    ask_for_a_probe(bed)
    until(lambda: probes(bed) >= before + 5, "kube-apiserver has looked again")
    until(lambda: bed.condition().get("reason") == "Passed", "it found nothing wrong")
    assert objects.GROUP in bed.kubectl("api-resources", f"--api-group={objects.GROUP}").stdout


def test_killed_sluice_comes_back_by_itself(frail: Bed) -> None:
    [replica] = frail.replicas
    with frail.connect() as admin:
        replica.vanish()
        ask_for_a_probe(frail)
        until(lambda: frail.condition()["status"] == "False", "the APIService is unavailable")
        assert admin.ask("GET", CLASSES).status == 503
        assert admin.ask("GET", "/readyz").status == 200

        replica.start()

        until(frail.is_available, "the APIService is available again")
        until(lambda: admin.ask("GET", f"{CLASSES}/kept").status == 200, "kube-apiserver passes requests on again")


def test_outage_of_kube_apiserver_admits_no_unknown_user(frail: Bed) -> None:
    """Straight to Sluice's port, since nothing else is left."""
    frail.kubectl("create", "serviceaccount", "robot", "-n", "default")
    robot = frail.straight(frail.service_account("default", "robot"))
    with (
        frail.connect(frail.straight(frail.admin)) as admin,
        frail.connect(frail.straight(frail.user("mallory"))) as mallory,
        frail.connect(robot) as token,
    ):
        frail.plane.kill_apiserver()
        try:
            assert admin.ask("GET", f"{CLASSES}/kept").status == 200
            assert admin.ask("POST", CLASSES, objects.device_class("alone")).status == 201
            refused = mallory.ask("GET", f"{CLASSES}?a=<b>")
            assert (refused.status, refused.headers["Content-Type"]) == (500, "text/plain; charset=utf-8")
            assert refused.text.startswith(f'Internal Server Error: "{CLASSES}?a=&lt;b&gt;": Post ')
            assert (token.ask("GET", CLASSES).status, token.ask("GET", "/readyz").status) == (401, 401)
            assert mallory.ask("GET", "/readyz").text == "ok"
        finally:
            frail.plane.start_apiserver()
        until(lambda: mallory.ask("GET", CLASSES).status == 403, "questions are answered again")
        until(lambda: token.ask("GET", CLASSES).status == 403, "tokens are reviewed again")


def admitting(bed: Bed, name: str, hook: str, hooks: Hooks) -> list[objects.Object]:
    """A mutating webhook and a policy for classes with the label `judged`."""
    kind = "admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": [objects.GROUP],
        "apiVersions": ["v1"],
        "resources": ["deviceclasses"],
        "operations": ["CREATE"],
    }
    selector = {"matchLabels": {"judged": name}}
    webhook = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": hooks.url(hook), "caBundle": hooks.ca_bundle},
        "rules": [rule],
        "objectSelector": selector,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 30,
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule], "objectSelector": selector},
        "validations": [{"expression": "!object.metadata.name.startsWith('no-')", "message": "no such names"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": kind, "kind": "MutatingWebhookConfiguration", "metadata": {"name": name}, "webhooks": [webhook]},
        {"apiVersion": kind, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": policy},
        {"apiVersion": kind, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding},
    ]


@pytest.fixture
def hooks(frail: Bed, tmp_path: pathlib.Path) -> Iterator[Hooks]:
    with contextlib.closing(Hooks(tmp_path / "hooks", frail.plane.pki)) as made:
        yield made


def in_force(frail: Bed, name: str) -> None:
    dry = f"{CLASSES}?dryRun=All"
    with frail.connect() as admin:
        until(
            lambda: (
                admin.ask("POST", dry, objects.device_class(f"asks-{name}", labels={"judged": name}))
                .json["metadata"]
                .get("labels", {})
                .get("by")
                == "webhook"
                and admin.ask("POST", dry, objects.device_class("no-way", labels={"judged": name})).status == 422
            ),
            "webhook and policy are in force",
        )


def age(straight: Connection, collection: str) -> float:
    """How long ago a copy was confirmed."""
    name = f'sluice_cluster_copy_age_seconds{{collection="{collection}"}}'
    [line] = [line for line in straight.ask("GET", "/metrics").text.splitlines() if line.startswith(name)]
    return float(line.rpartition(" ")[2])


def test_writes_without_kube_apiserver_are_judged_by_the_last_config(frail: Bed, hooks: Hooks) -> None:
    hooks.program("/label", [patch(add("/metadata/labels/by", "webhook"))])
    frail.apply(admitting(frail, "last", "/label", hooks))
    in_force(frail, "last")
    followed = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    with frail.connect(frail.straight(frail.admin)) as straight:
        frail.plane.kill_apiserver()
        try:
            before = age(straight, followed)
            made = straight.ask("POST", CLASSES, objects.device_class("yes", labels={"judged": "last"}))
            assert (made.status, made.json["metadata"]["labels"]["by"]) == (201, "webhook")
            refused = straight.ask("POST", CLASSES, objects.device_class("no-way", labels={"judged": "last"}))
            assert (refused.status, "no such names" in refused.text) == (422, True)
            until(lambda: age(straight, followed) > before, "it is told how old the configuration is")
        finally:
            frail.plane.start_apiserver()

    for kind in ("mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        frail.kubectl("delete", kind, "last")


def test_webhook_that_does_not_answer_delays_only_the_objects_it_judges(frail: Bed, hooks: Hooks) -> None:
    many = 50
    hooks.program("/label", [patch(add("/metadata/labels/by", "webhook"))])
    frail.apply(admitting(frail, "slow", "/label", hooks))
    in_force(frail, "slow")
    hooks.program("/label", [{"hold": True, **patch(add("/metadata/labels/by", "webhook"))}])
    asked = len(hooks.calls("/label"))

    def create(number: int) -> int:
        with frail.connect(frail.straight(frail.admin)) as own:
            return own.ask("POST", CLASSES, objects.device_class(f"slow-{number}", labels={"judged": "slow"})).status

    with ThreadPoolExecutor(many) as threads, frail.connect(frail.straight(frail.admin)) as straight:
        held = [threads.submit(create, number) for number in range(many)]
        try:
            hooks.calls("/label", count=asked + many)
            for number in range(many):
                assert straight.ask("GET", "/livez").text == "ok"
                assert straight.ask("POST", CLASSES, objects.device_class(f"quick-{number}")).status == 201
            assert not any(one.done() for one in held)
        finally:
            hooks.release("/label")
        assert [one.result() for one in held] == [201] * many


def test_certificates_are_renewed_on_disk_without_dropping_a_connection(frail: Bed) -> None:
    with frail.connect() as admin, Stream(admin, f"{CLASSES}?watch=1&timeoutSeconds=1200") as held:
        before = frail.presented_certificate()
        frail.renew_serving_certificate()
        until(lambda: frail.presented_certificate() != before, "the new certificate is served")
        reply = admin.ask("POST", CLASSES, objects.device_class("renewed"))
        assert reply.status == 201, reply.text
        assert held.next()["object"]["metadata"]["name"] in {"kept", "after", "renewed"}


TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
AS_ADMIN = {"X-Remote-User": "kubernetes-admin", "X-Remote-Group": "system:masters"}


def straight(bed: Bed, pair: Pair) -> Connection:
    """Sluice's own port, with a certificate of this test's choice."""
    return Connection(bed.straight(bed.plane.pair_kubeconfig("straight", pair)))


def test_a_new_authority_for_clients_is_believed_without_a_restart(frail: Bed) -> None:
    """kube-apiserver reads its files again and publishes the bundle; Sluice follows the ConfigMap."""
    frail.plane.pki.cluster.renew()
    user = frail.straight(frail.user("newcomer"))

    def known() -> bool:
        try:
            with frail.connect(user) as newcomer:
                return "newcomer" in newcomer.ask("GET", CLASSES).text
        except (ssl.SSLError, ConnectionError):
            return False

    until(known, "the new authority's certificate is accepted")
    with frail.connect(frail.straight(frail.admin)) as admin:
        assert admin.ask("GET", CLASSES).status == 200


def test_the_front_proxys_authority_is_rotated_without_a_restart(frail: Bed) -> None:
    keys = frail.plane.pki
    old = keys.proxy.client("front-proxy-client", file="old-front-proxy")
    with frail.connect() as admin, straight(frail, old) as kept:
        assert kept.ask("GET", CLASSES, headers=AS_ADMIN).status == 200
        keys.proxy.renew()
        keys.proxy_client = keys.proxy.client("front-proxy-client")

        def is_believed() -> bool:
            try:
                with straight(frail, keys.proxy_client) as new:
                    return new.ask("GET", CLASSES, headers=AS_ADMIN).status == 200
            except (ssl.SSLError, ConnectionError):
                return False

        until(is_believed, "the new front proxy is believed")
        assert kept.ask("GET", CLASSES, headers=AS_ADMIN).status == 200
        assert admin.ask("GET", CLASSES).status == 200

        keys.proxy.retire()
        only = {"data": {"requestheader-client-ca-file": keys.proxy.pem.decode()}}
        merge = {"Content-Type": "application/merge-patch+json"}

        def is_refused() -> bool:
            admin.ask("PATCH", TRUST, only, headers=merge)
            return kept.ask("GET", CLASSES, headers=AS_ADMIN).status == 401

        until(is_refused, "the old one is not, on the connection that it has kept open")
        assert admin.ask("GET", CLASSES).status == 200


def test_a_broken_trust_is_no_update(frail: Bed) -> None:
    """An emptied ConfigMap locks nobody out and lets nobody in (kube-apiserver writes it anew within a minute)."""
    with frail.connect() as admin, frail.connect(frail.straight(frail.user("eve"))) as eve:
        broken = {"data": {"requestheader-client-ca-file": "", "requestheader-allowed-names": "no list"}}
        reply = admin.ask("PATCH", TRUST, broken, headers={"Content-Type": "application/merge-patch+json"})
        assert reply.status == 200
        for _ in range(20):
            assert admin.ask("GET", CLASSES).status == 200
            assert eve.ask("GET", CLASSES, headers=AS_ADMIN).status == 403
