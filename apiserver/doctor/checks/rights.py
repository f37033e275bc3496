"""The rights of Sluice's service account: each that the manifests grant is asked for by a SubjectAccessReview.

`GRANTED` repeats the rules of `manifests/base` with their lines; tests/unit/doctor/test_rights.py compares them with the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.cluster import requestheader
from apiserver.doctor.findings import Answers, Check, found, good
from apiserver.doctor.installation import Installation

AT_ONCE = 8
"""Reviews under way at a time."""
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that the manifests grant: the file and the line where it begins, and `needs`: who fails without it.

    `binding` is the file of the object that gives the rule to the service account. Both files lie in `manifests/base`. Without an
    `optional` rule Sluice serves all the same.
    """

    file: str
    line: int
    binding: str
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    needs: str
    namespace: str = ""
    name: str = ""
    optional: bool = False

    def asked(self) -> Iterator[Mapping[str, str]]:
        """Yield the resourceAttributes of each right of the rule."""
        for resource in self.resources:
            plural, _, subresource = resource.partition("/")
            for verb in self.verbs:
                members = {
                    "group": self.group,
                    "resource": plural,
                    "subresource": subresource,
                    "verb": verb,
                    "namespace": self.namespace,
                    "name": self.name,
                }
                yield {key: value for key, value in members.items() if value}


_READER, _READER_BINDING = "clusterrole-reader.yaml", "clusterrolebinding-reader.yaml"
_DELEGATOR, _AUTHENTICATION = "clusterrolebinding-auth-delegator.yaml", "rolebinding-authentication-reader.yaml"
_ADMISSION = "admissionregistration.k8s.io"

GRANTED: Sequence[Rule] = (
    # Roles of kube-apiserver itself: the lines are those where the bindings name them.
    Rule(
        file=_DELEGATOR, line=8, binding=_DELEGATOR, group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",),
        needs="bearer tokens get 401",
    ),
    Rule(
        file=_DELEGATOR, line=8, binding=_DELEGATOR, group="authorization.k8s.io", resources=("subjectaccessreviews",),
        verbs=("create",), needs="every user but system:masters gets 500",
    ),
    Rule(
        file=_AUTHENTICATION, line=10, binding=_AUTHENTICATION, group="", resources=("configmaps",), verbs=("get", "list", "watch"),
        namespace=requestheader.NAMESPACE, name=requestheader.NAME, needs="Sluice does not start: it learns no CAs",
    ),
    Rule(
        file=_READER, line=12, binding=_READER_BINDING, group="", resources=("namespaces",), verbs=("get", "list", "watch"),
        needs="NamespaceLifecycle: no replica becomes ready",
    ),
    Rule(
        file=_READER, line=21, binding=_READER_BINDING, group=_ADMISSION,
        resources=(
            "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
        ),
        verbs=("list", "watch"), needs="webhooks and policies: no replica becomes ready",
    ),
    Rule(
        file=_READER, line=34, binding=_READER_BINDING, group="", resources=("resourcequotas",), verbs=("get", "list", "watch"),
        needs="ResourceQuota: no replica becomes ready",
    ),
    Rule(
        file=_READER, line=42, binding=_READER_BINDING, group="", resources=("resourcequotas/status",), verbs=("update",),
        needs="ResourceQuota: creates in namespaces with a quota get 500",
    ),
    Rule(
        file=_READER, line=49, binding=_READER_BINDING, group="", resources=("services",), verbs=("get",),
        needs="webhooks that are Services, where DNS does not know them",
    ),
    Rule(
        file=_READER, line=55, binding=_READER_BINDING, group="discovery.k8s.io", resources=("endpointslices",), verbs=("list",),
        needs="webhooks that are Services, where DNS does not know them",
    ),
    Rule(
        file=_READER, line=63, binding=_READER_BINDING, group="flowcontrol.apiserver.k8s.io",
        resources=("flowschemas", "prioritylevelconfigurations"), verbs=("list", "watch"),
        needs="priority and fairness then has Kubernetes' defaults", optional=True,
    ),
)  # fmt: skip


async def rights(installation: Installation) -> Answers:
    names = installation.names
    account = f"/api/v1/namespaces/{names.namespace}/serviceaccounts/{names.account}"
    if await installation.get(account) is None:
        text = f"there is no ServiceAccount {names.namespace}/{names.account}"
        yield found("service-account-missing", text, "kubectl apply -f manifests/base/serviceaccount.yaml")
    turn = asyncio.Semaphore(AT_ONCE)

    async def allowed(attributes: Mapping[str, str]) -> bool:
        async with turn:
            answer = await installation.cluster.ask("POST", REVIEWS, body=_review(installation, attributes))
        return bool(answer.get("status", {}).get("allowed"))

    asked = [(rule, attributes) for rule in GRANTED for attributes in rule.asked()]
    answers = await asyncio.gather(*(allowed(attributes) for _, attributes in asked))
    lacking: dict[Rule, list[Mapping[str, str]]] = {}
    for (rule, attributes), answer in zip(asked, answers, strict=True):
        if not answer:
            lacking.setdefault(rule, []).append(attributes)
    for rule, missing in lacking.items():
        unbound = all(other in lacking for other in GRANTED if other.binding == rule.binding)
        files = dict.fromkeys([rule.file, rule.binding] if unbound else [rule.file])
        text = (
            f"{names.account} may not {_described(missing)}: manifests/base/{rule.file} line {rule.line} ({rule.needs})"
        )
        code = "rbac-optional" if rule.optional else "rbac-missing"
        yield found(code, text, "kubectl apply " + " ".join(f"-f manifests/base/{file}" for file in files))
    if not lacking:
        yield good(f"the service account has all {len(asked)} rights of the manifests")


def _described(missing: Sequence[Mapping[str, str]]) -> str:
    """Say which verbs lack for which resources, those with the same verbs together."""
    verbs: dict[str, list[str]] = {}
    for attributes in missing:
        resource = "/".join(filter(None, (attributes["resource"], attributes.get("subresource"))))
        verbs.setdefault(resource, []).append(attributes["verb"])
    together: dict[str, list[str]] = {}
    for resource, listed in verbs.items():
        together.setdefault(", ".join(listed), []).append(resource)
    return "; ".join(f"{listed} {', '.join(resources)}" for listed, resources in together.items())


def _review(installation: Installation, attributes: Mapping[str, str]) -> dict[str, Any]:
    names = installation.names
    user = f"system:serviceaccount:{names.namespace}:{names.account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{names.namespace}", "system:authenticated"]
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": dict(attributes)},
    }


CHECKS = (Check("rights", "whether Sluice's service account has every right that the manifests grant", rights),)
