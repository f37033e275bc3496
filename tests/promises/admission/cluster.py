"""One control plane for all promises of admission: kube-apiserver with its own `resource.k8s.io`, Sluice behind it, and the webhook
server."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from tests.e2e.controlplane import bed, plane
from tests.promises.admission.hooks import NAMESPACE, SERVICE, Hooks
from tests.promises.api.target import OLDER, OWN_GROUP, PANIC, TRACEBACK, UPSTREAM_GROUP, UPSTREAMS, VERSIONS, Target

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": UPSTREAM_GROUP}],
        },
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Cluster:
    """What all tests share."""

    bed: bed.Bed
    hooks: Hooks
    targets: dict[str, Target]
    audit_log: pathlib.Path

    def annotations(self, audit_id: str) -> dict[str, str]:
        """What kube-apiserver has noted of one of its own requests; waits for it."""
        found: list[dict[str, str]] = []

        def written() -> bool:
            lines = self.audit_log.read_text().splitlines()
            found.extend(json.loads(line).get("annotations", {}) for line in lines if audit_id in line)
            return bool(found)

        plane.until(written, f"request {audit_id} is in the audit log")
        return found[0]


@contextlib.contextmanager
def started(folder: pathlib.Path) -> Iterator[Cluster]:
    policy, log = folder / "audit.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump(AUDIT))
    log.touch()
    flags = [UPSTREAMS, f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]
    further = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
    flags, serve_flags = [*flags, further], ["--shutdown-delay-duration=0s", OLDER, further]
    with bed.Bed(folder, versions=VERSIONS, flags=flags, serve_flags=serve_flags) as made:
        [replica] = made.replicas
        assert replica.process is not None
        logs = {replica.process.log: TRACEBACK, made.plane.folder / "kube-apiserver.log": PANIC}
        targets = {
            "upstream": Target("upstream", UPSTREAM_GROUP, made.admin, True, logs),
            "aggregated": Target("aggregated", OWN_GROUP, made.admin, True, logs),
        }
        with contextlib.closing(Hooks(folder / "hooks", made.plane.pki)) as hooks:
            made.apply(_service(hooks.port))
            yield Cluster(made, hooks, targets, log)


def _service(port: int) -> list[bed.Object]:
    """Under which the webhook server is found as a service of the cluster."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {
                "type": "ExternalName",
                "externalName": "localhost",
                "ports": [{"port": port, "protocol": "TCP"}],
            },
        },
    ]
