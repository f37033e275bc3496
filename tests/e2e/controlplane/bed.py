"""Sluice behind a real kube-apiserver: a control plane, a durable Valkey, replicas of `sluice serve`, and the objects of `manifests/`.

The manifests are applied as they are, with the overlay `bed`; the processes are started with the arguments and variables of the
Deployment, except for what a process on this machine must have otherwise (files, address, store, the way to kube-apiserver).
"""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import yaml

from apiserver.serving import pki
from tests.e2e.controlplane import binaries, kubectl
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.pki import Pair
from tests.e2e.controlplane.plane import AUTHORIZERS, ControlPlane, until
from tests.fixtures import steps
from tests.fixtures.processes import Process, free_port, handed
from tests.fixtures.valkey import Server

PROJECT = pathlib.Path(__file__).resolve().parents[3]
MANIFESTS = PROJECT / "manifests"
NAMESPACE, SERVICE = "sluice-system", "sluice"
OWN_GROUP, DRA_GROUP = "resource.sluice.dev", "resource.k8s.io"
SERVED = {DRA_GROUP: ("v1", "v1beta2", "v1beta1")}
SECONDS = 120.0

Object = dict[str, Any]
Routing = Literal["external-name", "endpoint-slices"]
"""How kube-apiserver finds the processes: all on one port of localhost, or each by an EndpointSlice of its own."""


class Replica:
    """One place where `sluice serve` listens. Its socket outlives the processes that take it over from each other, unless it vanishes."""

    def __init__(self, bed: Bed, number: int, address: str) -> None:
        self.bed = bed
        self.number = number
        self.address = address
        self.port = free_port(address)
        self.socket = self._listen()
        self.process: Process | None = None
        self._generation = 0

    def start(self, *, ready: bool = True) -> None:
        """Beside a predecessor, if one still runs."""
        if self.socket.fileno() < 0:
            self.socket = self._listen()
        self._generation += 1
        log = self.bed.folder / f"sluice-{self.number}.{self._generation}.log"
        self.process = Process(
            handed(self.socket, [sys.executable, "-m", "apiserver", *self.bed.arguments(self)]),
            log=log,
            environ=self.bed.environment(),
            pass_fds=[self.socket.fileno()],
        )
        steps.watch(log)
        if ready:
            self.until_ready()

    def until_ready(self) -> None:
        process = self.process
        assert process is not None
        process.until(lambda: '"msg":"ready"' in process.log.read_text(), "it is ready", seconds=SECONDS)

    def replace(self) -> None:
        """Start a successor that takes the socket over, then stop the predecessor and wait for its end."""
        old = self.process
        self.start()
        assert old is not None
        old.stop(seconds=SECONDS)

    def stop(self) -> int:
        assert self.process is not None
        return self.process.stop(seconds=SECONDS)

    def vanish(self) -> None:
        """Stop, so that a client that connects meanwhile is refused instead of waiting for a successor."""
        self.stop()
        self.socket.close()

    def close(self) -> None:
        if self.process is not None:
            self.process.stop(seconds=SECONDS)
        self.socket.close()

    def _listen(self) -> socket.socket:
        return socket.create_server((self.address, self.port), backlog=4096)


class Bed:
    """Everything that a cluster with Sluice consists of, but the nodes."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        routing: Routing = "external-name",
        replicas: int = 1,
        group: str = OWN_GROUP,
        versions: Sequence[str] = (),
        also: Mapping[str, Sequence[str]] | None = None,
        controllers: bool = False,
        scheduler: bool = False,
        flags: Sequence[str] = (),
        serve_flags: Sequence[str] = (),
        kind_flags: Sequence[str] = (),
        registered: bool = True,
        durable: bool = False,
        client_flags: Sequence[str] = (),
        authorizers: str = AUTHORIZERS,
    ) -> None:
        """`registered` False: no APIService leads to Sluice yet, and kube-apiserver serves its own group. `versions` are those that
        get one, the preferred one first; if none are named, those that Sluice serves in that group by itself. `also` are further
        groups with their versions. `flags` are for kube-apiserver, `serve_flags` for Sluice. `kind_flags` say which kinds Sluice
        serves and prepares the store for. The other words are the control plane's."""
        self.folder = folder
        self.group = group
        self.groups = {group: versions or SERVED.get(group, ("v1",)), **(also or {})}
        self.routing = routing
        self.kind_flags = kind_flags
        self.serve_flags = serve_flags
        if routing == "endpoint-slices":
            flags = ["--enable-aggregator-routing=true", *flags]
        self.registered = registered
        if group == DRA_GROUP and registered:
            flags = [f"--runtime-config={DRA_GROUP}/v1=false", *flags]
        self.plane = ControlPlane(
            folder / "plane",
            flags=flags,
            controllers=controllers,
            scheduler=scheduler,
            durable=durable,
            client_flags=client_flags,
            authorizers=authorizers,
        )
        self.store = Server(folder / "v")
        self.address = "127.0.0.1" if routing == "external-name" else primary_address()
        self.serving = self._serving_pair()
        self.replicas = [Replica(self, number, self.address) for number in range(replicas)]
        self.objects = self._render()
        self._sluice_kubeconfig: pathlib.Path | None = None

    @property
    def admin(self) -> pathlib.Path:
        return self.plane.admin

    @property
    def apiservice(self) -> str:
        return f"v1.{self.group}"

    def user(self, name: str, groups: Sequence[str] = ()) -> pathlib.Path:
        return self.plane.kubeconfig(name, groups)

    def service_account(self, namespace: str, name: str) -> pathlib.Path:
        return self.plane.service_account(namespace, name)

    def connect(self, kubeconfig: pathlib.Path | None = None) -> Connection:
        return self.plane.connect(kubeconfig)

    def straight(self, kubeconfig: pathlib.Path, *, replica: int = 0) -> pathlib.Path:
        """The same identity at Sluice's own port, past kube-apiserver."""
        document = yaml.safe_load(kubeconfig.read_text())
        document["clusters"][0]["cluster"] = {
            "server": f"https://{self.address}:{self.replicas[replica].port}",
            "certificate-authority-data": base64.b64encode(self.plane.pki.sluice.pem).decode(),
        }
        file = kubeconfig.with_name(f"{kubeconfig.stem}.straight-{replica}.kubeconfig")
        pki.write_private(file, yaml.safe_dump(document, sort_keys=False).encode())
        return file

    # Life

    def start(self) -> Bed:
        try:
            self.plane.start(ready=self.group != DRA_GROUP or not self.registered)
            self.store.start()
            self.sluice("store", "init", *self.kind_flags)
            self.apply([item for item in self.objects if item["kind"] != "APIService"])
            self._sluice_kubeconfig = self.plane.service_account(NAMESPACE, SERVICE)
            for replica in self.replicas:
                replica.start()
            if self.registered:
                self.register()
                until(self.is_discovered, f"{', '.join(self.groups)}: discovered", seconds=SECONDS)
            self.plane.start_clients()
        except BaseException:
            self.stop()
            raise
        return self

    def register(self) -> None:
        """Endpoints and the APIServices; returns when kube-apiserver finds them available."""
        if self.routing == "endpoint-slices":
            for replica in self.replicas:
                self.route(replica)
        self.apply([item for item in self.objects if item["kind"] == "APIService"])
        until(self.is_available, f"{', '.join(self.groups)}: available", seconds=SECONDS)

    def is_available(self) -> bool:
        """Whether kube-apiserver passes requests on, in every version of every group."""
        names = [f"{version}.{group}" for group, versions in self.groups.items() for version in versions]
        return all(self.condition(name).get("status") == "True" for name in names)

    def is_discovered(self) -> bool:
        """Whether kube-apiserver tells clients about all groups, which it does a moment after it found them available."""
        aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        with self.plane.connect() as admin:
            groups = admin.ask("GET", "/apis", headers={"Accept": aggregated}).json["items"]
        found = {
            item["metadata"]["name"]: [(version["version"], version["freshness"]) for version in item["versions"]]
            for item in groups
        }
        return all(
            found.get(group) == [(version, "Current") for version in versions]
            for group, versions in self.groups.items()
        )

    def condition(self, name: str = "") -> Object:
        """`Available` of an APIService; without a name, of that of v1 in the first group."""
        with self.plane.connect() as admin:
            reply = admin.ask("GET", f"/apis/apiregistration.k8s.io/v1/apiservices/{name or self.apiservice}")
        conditions: list[Object] = reply.json.get("status", {}).get("conditions", []) if reply.status == 200 else []
        return next((condition for condition in conditions if condition["type"] == "Available"), {})

    def route(self, replica: Replica, *, ready: bool = True) -> None:
        """Puts the replica into rotation or takes it out, as kube-controller-manager does with a pod."""
        self.apply([endpoint_slice(replica, ready=ready)])

    def stop(self) -> None:
        for (
            replica
        ) in self.replicas:  # all at once, and each told twice: nobody is left for whom it should take its time
            if replica.process is not None:
                replica.process.send(signal.SIGTERM)
        for replica in self.replicas:
            replica.close()
        with contextlib.suppress(AssertionError):
            self.store.stop()
        self.plane.stop()

    def __enter__(self) -> Bed:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def presented_certificate(self) -> str:
        """The certificate that the first replica presents in a handshake, as PEM."""
        return ssl.get_server_certificate((self.address, self.replicas[0].port), timeout=SECONDS)

    def renew_serving_certificate(self) -> None:
        """In the files that the processes were started with."""
        self.serving = self._serving_pair()

    def _serving_pair(self) -> Pair:
        hosts = [f"{SERVICE}.{NAMESPACE}.svc", "localhost", self.address]
        return self.plane.pki.sluice.serving("sluice", hosts)

    # Programs

    def kubectl(
        self, *words: str, kubeconfig: pathlib.Path | None = None, stdin: str = "", check: bool = True, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """As the administrator, unless another is named."""
        return kubectl.run(
            *words, kubeconfig=kubeconfig or self.admin, home=self.folder / "home", stdin=stdin, check=check, **environ
        )

    def apply(self, objects: Sequence[Object]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def sluice(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of the administrator's, beside the processes that serve."""
        command = [sys.executable, "-m", "apiserver", *words]
        done = subprocess.run(
            command, env={**os.environ, **self.environment()}, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def arguments(self, replica: Replica) -> list[str]:
        """The Deployment's arguments, then those that replace a pod's files. The last of two equal flags counts."""
        [container] = self._deployment()["containers"]
        return [
            *container["args"],
            f"--bind-address={replica.address}",
            f"--secure-port={replica.port}",
            f"--tls-cert-file={self.serving.cert}",
            f"--tls-private-key-file={self.serving.key}",
            f"--authentication-kubeconfig={self._sluice_kubeconfig}",
            f"--authorization-kubeconfig={self._sluice_kubeconfig}",
            # Nobody routes around a process that stops, unless a test does.
            "--shutdown-delay-duration=0s",
            *self.kind_flags,
            *self.serve_flags,
        ]

    def environment(self) -> dict[str, str]:
        [container] = self._deployment()["containers"]
        return {item["name"]: item["value"] for item in container["env"] if "value" in item} | {
            "SLUICE_REDIS_URL": self.store.url,
        }

    # Manifests

    def _deployment(self) -> Object:
        [deployment] = [item for item in self.objects if item["kind"] == "Deployment"]
        pod: Object = deployment["spec"]["template"]["spec"]
        return pod

    def _render(self) -> list[Object]:
        """`manifests/overlays/bed` with what is known only now: the CA, the port, the group."""
        folder = self.folder / "kustomize"
        folder.mkdir(parents=True, exist_ok=True)

        def beside(path: pathlib.Path) -> str:
            return os.path.relpath(path, folder)

        operations: list[Object] = [
            {"op": "add", "path": "/spec/caBundle", "value": base64.b64encode(self.plane.pki.sluice.pem).decode()}
        ]
        if self.routing == "external-name":
            operations.append({"op": "replace", "path": "/spec/service/port", "value": self.replicas[0].port})
        components = [MANIFESTS / "overlays" / "bed" / self.routing]
        if self.group == DRA_GROUP:
            components.append(MANIFESTS / "take-over")
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [beside(MANIFESTS / "overlays" / "bed")],
            "components": [beside(component) for component in components],
            "patches": [{"target": {"kind": "APIService"}, "patch": yaml.safe_dump(operations)}],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        rendered = subprocess.run([binaries.kubectl(), "kustomize", folder], check=True, capture_output=True).stdout
        return [copy for item in yaml.safe_load_all(rendered) for copy in self._registered(item)]

    def _registered(self, item: Object) -> Iterator[Object]:
        """The object itself; of the APIService one for each version, the first of a group with the highest priority."""
        if item["kind"] != "APIService":
            yield item
            return
        for group, versions in self.groups.items():
            for place, version in enumerate(versions):
                priority = item["spec"]["versionPriority"] - place
                spec = item["spec"] | {"group": group, "version": version, "versionPriority": priority}
                yield item | {"metadata": item["metadata"] | {"name": f"{version}.{group}"}, "spec": spec}


def endpoint_slice(replica: Replica, *, ready: bool) -> Object:
    """One for each replica, since all have one address and differ in their port."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{SERVICE}-{replica.number}",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": SERVICE},
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": replica.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [replica.address], "conditions": {"ready": ready}}],
    }


def primary_address() -> str:
    """An address of this machine that is no loopback (an EndpointSlice takes no other)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: it only makes the kernel choose a route. The address is one of documentation (RFC 5737).
        probe.connect(("198.51.100.1", 9))
        address: str = probe.getsockname()[0]
    return address
