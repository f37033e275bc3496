"""Write the objects with which a cluster runs Sluice for given kinds: APIServices, ClusterRoles, Deployment, ConfigMaps of definitions.

They fit the objects of the repository's kustomization, which has the rest: namespace, Service, service account, certificates, store.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from cryptography import x509

from apiserver.apiextensions.definition import Definition
from apiserver.codecs.yaml import as_yaml
from apiserver.config.config import CA_FILE, CRDS, Serving
from apiserver.kinds import roles
from apiserver.kinds.served import Kinds

Object = dict[str, Any]

NAMESPACE, NAME = "sluice-system", "sluice"
DEFINITIONS = "sluice-crds"
"""The volume of definitions, and the first ConfigMap in it."""
FOLDER = "/etc/sluice/crds"
MOST_BYTES = 1 << 20
"""Bytes of the values in one ConfigMap (kubernetes/kubernetes `pkg/apis/core/types.go` MaxSecretSize)."""
_LABELS: Mapping[str, str] = {"app.kubernetes.io/name": "sluice"}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Unfit(ValueError):
    """A given value cannot stand in the objects. The text names the flag."""


def written(
    kinds: Kinds, definitions: Sequence[Definition], serving: Serving, *, ca: bytes = b"", deployment: bool = True
) -> list[Object]:
    """Return the objects. `ca` are the certificates that vouch for Sluice; without them cert-manager writes them.

    Without `deployment`, only what other servers read: APIServices and ClusterRoles. Raises Unfit.
    """
    if ca:
        _check(ca)
    registered = [*apiservices(kinds, serving, ca), *roles.cluster_roles(kinds)]
    if not deployment:
        return registered
    maps = config_maps(definitions)
    return [*maps, _deployment(serving, [item["metadata"]["name"] for item in maps]), *registered]


def _check(ca: bytes) -> None:
    """Raise Unfit for a text without certificates. kube-apiserver accepts it, and then never reaches Sluice."""
    try:
        x509.load_pem_x509_certificates(ca)
    except ValueError as e:
        raise Unfit(f"--{CA_FILE}: {e}") from None


# ------------------------------------------------------------------------------------------------------------ kube-apiserver


_DRA_GROUP, _DRA_PRIORITY = "resource.k8s.io", 16200
_VERSIONS: Mapping[str, int] = {"v1": 21, "v1beta2": 15, "v1beta1": 9}
"""Those of the built-in kinds in kube-apiserver. Upstream: kubernetes/kubernetes `pkg/controlplane/apiserver/aggregator.go`."""
_GROUP_PRIORITY, _VERSION_PRIORITY = 1000, 100
"""Those of a definition in kube-apiserver, which orders equal versions by their names. Upstream: kubernetes/kubernetes
`pkg/controlplane/controller/crdregistration/crdregistration_controller.go`."""


def apiservices(kinds: Kinds, serving: Serving, ca: bytes = b"") -> Iterator[Object]:
    """Yield one APIService for each served group and version. None has the label by which kube-apiserver would take it back."""
    for group, versions in kinds.groups.items():
        declared = _VERSIONS if group == serving.group else {}
        for version in versions:
            metadata: Object = {"name": f"{version}.{group}", "labels": {**_LABELS}}
            spec: Object = {
                "group": group,
                "version": version,
                "groupPriorityMinimum": _DRA_PRIORITY if group == _DRA_GROUP else _GROUP_PRIORITY,
                "versionPriority": declared.get(version, _VERSION_PRIORITY),
                "service": {"namespace": NAMESPACE, "name": NAME, "port": 443},
            }
            if ca:
                spec["caBundle"] = base64.b64encode(ca).decode()
            else:
                metadata["annotations"] = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/sluice-serving"}
            yield {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": metadata,
                "spec": spec,
            }


# ------------------------------------------------------------------------------------------------------------ definitions


def config_maps(definitions: Sequence[Definition]) -> list[Object]:
    """Return ConfigMaps that hold each definition under its own name: as text if all fit into one ConfigMap, else compressed, in as few as
    they need. Raises Unfit."""
    texts = {f"{each.name}.yaml": as_yaml.dumps(_exported(each)) for each in definitions}
    if not texts:
        return []
    if _size(texts) <= MOST_BYTES:
        return [_config_map(0, {"data": {name: text.decode() for name, text in texts.items()}})]
    # Without a time, so that the same definitions make the same bytes.
    packed = {f"{name}.gz": gzip.compress(text, mtime=0) for name, text in texts.items()}
    for name, value in packed.items():
        if len(value) > MOST_BYTES:
            text = f"{name}: compressed, it has {len(value)} bytes, and a ConfigMap has at most {MOST_BYTES}"
            raise Unfit(f"--{CRDS}: {text}: put the file into the image or into a volume")
    bins: list[dict[str, bytes]] = []
    for name in sorted(packed):
        chosen = next((each for each in bins if _size(each) + len(packed[name]) <= MOST_BYTES), None)
        if chosen is None:
            bins.append(chosen := {})
        chosen[name] = packed[name]
    return [
        _config_map(number, {"binaryData": {name: base64.b64encode(value).decode() for name, value in each.items()}})
        for number, each in enumerate(bins)
    ]


def _size(values: Mapping[str, bytes]) -> int:
    return sum(map(len, values.values()))


def _exported(definition: Definition) -> Object:
    """Return the definition without what a cluster recorded about its writers."""
    metadata = {name: value for name, value in definition.source["metadata"].items() if name != "managedFields"}
    annotations = {name: value for name, value in metadata.get("annotations", {}).items() if name != _LAST_APPLIED}
    metadata = {**metadata, "annotations": annotations}
    return {**definition.source, "metadata": {name: value for name, value in metadata.items() if value}}


def _config_map(number: int, content: Object) -> Object:
    name = f"{DEFINITIONS}-{number + 1}" if number else DEFINITIONS
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {**_LABELS}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}


# ------------------------------------------------------------------------------------------------------------ the Deployment


def _deployment(serving: Serving, maps: Sequence[str]) -> Object:
    """Return the Deployment of deployment.yaml that serves the same kinds, with the definitions of these ConfigMaps."""
    found: Object = as_yaml.read(resources.files("apiserver").joinpath("deployment.yaml").read_bytes()).value
    pod = found["spec"]["template"]["spec"]
    [container] = pod["containers"]
    told = {"SLUICE_GROUP": serving.group}
    if serving.kinds:
        told["SLUICE_KINDS"] = ",".join(serving.kinds)
    if not serving.builtin:
        told["SLUICE_BUILTIN_KINDS"] = "false"
    if serving.emulated is not None:
        told["SLUICE_EMULATED_VERSION"] = str(serving.emulated)
    container["env"] = [
        *({"name": name, "value": value} for name, value in told.items()),
        *(variable for variable in container["env"] if variable["name"] not in told),
    ]
    if maps:
        container["args"].append(f"--crds={FOLDER}")
        container["volumeMounts"].append({"name": DEFINITIONS, "mountPath": FOLDER, "readOnly": True})
        # Not with subPath: those files would never change.
        sources = [{"configMap": {"name": name}} for name in maps]
        pod["volumes"].append({"name": DEFINITIONS, "projected": {"sources": sources}})
    return found
