"""The trust that the cluster gives its extension servers: the ConfigMap kube-system/extension-apiserver-authentication.

Knows no TLS: it returns bundles that it was able to parse. A missing or unreadable value never replaces a readable one. Upstream:
kubernetes/apiserver `pkg/server/dynamiccertificates/configmap_cafile_content.go`,
`pkg/authentication/request/headerrequest/requestheader_controller.go`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from cryptography import x509

from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError, Refused, Unreadable
from apiserver.cluster.reflector import Reflector
from apiserver.config.config import RequestHeader

logger = logging.getLogger(__name__)

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
READER = "extension-apiserver-authentication-reader"
CLIENT_CA, PROXY_CA = "client-ca-file", "requestheader-client-ca-file"
ALLOWED_NAMES = "requestheader-allowed-names"
HEADERS = {
    "username_headers": "requestheader-username-headers",
    "group_headers": "requestheader-group-headers",
    "uid_headers": "requestheader-uid-headers",
    "extra_prefixes": "requestheader-extra-headers-prefix",
}
PAUSE_SECONDS = 1.0
"""Between attempts of the first read."""


@dataclass(frozen=True, slots=True)
class ClusterTrust:
    """The CA bundles in PEM form, and the headers in which the front proxy names users. Unknown values are None.

    `proxy_ca` is never set without `names`: a front proxy with unknown names is not trusted.
    """

    client_ca: bytes | None = None
    proxy_ca: bytes | None = None
    names: RequestHeader | None = None


class TrustSource:
    """`current` is the trust in force; it is a new object exactly when something has changed. `run` follows the ConfigMap."""

    def __init__(self, client: Client) -> None:
        self.current = ClusterTrust()
        self._client = client
        self._reflector = Reflector(client, COLLECTION, field_selector=f"metadata.name={NAME}", on_change=self._changed)

    async def first(self, seconds: float) -> None:
        """Read the ConfigMap once, so that the server does not start without it. Waits for a server that is still starting.

        A missing ConfigMap is tolerated, as upstream does. Raises ClusterError, transient when a longer wait may help.
        """
        until = self._client.clock() + seconds
        while True:
            try:
                found = await self._client.ask("GET", f"{COLLECTION}/{NAME}", within=until - self._client.clock())
            except ClusterError as error:
                if isinstance(error, Refused) and error.code == 404:
                    logger.warning("the trust ConfigMap does not exist yet", extra={"configmap": f"{NAMESPACE}/{NAME}"})
                    return
                pause, transient = PAUSE_SECONDS * (1 + self._client.random() / 5), _may_pass(error)
                if not transient or self._client.clock() + pause >= until:
                    raise ClusterError(f"{_context(error)}: {error}", transient=transient) from None
            else:
                if not self._reflector.ready.is_set():  # else this answer may be the older one
                    self._use(found)
                return
            await self._client.sleep(pause)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._reflector.run()

    def _changed(self) -> None:
        for found in self._reflector.items.values():  # the one that the field selector leaves
            self._use(found)

    def _use(self, found: Mapping[str, Any]) -> None:
        trust = trusted(found.get("data") or {}, self.current)
        if trust != self.current:
            self.current = trust


def trusted(data: Mapping[str, str], previous: ClusterTrust) -> ClusterTrust:
    """Return the trust in the ConfigMap's data. Parts that cannot be used stay as they were."""
    client_ca = _bundle(data, CLIENT_CA, previous.client_ca)
    proxy_ca = _bundle(data, PROXY_CA, previous.proxy_ca)
    # kube-apiserver writes the names only together with this CA: without it, missing names mean nothing.
    names = _names(data, previous.names) if data.get(PROXY_CA) else previous.names
    return ClusterTrust(client_ca, proxy_ca if names is not None else None, names)


def _bundle(data: Mapping[str, str], key: str, previous: bytes | None) -> bytes | None:
    text = data.get(key)
    if not text:
        return previous
    bundle = text.encode()
    if bundle != previous:
        try:
            x509.load_pem_x509_certificates(bundle)
        except ValueError as error:
            _complain(key, error)
            return previous
    return bundle


def _names(data: Mapping[str, str], previous: RequestHeader | None) -> RequestHeader | None:
    try:
        headers = {field: tuple(map(_header, _listed(data, key))) for field, key in HEADERS.items()}
        return RequestHeader(ca_file="", allowed_names=_listed(data, ALLOWED_NAMES), **headers)
    except ValueError as error:
        _complain("requestheader-*", error)
        return previous


def _complain(key: str, error: ValueError) -> None:
    about = {"configmap": f"{NAMESPACE}/{NAME}", "key": key, "error": str(error)}
    logger.error("an unreadable value is ignored, the last one stays in use", extra=about)


def _listed(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Parse a JSON array of strings. Absent, empty and null mean an empty array, as in Go."""
    text = data.get(key)
    if not text:
        return ()
    found = orjson.loads(text)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise ValueError(f"{key} is no list of strings")
    return tuple(found)


def _header(name: str) -> str:
    """Check a header name. An empty prefix would let every header describe the user."""
    if not name.strip():
        raise ValueError("a header without a name")
    return name.lower()


def _may_pass(error: ClusterError) -> bool:
    """Return whether the same request may succeed a little later."""
    if isinstance(error, Refused):
        return error.code == 429 or error.code >= 500
    return not isinstance(error, Unreadable)


def _context(error: ClusterError) -> str:
    text = f"unable to get configmap/{NAME} in {NAMESPACE}"
    if isinstance(error, Refused) and error.code == 403:
        text += (
            f", usually fixed by 'kubectl create rolebinding -n {NAMESPACE} ROLEBINDING_NAME --role={READER}"
            " --serviceaccount=YOUR_NS:YOUR_SA'"
        )
    return text
