"""A cluster that somebody else runs, with Sluice behind its kube-apiserver (kind, for example): what tests need of it and nothing more."""

from __future__ import annotations

import base64
import pathlib
import re
import subprocess
from collections.abc import Sequence
from typing import Protocol

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apiserver.serving.pki import write_private
from tests.e2e import objects
from tests.e2e.controlplane import kubectl, pki
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEFT = (
    f"{objects.V1}/resourceslices",
    f"{objects.V1}/deviceclasses",
    "/api/v1/namespaces",
    f"{RBAC}/clusterroles",
    f"{RBAC}/clusterrolebindings",
)
"""Collections of cluster-scoped objects."""
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class Cluster(Protocol):
    """A kube-apiserver with Sluice behind it; a test run or an operator runs it."""

    @property
    def admin(self) -> pathlib.Path: ...
    def user(self, name: str, groups: Sequence[str] = ()) -> pathlib.Path:
        """The kubeconfig of a user with a client certificate."""

    def service_account(self, namespace: str, name: str) -> pathlib.Path:
        """The kubeconfig of a service account that exists, with a token."""

    def connect(self, kubeconfig: pathlib.Path | None = None) -> Connection: ...
    def kubectl(
        self, *words: str, kubeconfig: pathlib.Path | None = None, stdin: str = "", check: bool = True, **environ: str
    ) -> subprocess.CompletedProcess[str]: ...


class External:
    """By its administrator's kubeconfig: the current context, with files and other contexts beside it as people have them."""

    def __init__(self, kubeconfig: pathlib.Path, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.admin = folder / "admin.kubeconfig"
        flat = kubectl.run(
            "config", "view", "--raw", "--minify", "--flatten", kubeconfig=kubeconfig, home=self.folder / "home"
        )
        write_private(self.admin, flat.stdout.encode())
        kubeconfig = self.admin
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        self._url = cluster["server"]
        self._ca = base64.b64decode(cluster["certificate-authority-data"])

    def clean(self, ours: re.Pattern[str]) -> None:
        """Delete objects that tests made under such names, and left. Objects in namespaces are deleted with these."""
        with self.connect() as admin:
            for collection in LEFT:
                found = [item["metadata"]["name"] for item in admin.ask("GET", collection).json["items"]]
                for name in found:
                    if ours.fullmatch(name):
                        admin.ask("DELETE", f"{collection}/{name}")

    def connect(self, kubeconfig: pathlib.Path | None = None) -> Connection:
        return Connection(kubeconfig or self.admin)

    def kubectl(
        self, *words: str, kubeconfig: pathlib.Path | None = None, stdin: str = "", check: bool = True, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return kubectl.run(
            *words, kubeconfig=kubeconfig or self.admin, home=self.folder / "home", stdin=stdin, check=check, **environ
        )

    def service_account(self, namespace: str, name: str) -> pathlib.Path:
        file = self.folder / f"{namespace}.{name}.kubeconfig"
        with self.connect() as admin:
            return pki.kubeconfig(file, self._url, self._ca, token=admin.token(namespace, name))

    def user(self, name: str, groups: Sequence[str] = ()) -> pathlib.Path:
        """Signed by the cluster through the certificates API."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        certificate = self._signed(request.public_bytes(serialization.Encoding.PEM))
        stem = self.folder / name.replace(":", "-")
        pair = pki.Pair(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        pair.cert.write_bytes(certificate)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_private(pair.key, private)
        return pki.kubeconfig(stem.with_suffix(".kubeconfig"), self._url, self._ca, pair=pair)

    def _signed(self, request: bytes) -> bytes:
        spec = {
            "request": base64.b64encode(request).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            "expirationSeconds": 3600,
        }
        with self.connect() as admin:
            made = admin.ask("POST", CSRS, {"metadata": {"generateName": "sluice-e2e-"}, "spec": spec}).json
            path = f"{CSRS}/{made['metadata']['name']}"
            approved = {"type": "Approved", "status": "True", "reason": "Tests", "message": "for end-to-end tests"}
            admin.ask("PUT", f"{path}/approval", {**made, "status": {"conditions": [approved]}})
            until(lambda: "certificate" in admin.ask("GET", path).json["status"], "the certificate is signed")
            return base64.b64decode(admin.ask("GET", path).json["status"]["certificate"])
