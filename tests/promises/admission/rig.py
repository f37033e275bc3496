"""The fixture of admission promises: it returns configurations that are in force, and deletes them after the test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tests.e2e.controlplane.plane import until
from tests.fixtures.server import Reply
from tests.promises.admission.cluster import Cluster
from tests.promises.admission.hooks import NAMESPACE, SERVICE, Call, warn
from tests.promises.admission.normal import Normaliser
from tests.promises.api.client import Client, device_class
from tests.promises.api.target import Target

Phase = Literal["mutating", "validating"]
PHASES: tuple[Phase, ...] = ("mutating", "validating")
Object = dict[str, Any]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS: Mapping[Phase, tuple[str, str]] = {
    "mutating": ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    "validating": ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
}
POLICIES: Mapping[Phase, tuple[str, str]] = {
    "mutating": ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    "validating": ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
}
PROBE = "probe.sluice.dev/token"
NAME_LABEL, TEST_LABEL = "kubernetes.io/metadata.name", "promises.sluice.dev/test"
IN_FORCE_SECONDS = 30.0
_TOKENS = itertools.count()


def changed(value: Mapping[str, Any], members: Mapping[str, Any]) -> Object:
    """With these members; None takes one away."""
    return {name: member for name, member in {**value, **members}.items() if member is not None}


class Rig:
    """One test's part of the cluster, on one target: a namespace that is named `mine`, a path of that name at the webhook server, and
    what the test configures."""

    def __init__(self, cluster: Cluster, target: Target, api: Client, mine: str) -> None:
        self.cluster, self.target, self.api, self.mine = cluster, target, api, mine
        self.group = target.group
        self.claims, self.classes, self.slices = api.claims(mine), api.classes, api.slices
        self._normaliser = Normaliser(mine)
        self._made: list[str] = []
        """Paths of what goes after the test, in the order in which it came."""
        self._clients: dict[tuple[str, ...], Client] = {}

    @property
    def upstream(self) -> bool:
        return self.target.name == "upstream"

    # Webhooks

    def hook(self, *answers: Object, name: str = "hook", service: bool = False, **entry: Any) -> Object:
        """A webhook of a configuration, which gives these answers in their order, the last one for ever; none: it allows. `entry` are
        members that differ from: every write of every namespaced kind of the target, in the test's own namespace. None leaves one out."""
        path = f"/{self.mine}/{name}"
        self.cluster.hooks.program(path, answers)
        reference = {"namespace": NAMESPACE, "name": SERVICE, "path": path, "port": self.cluster.hooks.port}
        where: Object = {"service": reference} if service else {"url": self.cluster.hooks.url(path)}
        usual: Object = {
            "name": f"{name}.{self.mine}.example.com",
            "clientConfig": {**where, "caBundle": self.cluster.hooks.ca_bundle},
            "rules": [self.rule()],
            "namespaceSelector": {"matchLabels": {NAME_LABEL: self.mine}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }
        return changed(usual, entry)

    def rule(
        self, *resources: str, operations: Sequence[str] = ("*",), scope: str = "Namespaced", **more: Any
    ) -> Object:
        usual: Object = {
            "apiGroups": [self.group],
            "apiVersions": ["*"],
            "resources": list(resources) or ["*/*"],
            "operations": list(operations),
            "scope": scope,
        }
        return changed(usual, more)

    def of_the_cluster(self, *resources: str, **more: Any) -> Object:
        """Members of a webhook for cluster-scoped objects that carry `self.label`."""
        return {
            "rules": [self.rule(*resources, scope="Cluster", **more)],
            "objectSelector": {"matchLabels": self.label},
            "namespaceSelector": None,
        }

    @property
    def label(self) -> dict[str, str]:
        return {TEST_LABEL: self.mine}

    def webhook(self, phase: Phase, *answers: Object, **entry: Any) -> str:
        """A configuration with one webhook (see `hook`), in force. Returns the configuration's name."""
        return self.webhooks(phase, self.hook(*answers, **entry))

    def webhooks(self, phase: Phase, *hooks: Object, name: str = "") -> str:
        """A configuration of these, in force."""
        kind, resource = WEBHOOKS[phase]
        name = name or f"{self.mine}-{len(self._made)}"
        self.install("webhooks", phase, resource, kind=kind, name=name, webhooks=list(hooks))
        return name

    def install(
        self, sort: str, phase: Phase, resource: str, *, kind: str, name: str, wait: bool = True, **body: Any
    ) -> None:
        """Creates an object of admissionregistration.k8s.io, which goes after the test."""
        obj = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **body}
        self.api.create(f"{REGISTRATION}/{resource}", obj)
        self._made.append(f"{REGISTRATION}/{resource}/{name}")
        if wait:
            self.wait_until_in_force(sort, phase)

    # Policies

    def policy(
        self, phase: Phase, spec: Mapping[str, Any], *, binding: Mapping[str, Any] | None = None, **more: Any
    ) -> str:
        """A policy and its binding, in force. Returns the name of both. `spec` is added to: every write of every namespaced kind of the
        target, in the test's own namespace, Fail, and of mutating ones Never. `binding`: added to the policy's name and, of validating
        ones, Deny. With `bind=False` there is no binding; `wait=False` returns before they are in force."""
        kind, resource = POLICIES[phase]
        name = more.get("name") or f"{self.mine}-{len(self._made)}"
        usual: Object = {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [self.rule()],
                "namespaceSelector": {"matchLabels": {NAME_LABEL: self.mine}},
            },
        }
        if phase == "mutating":
            usual["reinvocationPolicy"] = "Never"
        body = changed(usual, spec)
        self.install("policies", phase, resource, kind=kind, name=name, wait=False, spec=body)
        if more.get("bind", True):
            self.bind(phase, name, name=name, wait=False, **(binding or {}))
        if more.get("wait", True):
            self.wait_until_in_force("policies", phase)
        return str(name)

    def bind(self, phase: Phase, policy: str, *, name: str, wait: bool = True, **spec: Any) -> None:
        """A further binding of a policy."""
        kind, resource = POLICIES[phase]
        usual: Object = {"policyName": policy}
        if phase == "validating":
            usual["validationActions"] = ["Deny"]
        resource = resource.replace("policies", "policybindings")
        self.install(
            "policies", phase, resource, kind=f"{kind}Binding", name=name, wait=wait, spec=changed(usual, spec)
        )

    # Being in force

    def wait_until_in_force(self, sort: str, phase: Phase) -> None:
        """Wait until all configurations written so far, changes and deletions included, hold on this target.

        A server follows configurations of one kind in their order. So this creates one more and repeats a dry run that only
        this one matches, until it shows."""
        token = f"token-{next(_TOKENS)}"
        made = (self._probing_webhook if sort == "webhooks" else self._probing_policy)(phase, token)
        probe = device_class(token, labels={PROBE: token})

        def shows() -> bool:
            reply = self.api.ask("POST", self.classes, probe, dryRun="All")
            assert reply.status == 201, reply.text
            mutated = reply.json["metadata"].get("annotations", {}).get(PROBE)
            return mutated == token or any(token in text for text in reply.headers.get_all("Warning", []))

        try:
            until(shows, f"{sort} ({phase}) are in force on {self.target.name}", seconds=IN_FORCE_SECONDS)
        finally:
            for path in reversed(made):
                self.api.delete(path)
            self.cluster.hooks.forget(f"/{token}")

    def _probing_webhook(self, phase: Phase, token: str) -> list[str]:
        kind, resource = WEBHOOKS[phase]
        path = f"/{token}"
        self.cluster.hooks.program(path, [warn(token)])
        hook = {
            "name": f"{token}.example.com",
            "clientConfig": {"url": self.cluster.hooks.url(path), "caBundle": self.cluster.hooks.ca_bundle},
            "rules": [self.rule("deviceclasses", scope="Cluster")],
            "objectSelector": {"matchLabels": {PROBE: token}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        return [self._create(resource, kind, token, webhooks=[hook])]

    def _probing_policy(self, phase: Phase, token: str) -> list[str]:
        kind, resource = POLICIES[phase]
        spec: Object = {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [self.rule("deviceclasses", scope="Cluster")],
                "objectSelector": {"matchLabels": {PROBE: token}},
            },
        }
        binding: Object = {"policyName": token}
        if phase == "validating":
            spec["validations"] = [{"expression": "false", "message": token}]
            binding["validationActions"] = ["Warn"]
        else:
            added = f"Object{{metadata: Object.metadata{{annotations: {{'{PROBE}': '{token}'}}}}}}"
            configuration = {"expression": added}
            spec["mutations"] = [{"patchType": "ApplyConfiguration", "applyConfiguration": configuration}]
            spec["reinvocationPolicy"] = "Never"
        bindings = resource.replace("policies", "policybindings")
        return [
            self._create(resource, kind, token, spec=spec),
            self._create(bindings, f"{kind}Binding", token, spec=binding),
        ]

    def _create(self, resource: str, kind: str, name: str, **body: Any) -> str:
        obj = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **body}
        self.api.create(f"{REGISTRATION}/{resource}", obj)
        return f"{REGISTRATION}/{resource}/{name}"

    # Calls and answers

    def calls(self, hook: str = "", *, count: int = 0) -> list[Call]:
        """Calls of this test's webhooks, or of one, in their order; waits until there are so many."""
        return self.cluster.hooks.calls(f"/{self.mine}/{hook}".rstrip("/"), count=count)

    def reviews(self, hook: str = "") -> list[Any]:
        """The requests of their reviews, normalised."""
        return [self.normal(call.request) for call in self.calls(hook)]

    def normal(self, value: Any) -> Any:
        """The normal form of any JSON (normal.py)."""
        return self._normaliser.value(value)

    def forget(self) -> None:
        """The calls and the programs of this test, so far."""
        self.cluster.hooks.forget(f"/{self.mine}")

    def annotations(self, reply: Reply) -> dict[str, str]:
        """Annotations that the server of this target has noted of a request; both servers of a chain use one ID."""
        return self.cluster.annotations(self.target.name, reply.headers["Audit-ID"])

    # Clients

    def user(self, name: str, *groups: str) -> Client:
        """Somebody else's client, by a certificate of the cluster's CA."""
        key = (name, *groups)
        if key not in self._clients:
            kubeconfig = self.cluster.bed.user(name, groups)
            logs = self.target.logs
            self._clients[key] = Client(Target(self.target.name, self.group, kubeconfig, True, logs))
        return self._clients[key]

    # Life

    def later(self, path: str) -> str:
        """This object is deleted after the test."""
        self._made.append(path)
        return path

    def leave(self) -> None:
        """Takes away what the test has made. Nobody waits for that: it concerns nothing that another test has."""
        for path in reversed(self._made):
            self.api.ask("DELETE", path)
        self.forget()
        for client in self._clients.values():
            with contextlib.suppress(OSError):
                client.close()


def warnings(reply: Reply) -> list[str]:
    """The texts of an answer's warnings."""
    found = reply.headers.get_all("Warning", [])
    assert all(text.startswith('299 - "') and text.endswith('"') for text in found), found
    return [text[7:-1].replace('\\"', '"').replace("\\\\", "\\") for text in found]
