"""The ConfigMap from which Sluice learns whom to trust: the CA of clients, and the front proxy with its names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

import orjson
from cryptography import x509

from apiserver.cluster.requestheader import ALLOWED_NAMES, CLIENT_CA, HEADERS, NAME, NAMESPACE, PROXY_CA
from apiserver.doctor.findings import Answers, Check, Finding, found, good
from apiserver.doctor.installation import Installation

_LOOK = f"kubectl -n {NAMESPACE} get configmap {NAME} -o yaml"
_FLAGS = (
    "kube-apiserver --requestheader-client-ca-file=… --requestheader-allowed-names=front-proxy-client "
    "--requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group --proxy-client-cert-file=… "
    "--proxy-client-key-file=…"
)


async def trust(installation: Installation) -> Answers:
    have = await installation.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")
    if have is None:
        text = f"there is no ConfigMap {NAMESPACE}/{NAME}: Sluice can trust nobody"
        yield found(
            "trust-missing", text, "kubectl -n kube-system get configmaps   # kube-apiserver writes it at its start"
        )
        return
    wrong = list(trust_findings(have.get("data") or {}, installation.wall()))
    for finding in wrong:
        yield finding
    if not wrong:
        yield good("the CAs of clients and of the front proxy are published")


def trust_findings(data: Mapping[str, str], now: float) -> Iterator[Finding]:
    """Judge the values of the ConfigMap."""
    if not data.get(PROXY_CA):
        yield found(
            "front-proxy-ca-missing", f"the ConfigMap {NAME} has no {PROXY_CA}: aggregation is not set up", _FLAGS
        )
    bundles: dict[str, list[x509.Certificate]] = {}
    lists: dict[str, object] = {}
    for key in (CLIENT_CA, PROXY_CA):
        try:
            bundles[key] = x509.load_pem_x509_certificates(data[key].encode()) if data.get(key) else []
        except ValueError:
            yield found("trust-unreadable", f"{key} in the ConfigMap {NAME} holds no certificates", _LOOK)
    for key in (ALLOWED_NAMES, *HEADERS.values()):
        try:
            lists[key] = orjson.loads(data.get(key) or "[]")
        except ValueError:
            yield found(
                "trust-unreadable", f"{key} in the ConfigMap {NAME} is no JSON list: {data[key][:100]!r}", _LOOK
            )
    at = dt.datetime.fromtimestamp(now, dt.UTC)
    for key, code in ((PROXY_CA, "front-proxy-ca-expired"), (CLIENT_CA, "client-ca-expired")):
        if bundles.get(key) and all(each.not_valid_after_utc < at for each in bundles[key]):
            ended = max(each.not_valid_after_utc for each in bundles[key])
            yield found(code, f"{key} of kube-apiserver expired on {ended:%Y-%m-%d}", "kubeadm certs check-expiration")
    shared = set(bundles.get(CLIENT_CA) or []) & set(bundles.get(PROXY_CA) or [])
    if shared and not lists.get(ALLOWED_NAMES):
        text = "the CA of clients signs the front proxy's certificates too, and no names are demanded: each client may pose as it"
        yield found("front-proxy-any-client", text, "kube-apiserver --requestheader-allowed-names=front-proxy-client")


CHECKS = (Check("trust", f"whether the ConfigMap {NAME} names usable CAs", trust),)
