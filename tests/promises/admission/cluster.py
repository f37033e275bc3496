"""One control plane for all promises of admission: kube-apiserver with its own `resource.k8s.io`, Sluice behind it, and the webhook
server."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from tests.e2e.controlplane import bed, pki, plane
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
            "resources": [{"group": UPSTREAM_GROUP}, {"group": OWN_GROUP}],
        },
        {"level": "None"},
    ],
}

CALLER = "caller-of-hooks"
"""The name in the certificate that the service is shown."""


@dataclass(frozen=True)
class Cluster:
    """The state that all tests share."""

    bed: bed.Bed
    hooks: Hooks
    targets: dict[str, Target]
    audit_logs: dict[str, pathlib.Path]

    def annotations(self, target: str, audit_id: str) -> dict[str, str]:
        """Wait for the annotations that the server of a target has noted of a request."""
        found: list[dict[str, str]] = []

        def written() -> bool:
            lines = self.audit_logs[target].read_text().splitlines()
            found.extend(json.loads(line).get("annotations", {}) for line in lines if audit_id in line)
            return bool(found)

        plane.until(written, f"request {audit_id} is in the audit log")
        return found[0]


@contextlib.contextmanager
def started(folder: pathlib.Path) -> Iterator[Cluster]:
    policy, configuration = folder / "audit.yaml", folder / "admission.yaml"
    policy.write_text(yaml.safe_dump(AUDIT))
    audit_logs = {target: folder / f"audit-{target}.log" for target in ("upstream", "aggregated")}
    further = [
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        f"--admission-control-config-file={configuration}",
    ]
    audit = {target: [f"--audit-policy-file={policy}", f"--audit-log-path={log}"] for target, log in audit_logs.items()}
    serve_flags = ["--shutdown-delay-duration=0s", OLDER, *audit["aggregated"], *further]
    flags = [UPSTREAMS, *audit["upstream"], *further]
    made = bed.Bed(folder, versions=VERSIONS, flags=flags, serve_flags=serve_flags)
    with contextlib.closing(Hooks(folder / "hooks", made.plane.pki)) as hooks:
        configuration.write_text(yaml.safe_dump(_admission(folder, made.plane.pki, hooks.port)))
        with made:
            [replica] = made.replicas
            assert replica.process is not None
            logs = {replica.process.log: TRACEBACK, made.plane.folder / "kube-apiserver.log": PANIC}
            targets = {
                "upstream": Target("upstream", UPSTREAM_GROUP, made.admin, True, logs),
                "aggregated": Target("aggregated", OWN_GROUP, made.admin, True, logs),
            }
            made.apply([*_service(hooks.port), *_followers()])
            yield Cluster(made, hooks, targets, audit_logs)


def _admission(folder: pathlib.Path, keys: pki.PKI, port: int) -> bed.Object:
    """The configuration of both servers: by which certificate the service is called. Others are called by nobody in particular."""
    pair = keys.cluster.client(CALLER)
    user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    credentials = folder / "credentials.yaml"
    users = [{"name": f"*.{NAMESPACE}.svc:{port}", "user": user}]
    credentials.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
    plugins = [
        {
            "name": name,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(credentials),
            },
        }
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}


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


def _followers() -> list[bed.Object]:
    """Policies that match nothing and name ConfigMaps as parameters. kube-apiserver stops following a kind with the last policy that
    names it, and finds no parameters for a while when the next one comes."""
    rule = {"apiGroups": ["none.example.com"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    common = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": {"resourceRules": [rule]}}
    expression = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    reference = {"selector": {}, "parameterNotFoundAction": "Allow"}
    found = []
    for sort, spec, binding in (
        ("Validating", {"validations": [{"expression": "true"}]}, {"validationActions": ["Deny"]}),
        ("Mutating", {"mutations": [mutation], "reinvocationPolicy": "Never"}, {}),
    ):
        bound = {"policyName": "follows-config-maps", "paramRef": reference, **binding}
        for kind, body in ((f"{sort}AdmissionPolicy", common | spec), (f"{sort}AdmissionPolicyBinding", bound)):
            metadata = {"name": "follows-config-maps"}
            found.append(
                {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": body}
            )
    return found
