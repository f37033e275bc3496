"""Controllers of public projects, unmodified, on their CustomResourceDefinitions, which Sluice serves behind a kube-apiserver."""

from __future__ import annotations

import base64
import contextlib
import gzip
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import until
from tests.e2e.crds.controllers import PROMETHEUS, SNAPSHOTS
from tests.fixtures.processes import Process, free_port

MERGE = {"Content-Type": "application/merge-patch+json"}
DRIVER = "snapshots.example.com"
CORE, APPS = "/api/v1", "/apis/apps/v1"
MONITORING = "/apis/monitoring.coreos.com/v1"
SNAPSHOT, GROUP_SNAPSHOT = "/apis/snapshot.storage.k8s.io/v1", "/apis/groupsnapshot.storage.k8s.io/v1"
_NUMBERS = itertools.count()
Object = dict[str, Any]

# The programs are built when they are missing, which takes minutes.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def custom(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster whose kube-apiserver knows none of the definitions: Sluice serves them, and no other kinds."""
    projects = (SNAPSHOTS, PROMETHEUS)
    (group, versions), *others = [item for project in projects for item in project.groups.items()]
    bed = Bed(
        tmp_path_factory.mktemp("custom"),
        group=group,
        versions=versions,
        also=dict(others),
        controllers=True,
        kind_flags=["--no-builtin-kinds", *(f"--crds={project.crds}" for project in projects)],
        serve_flags=["-v=3"],
    )
    with bed:
        for project in projects:
            project.install(bed)
        yield bed


@pytest.fixture(scope="module")
def admin(custom: Bed) -> Iterator[Connection]:
    with custom.connect() as connection:
        yield connection


@pytest.fixture
def namespace(admin: Connection) -> str:
    name = f"crds-{next(_NUMBERS)}"
    created(admin, f"{CORE}/namespaces", {"metadata": {"name": name}})
    return name


def created(admin: Connection, path: str, obj: Object) -> Object:
    reply = admin.ask("POST", path, obj)
    assert reply.status == 201, reply.text
    made: Object = reply.json
    return made


def found(admin: Connection, path: str) -> Object:
    """Return the object, or an empty one if it is missing."""
    reply = admin.ask("GET", path)
    assert reply.status in (200, 404), reply.text
    obj: Object = reply.json if reply.status == 200 else {}
    return obj


def there(admin: Connection, path: str) -> None:
    until(lambda: found(admin, path), f"{path} is created")


def gone(admin: Connection, path: str) -> None:
    until(lambda: admin.ask("GET", path).status == 404, f"{path} is gone")


def conditions(obj: Object) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    found = obj.get("status", {}).get("conditions", [])
    return {condition["type"]: (condition["status"], condition.get("reason", "")) for condition in found}


# ---------------------------------------------------------------------------------------------------------- prometheus-operator


@pytest.fixture(scope="module")
def operator(custom: Bed) -> Iterator[Process]:
    kubeconfig = custom.service_account("default", "prometheus-operator")
    arguments = [
        f"--web.listen-address=127.0.0.1:{free_port()}",
        "--log-level=debug",
        "--feature-gates=StatusForConfigurationResources=true",
    ]
    process = PROMETHEUS.start("prometheus-operator", custom, *arguments, environ={"KUBECONFIG": str(kubeconfig)})
    try:
        process.until(lambda: synced(process.log.read_text()), "its controllers know their objects")
        yield process
    finally:
        process.stop()


def synced(log: str) -> bool:
    lines = [line for line in log.splitlines() if "successfully synced all caches" in line]
    names = ("alertmanager", "prometheus", "prometheusagent", "thanos")
    return all(any(f"component={name}-controller" in line for line in lines) for name in names)


def prometheus(name: str, **spec: Any) -> Object:
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "metadata": {"name": name}, "spec": spec}


def run_pods(admin: Connection, namespace: str, *names: str) -> None:
    """Say that the pods run, as a kubelet would."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for name in names:
        path = f"{CORE}/namespaces/{namespace}/pods/{name}"
        there(admin, path)
        assert admin.ask("PATCH", f"{path}/status", {"status": ready}, headers=MERGE).status == 200


def test_operator_finds_its_kinds_by_discovery_and_access_reviews(operator: Process) -> None:
    """It watches only kinds that it finds and may use. Otherwise it logs why not."""
    log = operator.log.read_text()
    assert "not installed in the cluster" not in log
    assert "missing permission" not in log


def test_operator_makes_a_stateful_set_and_reports_when_it_is_available(
    custom: Bed, admin: Connection, operator: Process, namespace: str
) -> None:
    path = f"{MONITORING}/namespaces/{namespace}/alertmanagers"
    sets = f"{APPS}/namespaces/{namespace}/statefulsets"
    obj = {"apiVersion": "monitoring.coreos.com/v1", "kind": "Alertmanager", "metadata": {"name": "main"}}
    owner = created(admin, path, obj | {"spec": {"replicas": 1}})

    operator.until(
        lambda: (
            conditions(found(admin, f"{path}/main"))
            == {"Reconciled": ("True", ""), "Available": ("False", "NoPodReady")}
        ),
        "the Alertmanager is reconciled",
    )
    [reference] = found(admin, f"{sets}/alertmanager-main")["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("Alertmanager", owner["metadata"]["uid"])
    run_pods(admin, namespace, "alertmanager-main-0")
    custom.kubectl("wait", "-n", namespace, "--for=condition=Available", "--timeout=120s", "alertmanager/main")
    columns = custom.kubectl("get", "-n", namespace, "--no-headers", "am", "main").stdout.split()
    assert columns[:5] == ["main", "1", "1", "True", "True"]


def test_operator_follows_kubectl_scale(custom: Bed, admin: Connection, operator: Process, namespace: str) -> None:
    path = f"{MONITORING}/namespaces/{namespace}/prometheuses"
    sets = f"{APPS}/namespaces/{namespace}/statefulsets"
    created(admin, path, prometheus("main"))
    run_pods(admin, namespace, "prometheus-main-0")
    custom.kubectl("wait", "-n", namespace, "--for=condition=Available", "--timeout=120s", "prometheus/main")

    # A Prometheus is scaled by its shards.
    custom.kubectl("scale", "-n", namespace, "prometheus", "main", "--replicas=2")

    operator.until(lambda: found(admin, f"{sets}/prometheus-main-shard-1"), "the second shard has a StatefulSet")
    run_pods(admin, namespace, "prometheus-main-shard-1-0")
    operator.until(lambda: found(admin, f"{path}/main")["status"].get("shards") == 2, "both shards are reported")
    scale = found(admin, f"{path}/main/scale")
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 2}, 2)
    assert "operator.prometheus.io/name=main" in scale["status"]["selector"]


def test_operator_writes_configuration_from_monitors_and_rules(
    admin: Connection, operator: Process, namespace: str
) -> None:
    root = f"{MONITORING}/namespaces/{namespace}"
    created(admin, f"{root}/prometheuses", prometheus("main", serviceMonitorSelector={}, ruleSelector={}))
    selector = {"matchLabels": {"app": "web"}}
    monitor = {"kind": "ServiceMonitor", "spec": {"selector": selector, "endpoints": [{"port": "http"}]}}
    rules = [{"alert": "Down", "expr": "up == 0", "for": "5m"}]
    rule = {"kind": "PrometheusRule", "spec": {"groups": [{"name": "web", "rules": rules}]}}
    for plural, obj in {"servicemonitors": monitor, "prometheusrules": rule}.items():
        created(
            admin, f"{root}/{plural}", {"apiVersion": "monitoring.coreos.com/v1", "metadata": {"name": "web"}, **obj}
        )

    def jobs() -> list[str]:
        data = found(admin, f"{CORE}/namespaces/{namespace}/secrets/prometheus-main").get("data", {})
        text = gzip.decompress(base64.b64decode(data.get("prometheus.yaml.gz", ""))) if data else b"{}"
        return [job["job_name"] for job in yaml.safe_load(text).get("scrape_configs", [])]

    operator.until(lambda: f"serviceMonitor/{namespace}/web/0" in jobs(), "the monitor is a job")
    maps = f"{CORE}/namespaces/{namespace}/configmaps/prometheus-main-rulefiles-0"
    operator.until(lambda: found(admin, maps).get("data"), "the rules are a file")
    [file] = found(admin, maps)["data"].values()
    assert yaml.safe_load(file)["groups"][0]["rules"] == rules

    def accepted() -> bool:
        [binding] = found(admin, f"{root}/servicemonitors/web").get("status", {}).get("bindings", []) or [{}]
        reported = {condition["type"]: condition["status"] for condition in binding.get("conditions", [])}
        return (binding.get("name"), reported) == ("main", {"Accepted": "True"})

    operator.until(accepted, "the monitor is reported as accepted")


def test_deleted_prometheus_takes_what_it_owns_with_it(
    custom: Bed, admin: Connection, operator: Process, namespace: str
) -> None:
    path = f"{MONITORING}/namespaces/{namespace}/prometheuses/main"
    owned = [
        f"{APPS}/namespaces/{namespace}/statefulsets/prometheus-main",
        f"{CORE}/namespaces/{namespace}/secrets/prometheus-main",
        f"{CORE}/namespaces/{namespace}/pods/prometheus-main-0",
    ]
    created(admin, path.removesuffix("/main"), prometheus("main"))
    for each in owned:
        there(admin, each)
    assert found(admin, path)["metadata"]["finalizers"] == ["monitoring.coreos.com/status-cleanup"]

    custom.kubectl("delete", "-n", namespace, "prometheus", "main", "--timeout=120s")

    for each in owned:
        gone(admin, each)


# ---------------------------------------------------------------------------------------------------------- external-snapshotter


@pytest.fixture(scope="module")
def snapshotter(custom: Bed) -> Iterator[Process]:
    """The controller of the cluster. A driver and its sidecar run, too."""
    socket = custom.folder / "csi.sock"
    accounts = {"snapshot-controller": "kube-system", "csi-snapshotter": "default"}
    kubeconfigs = {name: custom.service_account(namespace, name) for name, namespace in accounts.items()}
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str) -> Process:
            process = SNAPSHOTS.start(name, custom, *arguments)
            stack.callback(process.stop)
            return process

        driver = start("driver", str(socket), DRIVER)
        driver.until(socket.exists, "it listens")
        start("csi-snapshotter", f"--kubeconfig={kubeconfigs['csi-snapshotter']}", f"--csi-address={socket}", "-v=4")
        yield start("snapshot-controller", f"--kubeconfig={kubeconfigs['snapshot-controller']}", "-v=4")


def volume(admin: Connection, namespace: str, name: str) -> None:
    """A volume of the driver with a claim that is bound to it."""
    claims = f"{CORE}/namespaces/{namespace}/persistentvolumeclaims"
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    handle = f"{namespace}-{name}"
    created(
        admin,
        f"{CORE}/persistentvolumes",
        {
            "metadata": {"name": handle},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "csi": {"driver": DRIVER, "volumeHandle": handle},
                "claimRef": {"namespace": namespace, "name": name},
            },
        },
    )
    spec = {"accessModes": modes, "storageClassName": "", "volumeName": handle, "resources": {"requests": size}}
    created(admin, claims, {"metadata": {"name": name, "labels": {"app": "database"}}, "spec": spec})
    until(lambda: found(admin, f"{claims}/{name}")["status"]["phase"] == "Bound", f"the claim {name} is bound")


def test_snapshot_is_bound_to_content_that_was_made_before(
    custom: Bed, admin: Connection, snapshotter: Process, namespace: str
) -> None:
    path, contents = f"{SNAPSHOT}/namespaces/{namespace}/volumesnapshots", f"{SNAPSHOT}/volumesnapshotcontents"
    api, content = {"apiVersion": "snapshot.storage.k8s.io/v1"}, f"content-{namespace}"
    spec = {
        "driver": DRIVER,
        "deletionPolicy": "Delete",
        "source": {"snapshotHandle": "made-before"},
        "volumeSnapshotRef": {"name": "old", "namespace": namespace},
    }
    created(admin, contents, api | {"kind": "VolumeSnapshotContent", "metadata": {"name": content}, "spec": spec})
    source = {"source": {"volumeSnapshotContentName": content}}
    made = created(admin, path, api | {"kind": "VolumeSnapshot", "metadata": {"name": "old"}, "spec": source})

    ready = "--for=jsonpath={.status.readyToUse}=true"
    custom.kubectl("wait", "-n", namespace, ready, "--timeout=120s", "volumesnapshot/old")
    assert found(admin, f"{path}/old")["status"]["boundVolumeSnapshotContentName"] == content
    bound = found(admin, f"{contents}/{content}")
    assert bound["spec"]["volumeSnapshotRef"]["uid"] == made["metadata"]["uid"]
    assert bound["status"]["snapshotHandle"] == "made-before"

    other = {"spec": {"source": {"volumeSnapshotContentName": "another"}}}
    refused = admin.ask("PATCH", f"{path}/old", other, headers=MERGE)
    assert (refused.status, "volumeSnapshotContentName is immutable" in refused.json["message"]) == (422, True)

    custom.kubectl("delete", "-n", namespace, "volumesnapshot", "old", "--timeout=120s")
    gone(admin, f"{contents}/{content}")


def test_snapshot_of_a_claim_is_taken_and_deleted_by_its_driver(
    custom: Bed, admin: Connection, snapshotter: Process, namespace: str
) -> None:
    path = f"{SNAPSHOT}/namespaces/{namespace}/volumesnapshots"
    claim = f"{CORE}/namespaces/{namespace}/persistentvolumeclaims/data"
    api = {"apiVersion": "snapshot.storage.k8s.io/v1"}
    volume(admin, namespace, "data")
    of_class = {"kind": "VolumeSnapshotClass", "metadata": {"name": namespace}}
    created(
        admin,
        f"{SNAPSHOT}/volumesnapshotclasses",
        api | of_class | {"driver": DRIVER, "deletionPolicy": "Delete"},
    )
    spec = {"volumeSnapshotClassName": namespace, "source": {"persistentVolumeClaimName": "data"}}
    made = created(admin, path, api | {"kind": "VolumeSnapshot", "metadata": {"name": "new"}, "spec": spec})

    ready = "--for=jsonpath={.status.readyToUse}=true"
    custom.kubectl("wait", "-n", namespace, ready, "--timeout=120s", "volumesnapshot/new")
    content = f"snapcontent-{made['metadata']['uid']}"
    taken = found(admin, f"{path}/new")
    assert taken["status"]["boundVolumeSnapshotContentName"] == content
    assert taken["status"]["restoreSize"] == "1Gi"
    protections = {
        "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection",
        "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection",
    }
    until(
        lambda: {*found(admin, f"{path}/new")["metadata"]["finalizers"]} == protections,
        "the snapshot has its finalizers",
    )
    assert found(admin, f"{SNAPSHOT}/volumesnapshotcontents/{content}")["status"]["restoreSize"] == 1 << 30
    # The claim is protected while the snapshot is taken, and not any longer.
    protection = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
    until(lambda: protection not in found(admin, claim)["metadata"]["finalizers"], "the claim is not protected")

    custom.kubectl("delete", "-n", namespace, "volumesnapshot", "new", "--timeout=120s")
    gone(admin, f"{SNAPSHOT}/volumesnapshotcontents/{content}")
    driver = (custom.folder / "driver.log").read_text()
    assert f'DeleteSnapshot snapshot_id:"snapshot-{made["metadata"]["uid"]}"' in driver.replace("  ", " ")


def test_group_of_snapshots_is_taken_in_a_version_that_is_not_stored(
    custom: Bed, admin: Connection, snapshotter: Process, namespace: str
) -> None:
    """Its controllers use v1, and v1beta2 is stored."""
    path = f"{GROUP_SNAPSHOT}/namespaces/{namespace}/volumegroupsnapshots"
    snapshots = f"{SNAPSHOT}/namespaces/{namespace}/volumesnapshots"
    api = {"apiVersion": "groupsnapshot.storage.k8s.io/v1"}
    for name in ("data", "logs"):
        volume(admin, namespace, name)
    of_class = {"kind": "VolumeGroupSnapshotClass", "metadata": {"name": namespace}}
    created(
        admin,
        f"{GROUP_SNAPSHOT}/volumegroupsnapshotclasses",
        api | of_class | {"driver": DRIVER, "deletionPolicy": "Delete"},
    )
    selector = {"selector": {"matchLabels": {"app": "database"}}}
    spec = {"volumeGroupSnapshotClassName": namespace, "source": selector}
    created(admin, path, api | {"kind": "VolumeGroupSnapshot", "metadata": {"name": "all"}, "spec": spec})

    ready = "--for=jsonpath={.status.readyToUse}=true"
    custom.kubectl("wait", "-n", namespace, ready, "--timeout=120s", "volumegroupsnapshot/all")
    members = admin.ask("GET", snapshots).json["items"]
    assert len(members) == 2
    for member in members:
        custom.kubectl("wait", "-n", namespace, ready, "--timeout=120s", f"volumesnapshot/{member['metadata']['name']}")
    older = f"/apis/groupsnapshot.storage.k8s.io/v1beta1/namespaces/{namespace}/volumegroupsnapshots/all"
    assert found(admin, older)["status"] == found(admin, f"{path}/all")["status"]

    custom.kubectl("delete", "-n", namespace, "volumegroupsnapshot", "all", "--timeout=120s")
    until(lambda: admin.ask("GET", snapshots).json["items"] == [], "the members are deleted")


# -------------------------------------------------------------------------------------------------------------------- restarts


def test_controllers_go_on_with_the_successor_of_the_process_that_they_watched(
    custom: Bed, admin: Connection, operator: Process, snapshotter: Process, namespace: str
) -> None:
    [replica] = custom.replicas
    replica.replace()

    created(admin, f"{MONITORING}/namespaces/{namespace}/prometheuses", prometheus("late"))
    snapshots = f"{SNAPSHOT}/namespaces/{namespace}/volumesnapshots"
    spec = {"source": {"persistentVolumeClaimName": "missing"}}
    obj = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "late"}}
    created(admin, snapshots, obj | {"spec": spec})

    sets = f"{APPS}/namespaces/{namespace}/statefulsets/prometheus-late"
    operator.until(lambda: found(admin, sets), "the operator makes a StatefulSet")
    snapshotter.until(lambda: found(admin, f"{snapshots}/late").get("status", {}).get("error"), "the error is reported")
