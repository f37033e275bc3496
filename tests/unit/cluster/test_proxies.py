"""Go's rules for the environment's proxies."""

from __future__ import annotations

import pytest

from apiserver.cluster import proxies
from apiserver.cluster.errors import ClusterError

SERVER = "https://kube.example.com:6443"
PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        (SERVER, {}, ""),
        (SERVER, {"HTTPS_PROXY": PROXY}, PROXY),
        (SERVER, {"https_proxy": PROXY}, PROXY),
        (SERVER, {"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY),
        (SERVER, {"HTTPS_PROXY": "proxy:3128"}, PROXY),
        (SERVER, {"HTTPS_PROXY": "https://u:p@proxy"}, "https://u:p@proxy"),
        (SERVER, {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, ""),
        ("http://kube.example.com", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://127.0.0.9:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://10.96.0.1", {"HTTPS_PROXY": PROXY}, PROXY),
    ],
)
def test_the_environment_names_the_proxy(server: str, environ: dict[str, str], expected: str) -> None:
    assert proxies.of(server, environ) == expected


@pytest.mark.parametrize(
    ("server", "entry", "excluded"),
    [
        (SERVER, "*", True),
        (SERVER, "kube.example.com", True),
        (SERVER, "KUBE.example.com ", True),
        (SERVER, "example.com", True),
        (SERVER, ".example.com", True),
        (SERVER, "*.example.com", True),
        (SERVER, ".kube.example.com", False),
        (SERVER, "ample.com", False),
        (SERVER, "kube.example.com:6443", True),
        (SERVER, "kube.example.com:443", False),
        ("https://kube.example.com", "kube.example.com:443", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://10.96.0.1", "10.96.0.0/12", True),
        ("https://10.96.0.1", "10.96.0.9/12", True),
        ("https://10.96.0.1", "11.0.0.0/8", False),
        ("https://10.96.0.1", "10.96.0.1:443", True),
        ("https://10.96.0.1", "10.96.0.1:80", False),
        ("https://10.96.0.1", "0.1", False),
        ("https://10.96.0.1", "10.96.0.0/99", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        (SERVER, "10.0.0.0/8", False),
        (SERVER, "", False),
    ],
)
def test_no_proxy_excludes_hosts(server: str, entry: str, excluded: bool) -> None:
    for text in (entry, f"other.example,{entry}", f" {entry} , "):
        assert proxies.of(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": text}) == ("" if excluded else PROXY)
    assert proxies.of(server, {"https_proxy": PROXY, "no_proxy": entry}) == ("" if excluded else PROXY)


def test_a_proxy_that_speaks_no_http_is_refused() -> None:
    with pytest.raises(ClusterError, match="socks5"):
        proxies.of(SERVER, {"HTTPS_PROXY": "socks5://secret@proxy"})
