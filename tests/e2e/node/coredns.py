"""The cluster's DNS: CoreDNS as a program on the node, behind the Service that every cluster has."""

from __future__ import annotations

from typing import Any

from tests.e2e.controlplane.plane import ControlPlane
from tests.e2e.node.isolation import NODE, STATE, Namespaces
from tests.e2e.node.programs import program

ADDRESS = "10.0.0.10"
DOMAIN = "cluster.local"
USER = "system:coredns"
PORTS = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
RULES = [
    {"apiGroups": [""], "resources": ["services", "namespaces", "pods", "endpoints"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]
OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": ADDRESS, "ports": PORTS},
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-node",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "ports": PORTS,
        "endpoints": [{"addresses": [NODE]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": USER},
        "rules": RULES,
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    },
]


QUERY = """
import socket, sys
address, name = sys.argv[1:]
labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    asking.settimeout(1)
    asking.connect((address, 53))
    asking.send(bytes.fromhex("0001 0100 0001 0000 0000 0000") + labels + bytes.fromhex("00 0001 0001"))
    sys.exit(int.from_bytes(asking.recv(512)[6:8], "big") == 0)
"""


def answers(namespaces: Namespaces) -> bool:
    """By the Service's address, as pods ask it."""
    name = f"kubernetes.default.svc.{DOMAIN}"
    return namespaces.run("python3", "-c", QUERY, ADDRESS, name, check=False).returncode == 0


def start(namespaces: Namespaces, plane: ControlPlane) -> None:
    """After the objects: until it may list them it answers nothing."""
    corefile = STATE / "Corefile"
    corefile.write_text(f"""\
.:53 {{
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {plane.kubeconfig(USER)} bed
        ttl 5
    }}
    cache 5
}}
""")
    namespaces.daemon("coredns", [program("coredns"), "-conf", corefile])
