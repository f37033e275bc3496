"""Choose the proxy to the API server by Go's rules, since client-go honours the environment's. Pure.

Upstream: golang/net `http/httpproxy/proxy.go`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from apiserver.cluster.errors import ClusterError


def of(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that the environment names, empty for none.

    It is HTTPS_PROXY or HTTP_PROXY by the server's scheme, never for this machine itself. NO_PROXY excludes hosts, `.suffixes`,
    addresses and CIDRs, each with or without a port.
    """
    url = urlsplit(server)
    name = f"{url.scheme.upper()}_PROXY"
    proxy = environ.get(name) or environ.get(name.lower()) or ""
    if not proxy or not url.hostname:
        return ""
    port = url.port or (443 if url.scheme == "https" else 80)
    excluded = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if _is_local(url.hostname) or any(
        _matches(entry.strip().lower(), url.hostname, port) for entry in excluded.split(",")
    ):
        return ""
    return spoken(proxy if "://" in proxy else f"http://{proxy}")


def spoken(proxy: str) -> str:
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise ClusterError(f"the proxy {urlsplit(proxy).scheme}://… to the API server speaks no HTTP")
    return proxy


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _matches(entry: str, host: str, port: int) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    if _address(entry) is None:
        entry, colon, own_port = entry.rpartition(":") if entry.rpartition(":")[2].isdigit() else (entry, "", "")
        if colon and own_port != str(port):
            return False
    wanted = _address(entry.strip("[]"))
    if wanted is not None or address is not None:
        return wanted == address
    suffix = entry[1:] if entry.startswith("*.") else entry
    return host.endswith(suffix) if suffix.startswith(".") else host == suffix or host.endswith(f".{suffix}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
