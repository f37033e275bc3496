"""A second installation in the shared cluster, that tests of `sluice doctor` break: namespace, group, server and store of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import os
import pathlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import yaml

from apiserver import apigroups, manifests
from apiserver.config import config
from apiserver.doctor import examination
from apiserver.doctor.findings import Finding, Result, State
from apiserver.doctor.installation import Access, Installation, Names
from apiserver.serving import pki
from apiserver.storage.operations import administration
from apiserver.storage.options import StoreOptions
from tests.e2e.controlplane.bed import NAMESPACE, OWN_GROUP, Bed
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.pki import Pair
from tests.fixtures.processes import Process, free_port
from tests.fixtures.valkey import Server, patient

PLACE, GROUP = "clinic", "clinic.sluice.dev"
APISERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}"
SERVICE = f"/api/v1/namespaces/{PLACE}/services/sluice"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{PLACE}/endpointslices"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HOST = f"sluice.{PLACE}.svc"
SECONDS = 90.0
MERGE = {"Content-Type": "application/merge-patch+json"}
IGNORED = {"slow", "timeout"}
"""Findings about a busy machine."""

Object = dict[str, Any]


class Clinic:
    """The installation. Its server asks the cluster as the account of the shared one, so that its own rights may be taken away."""

    def __init__(self, folder: pathlib.Path, bed: Bed) -> None:
        self.folder, self.bed = folder, bed
        self.port = free_port()
        self.pair = bed.plane.pki.sluice.serving("clinic", [HOST, "localhost", "127.0.0.1"])
        self.store = Server(folder / "v")
        self.bad_store = Server(folder / "b")
        """Another store, for tests that change its settings."""
        self.objects = self._render()
        self.settings = config.parse(["doctor", f"--group={GROUP}", f"--namespace={PLACE}"], {})
        kinds, errors = apigroups.judged(self.settings.serving)
        assert kinds is not None, errors
        self.registered = list(manifests.apiservices(kinds, self.settings.serving))
        self.resources = apigroups.storage_names(self.settings.serving)
        self.process: Process | None = None

    def _render(self) -> list[Object]:
        """The objects of the shared installation under other names."""
        named = yaml.safe_dump_all([item for item in self.bed.objects if item["kind"] != "Job"])
        text = named.replace(NAMESPACE, PLACE).replace(OWN_GROUP, GROUP)
        found: list[Object] = list(yaml.safe_load_all(text))
        for item in found:
            if item["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                item["metadata"]["name"] = f"{PLACE}-{item['metadata']['name']}"
                item["metadata"].pop("labels", None)
                if item.get("roleRef", {}).get("name", "").startswith("sluice"):
                    item["roleRef"]["name"] = f"{PLACE}-{item['roleRef']['name']}"
            if item["kind"] == "RoleBinding":
                item["metadata"]["name"] = f"{PLACE}-{item['metadata']['name']}"
            if item["kind"] == "APIService":
                item["spec"]["service"]["port"] = self.port
        return found

    # Life

    def __enter__(self) -> Clinic:
        try:
            for store in (self.store, self.bad_store):
                store.start()
                asyncio.run(administration.init(patient(store.url), self.resources))
            self.bed.apply([item for item in self.objects if item["kind"] != "APIService"])
            self.start()
            self.bed.apply([item for item in self.objects if item["kind"] == "APIService"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        account = self.bed.plane.service_account(NAMESPACE, "sluice")
        self.process = Process(
            [
                sys.executable, "-m", "apiserver", "serve", "--bind-address=127.0.0.1", f"--secure-port={self.port}",
                f"--tls-cert-file={self.pair.cert}", f"--tls-private-key-file={self.pair.key}", f"--group={GROUP}",
                f"--authentication-kubeconfig={account}", "--shutdown-delay-duration=0s",
                "--shutdown-watch-termination-grace-period=0s", "--logging-format=json",
            ],
            log=self.folder / "serve.log",
            environ={**os.environ, "SLUICE_REDIS_URL": self.store.url},
        )  # fmt: skip
        log = self.process.log
        before = log.read_text().count('"msg":"ready"')
        self.process.until(lambda: log.read_text().count('"msg":"ready"') > before, "it is ready")

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def __exit__(self, *_: object) -> None:
        self.stop()
        with self.bed.connect() as admin:
            admin.ask("DELETE", APISERVICE)
            for item in self.objects:
                if item["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                    admin.ask("DELETE", f"{RBAC}/{item['kind'].lower()}s/{item['metadata']['name']}")
            admin.ask("DELETE", f"/api/v1/namespaces/{PLACE}")
        for store in (self.store, self.bad_store):
            with contextlib.suppress(AssertionError):
                store.stop()

    # Examinations

    async def examine(self, **changed: Any) -> list[Result]:
        """Examine once. `changed` are members of the Installation, `names`, or `kubeconfig`."""
        kubeconfig = changed.pop("kubeconfig", self.bed.admin)
        members: dict[str, Any] = {
            "access": Access(kubeconfig=str(kubeconfig), context="", environ={}),
            "names": Names(namespace=PLACE),
            "registered": self.registered,
            "store": StoreOptions(url=self.store.url),
            "resources": self.resources,
        } | changed
        async with Installation(**members) as installation:
            return await examination.examine(installation, seconds=60)

    def until(self, named: set[str], also: set[str], *words: str, **changed: Any) -> list[Finding]:
        """Examine until exactly these codes are found, with these words in their texts. `also` may be found besides. Controllers and
        caches of kube-apiserver follow a change a moment later."""
        end = time.monotonic() + SECONDS
        while True:
            findings = wrong(asyncio.run(self.examine(**changed)))
            codes = {finding.code for finding in findings} - IGNORED
            text = "\n".join(finding.text for finding in findings)
            if named <= codes <= named | also and all(word in text for word in words):
                assert all(finding.do for finding in findings)
                return findings
            assert time.monotonic() < end, f"wanted {named} with {words}, found {findings}"

    # Changes that are undone

    @contextlib.contextmanager
    def changed(self, path: str, patch: Object) -> Iterator[None]:
        """Merge a patch into an object."""
        with self.bed.connect() as admin:
            before = admin.ask("GET", path).json
            reply = admin.ask("PATCH", path, patch, headers=MERGE)
            assert reply.status == 200, reply.text
        try:
            yield
        finally:
            self._restore(path, before)

    @contextlib.contextmanager
    def deleted(self, path: str) -> Iterator[None]:
        with self.bed.connect() as admin:
            before = admin.ask("GET", path).json
            assert admin.ask("DELETE", path).status == 200
        try:
            yield
        finally:
            self._restore(path, before)

    @contextlib.contextmanager
    def created(self, collection: str, body: Object) -> Iterator[None]:
        with self.bed.connect() as admin:
            reply = admin.ask("POST", collection, body)
            assert reply.status == 201, reply.text
        try:
            yield
        finally:
            with self.bed.connect() as admin:
                admin.ask("DELETE", f"{collection}/{body['metadata']['name']}")

    def _restore(self, path: str, before: Mapping[str, Any]) -> None:
        with self.bed.connect() as admin:
            _restore(admin, path, before)

    def own_pods(self) -> Object:
        """A patch that makes the Service one of pods in the cluster."""
        selector = {"app.kubernetes.io/name": "sluice", "app.kubernetes.io/component": "apiserver"}
        ports = [{"name": "https", "port": self.port, "targetPort": "https", "protocol": "TCP"}]
        return {"spec": {"type": "ClusterIP", "externalName": None, "selector": selector, "ports": ports}}

    @contextlib.contextmanager
    def presenting(self, pair: Pair | None) -> Iterator[None]:
        """Lead the APIService to a server that presents this certificate, or that speaks no TLS."""
        with _server(pair) as port, self.changed(APISERVICE, {"spec": {"service": {"port": port}}}):
            yield

    @contextlib.contextmanager
    def configured(self, **settings: str) -> Iterator[str]:
        """The URL of a store with other settings."""
        names = {name.replace("_", "-"): text for name, text in settings.items()}
        before = {name: self.bad_store("CONFIG", "GET", name)[1] for name in names}
        for name, text in names.items():
            self.bad_store("CONFIG", "SET", name, text)
        try:
            yield self.bad_store.url
        finally:
            for name, old in before.items():
                self.bad_store("CONFIG", "SET", name, old)

    def at(self, url: str) -> StoreOptions:
        return replace(StoreOptions(url=self.store.url), url=url)


def wrong(results: Sequence[Result]) -> list[Finding]:
    return [each for result in results for each in result.findings if each.state in (State.WARN, State.FAIL)]


def skipped(results: Sequence[Result]) -> set[str]:
    return {each.code for result in results for each in result.findings if each.state is State.SKIP}


def _restore(admin: Connection, path: str, before: Mapping[str, Any]) -> None:
    kept = {key: value for key, value in before.items() if key != "status"}
    metadata = {
        key: value
        for key, value in before["metadata"].items()
        if key not in ("resourceVersion", "uid", "managedFields")
    }
    now = admin.ask("GET", path)
    if now.status == 404:
        reply = admin.ask("POST", path.rpartition("/")[0], kept | {"metadata": metadata})
    else:
        metadata["resourceVersion"] = now.json["metadata"]["resourceVersion"]
        reply = admin.ask("PUT", path, kept | {"metadata": metadata})
    if reply.status == 409:  # a controller wrote meanwhile
        _restore(admin, path, before)
        return
    assert reply.status in (200, 201), reply.text


@contextlib.contextmanager
def _server(pair: Pair | None) -> Iterator[int]:
    """A server in a thread that shakes hands and answers nothing."""
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
    port = free_port()

    def answer(client: socket.socket) -> None:
        client.settimeout(5)
        if context is None:
            client.sendall(b"220 no TLS\r\n")
        else:
            context.wrap_socket(client, server_side=True).close()

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:  # shut down
                return
            with client, contextlib.suppress(OSError):
                answer(client)

    with socket.create_server(("127.0.0.1", port), backlog=64) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield port
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def issued(clinic: Clinic, name: str, hosts: Sequence[str], now: dt.datetime, *, ca: pki.Pair | None = None) -> Pair:
    """A serving certificate of the installation's CA, or of another, as if it were signed at that time."""
    made = pki.make_serving(ca or clinic.bed.plane.pki.sluice.pair, name, hosts=hosts, now=now)
    files = Pair(clinic.folder / f"{name}.crt", clinic.folder / f"{name}.key")
    files.cert.write_bytes(made.cert_pem)
    pki.write_private(files.key, made.key_pem)
    return files


def bundle(pem: bytes) -> Object:
    return {"spec": {"caBundle": base64.b64encode(pem).decode()}}


def with_password(url: str, password: str) -> str:
    return f"{url.partition('?')[0]}?password={quote(password)}"
