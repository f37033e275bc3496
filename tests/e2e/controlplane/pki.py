"""The certificates of one control plane, in one folder: two CAs that must differ, and pairs signed by them."""

from __future__ import annotations

import base64
import datetime as dt
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiserver.serving import pki

PROXY = "front-proxy-client"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    cert: pathlib.Path
    key: pathlib.Path


class Authority:
    """A CA and what it has signed so far."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self._now = dt.datetime.now(dt.UTC)
        self.pair = pki.make_ca(name, now=self._now)
        self.file = self._write(name, self.pair).cert

    @property
    def pem(self) -> bytes:
        return self.pair.cert_pem

    @property
    def bundle(self) -> bytes:
        """Every CA that is to be trusted: this one and, during a rotation, the one before."""
        return self.file.read_bytes()

    def renew(self) -> None:
        """Begins a rotation: what is signed from now on is signed by a CA of the same name with another key, and both are trusted."""
        both = self.bundle
        self.pair = pki.make_ca(self.name, now=self._now)
        both += self.pem
        self.file.with_suffix(".key").write_bytes(self.pair.key_pem)
        self.file.write_bytes(both)

    def retire(self) -> None:
        """Ends it: the old one is trusted no longer."""
        self.file.write_bytes(self.pem)

    def client(self, name: str, groups: Sequence[str] = (), *, file: str = "") -> Pair:
        """A second pair of one name replaces the first one's files, unless it is given a `file` of its own."""
        return self._write(
            f"{self.name}.{file or name}", pki.make_client(self.pair, name, groups=groups, now=self._now)
        )

    def serving(self, name: str, hosts: Sequence[str], *, file: str = "") -> Pair:
        return self._write(f"{self.name}.{file or name}", pki.make_serving(self.pair, name, hosts=hosts, now=self._now))

    def _write(self, name: str, pair: pki.Pair) -> Pair:
        stem = name.replace(":", "-").replace("/", "-")
        files = Pair(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        files.cert.write_bytes(pair.cert_pem)
        pki.write_private(files.key, pair.key_pem)
        return files


class PKI:
    """Everything that kube-apiserver, its clients and its front proxy identify themselves with."""

    def __init__(self, folder: pathlib.Path, address: str = "127.0.0.1") -> None:
        """`address` is kube-apiserver's."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self.cluster = Authority(folder, "cluster-ca")
        self.proxy = Authority(folder, "front-proxy-ca")
        self.sluice = Authority(folder, "sluice-ca")
        hosts = ["localhost", address, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1"]
        self.serving = self.cluster.serving("kube-apiserver", hosts)
        self.proxy_client = self.proxy.client(PROXY)
        self.service_accounts = folder / "service-accounts.key"
        pki.write_private(self.service_accounts, _private_key())


def _private_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def kubeconfig(file: pathlib.Path, url: str, ca: bytes, *, pair: Pair | None = None, token: str = "") -> pathlib.Path:
    """Writes one for a client certificate, a token, or nobody."""
    user: dict[str, Any] = {}
    if pair is not None:
        user["client-certificate-data"] = _base64(pair.cert.read_bytes())
        user["client-key-data"] = _base64(pair.key.read_bytes())
    if token:
        user["token"] = token
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": {"server": url, "certificate-authority-data": _base64(ca)}}],
        "users": [{"name": file.stem, "user": user}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": file.stem}}],
        "current-context": "bed",
    }
    pki.write_private(file, yaml.safe_dump(document, sort_keys=False).encode())
    return file


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
