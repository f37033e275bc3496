"""The Deployment and its pods: do they exist, do they run, and if not, what does the kubelet say?"""

from __future__ import annotations

from collections.abc import Iterator

from apiserver.doctor.findings import Answers, Check, Finding, found, good
from apiserver.doctor.installation import Installation, Object, is_ready

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
"""Reasons of waiting containers. Upstream: kubernetes/kubernetes `pkg/kubelet/images/types.go` and
`pkg/kubelet/kuberuntime/kuberuntime_container.go`."""
SHOWN = 5
"""The most pods with findings of their own: replicas fail alike."""


async def deployment(installation: Installation) -> Answers:
    names = installation.names
    if await installation.get(f"/api/v1/namespaces/{names.namespace}") is None:
        return
    if await installation.outside():
        yield good("Sluice runs outside of this cluster's pods")
        return
    have = await installation.deployment()
    if have is None:
        text = f"there is no Deployment {names.namespace}/{names.service}"
        yield found("deployment-missing", text, "kubectl apply -k manifests/overlays/dev")
        return
    pods = await installation.pods()
    wrong = [*deployment_findings(have, pods), *pod_findings(pods, names.namespace)]
    for finding in wrong:
        yield finding
    if not wrong:
        yield good(f"Deployment {names.service}: {len(pods)} pods are ready")


def deployment_findings(have: Object, pods: object) -> Iterator[Finding]:
    """Read the spec and the conditions of the Deployment."""
    name, namespace = have["metadata"]["name"], have["metadata"]["namespace"]
    wanted, status = have.get("spec", {}).get("replicas", 1), have.get("status", {})
    conditions = {each.get("type"): each for each in status.get("conditions") or []}
    if not wanted:
        scale = f"kubectl -n {namespace} scale deployment {name} --replicas=1"
        yield found("deployment-scaled-to-zero", f"Deployment {name} has no replicas", scale)
        return
    failed = conditions.get("ReplicaFailure", {})
    describe = f"kubectl -n {namespace} describe deployment {name}"
    if failed.get("status") == "True":
        yield found("pods-refused", f"Deployment {name}: {failed.get('reason')}: {failed.get('message')}", describe)
    elif not pods:
        yield found("pods-missing", f"Deployment {name} wants {wanted} pods, and none exists", describe)
    progress = conditions.get("Progressing", {})
    if progress.get("status") == "False" and failed.get("status") != "True":
        yield found(
            "deployment-rollout", f"Deployment {name}: {progress.get('reason')}: {progress.get('message')}", describe
        )
    elif pods and status.get("availableReplicas", 0) and status.get("availableReplicas", 0) < wanted:
        text = f"Deployment {name}: {status.get('availableReplicas', 0)} of {wanted} replicas are available"
        yield found("deployment-rollout", text, f"kubectl -n {namespace} get pods")


def pod_findings(pods: object, namespace: str) -> Iterator[Finding]:
    """Say for each pod that is not ready why it is not."""
    listed = [pod for pod in pods if isinstance(pod, dict)] if isinstance(pods, list | tuple) else []
    shown = 0
    for pod in listed:
        if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") == "Succeeded":
            continue
        findings = [*_memory(pod, namespace), *([] if is_ready(pod) else [_why(pod, namespace)])]
        yield from findings
        shown += bool(findings)
        if shown == SHOWN:
            return


def _memory(pod: Object, namespace: str) -> Iterator[Finding]:
    name = pod["metadata"]["name"]
    for each in pod.get("status", {}).get("containerStatuses") or []:
        for state in (each.get("lastState") or {}, each.get("state") or {}):
            if (state.get("terminated") or {}).get("reason") == "OOMKilled":
                text = f"pod {name}: the container {each.get('name')} was killed at its memory limit (OOMKilled)"
                remedy = f"kubectl -n {namespace} set resources deployment/sluice --limits=memory=2Gi   # manifests/README.md, Memory"
                yield found("pod-out-of-memory", text, remedy)
                return


def _why(pod: Object, namespace: str) -> Finding:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    describe = f"kubectl -n {namespace} describe pod {name}"
    for each in status.get("conditions") or []:
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return found("pod-unschedulable", f"pod {name} is not scheduled: {each.get('message')}", describe)
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (each.get("state") or {}).get("waiting") or {}
        reason, said = waiting.get("reason", ""), waiting.get("message", "")
        about = f"pod {name}: {reason}: {said}".rstrip(": ")
        if reason in _IMAGE:
            return found("pod-image", f"{about} (image {each.get('image')})", describe)
        if reason in _CONFIG:
            return found("pod-config", about, describe)
        if reason == "CrashLoopBackOff" or (each.get("restartCount", 0) > 2 and waiting):
            ended = (each.get("lastState") or {}).get("terminated") or {}
            code = f"; it ended with {ended.get('exitCode')} ({ended.get('reason')})" if ended else ""
            return found("pod-crash-loop", f"{about}{code}", f"kubectl -n {namespace} logs {name} --previous")
    reasons = [
        f"{each.get('reason', '')}: {each.get('message', '')}".strip(": ")
        for each in status.get("conditions") or []
        if each.get("type") == "Ready"
    ]
    text = f"pod {name} ({status.get('phase', 'Unknown')}) is not ready: {'; '.join(filter(None, reasons)) or 'no reason given'}"
    return found("pod-not-ready", text, f"kubectl -n {namespace} logs {name}")


async def secrets(installation: Installation) -> Answers:
    names = installation.names
    have = await installation.deployment()
    if have is None or await installation.outside():
        return
    missing = False
    for secret in sorted(_secrets(have.get("spec", {}).get("template", {}).get("spec", {}))):
        if await installation.get(f"/api/v1/namespaces/{names.namespace}/secrets/{secret}") is None:
            text = f"the Secret {names.namespace}/{secret} does not exist, and the pods need it"
            yield found(
                "secret-missing", text, "certs/make.sh && kubectl apply -k manifests/overlays/dev   # certs/README.md"
            )
            missing = True
    if not missing:
        yield good("the Secrets of the pods exist")


def _secrets(pod: Object) -> set[str]:
    """Return the names of the Secrets without which the pod does not start."""
    volumes = pod.get("volumes") or []
    found_ = {each["secret"].get("secretName", "") for each in volumes if isinstance(each.get("secret"), dict)}
    for container in pod.get("containers") or []:
        for variable in container.get("env") or []:
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
            if not reference.get("optional"):
                found_.add(reference.get("name", ""))
    return found_ - {""}


CHECKS = (
    Check("deployment", "whether the pods run and are ready", deployment),
    Check("secrets", "whether the Secrets of the pods exist", secrets),
)
