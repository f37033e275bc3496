"""Find the API server and the credentials for it, from a kubeconfig or from a pod's service account. Sends no requests.

Upstream: kubernetes/client-go `tools/clientcmd/client_config.go`, `rest/config.go` (InClusterConfig), `transport/token_source.go`.
"""

from __future__ import annotations

import base64
import re
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import urlsplit

from apiserver.cluster import kubeconfigs, proxies
from apiserver.cluster.errors import ClusterError
from apiserver.config.tls_flags import OPENSSL_CIPHERS
from apiserver.runtime.workers import LOOKUPS

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True, slots=True)
class Identity:
    """All that a request needs to reach the API server with one identity.

    `authorization` is a header's value or empty. The same `tls` object means the same connections: a connection pool must open new ones
    when it changes. An empty `server_name` means the host of `server`; an empty `proxy` means no proxy.
    """

    server: str
    authorization: str
    tls: ssl.SSLContext | None
    server_name: str
    proxy: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another server that accepts the identity: its URL, the CAs of its certificate in PEM form, and the name in that certificate."""

    server: str
    authority: bytes
    server_name: str


class Source(Protocol):
    async def load(self, *, anew: bool) -> Identity:
        """Return what is valid now. With `anew`, drop unexpired credentials that the server has refused. Raises ClusterError."""


def in_pod(environ: Mapping[str, str]) -> bool:
    """Return whether this process runs in a pod, whose service account is then its identity."""
    return bool(environ.get(_HOST) and environ.get(_PORT))


# ---------------------------------------------------------------------------------------------------------------- sources


class ServiceAccount:
    """The account of this pod. The kubelet renews its token, so the files are read each time."""

    def __init__(
        self, environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT, *, elsewhere: Elsewhere | None = None
    ) -> None:
        self._environ = environ
        self._folder = folder
        self._elsewhere = elsewhere
        self._tls = _Tls()

    async def load(self, *, anew: bool) -> Identity:
        host, port = self._environ.get(_HOST), self._environ.get(_PORT)
        if not host or not port:
            raise ClusterError(f"this process runs in no pod: {_HOST} and {_PORT} must be defined")
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        token = _header(_read(self._folder / "token").decode("utf-8", "replace"))
        if not token:
            raise ClusterError(f"{self._folder / 'token'} is empty")
        if (other := self._elsewhere) is not None:
            tls = self._tls.context(_Material(authority=other.authority))
            return Identity(other.server, f"Bearer {token}", tls, other.server_name, "")
        authority = _read(self._folder / "ca.crt")
        tls = self._tls.context(_Material(authority=authority))
        return Identity(server, f"Bearer {token}", tls, "", proxies.of(server, self._environ))


class Kubeconfig:
    """A context of a kubeconfig, without a name the current one. `path` may be a list of files, as in KUBECONFIG: they are merged.

    kubernetes_asyncio runs plugins and providers (`exec`, `auth-provider`). It would keep embedded keys as files until the process
    ends, so certificates are removed before it sees the rest.
    """

    def __init__(
        self, path: str, environ: Mapping[str, str], *, context: str = "", elsewhere: Elsewhere | None = None
    ) -> None:
        self._path = Path(path)
        self._merged = len(kubeconfigs.files(path)) > 1
        self._environ = environ
        self._context = context
        self._elsewhere = elsewhere
        self._tls = _Tls()
        self._entry: _Entry | None = None
        self._loader: Any = None
        self._found = SimpleNamespace()

    async def load(self, *, anew: bool) -> Identity:
        if anew or self._entry is None:
            self._entry, self._loader = self._open(), None
        entry = self._entry
        await self._authenticate(entry)
        found = self._found
        other = self._elsewhere
        server = _base(found.host) if other is None else other.server
        tls = None
        if server.startswith("https"):
            certificate, key = entry.certificate.read(), entry.key.read()
            if getattr(found, "cert_file", None):
                certificate, key = _read(Path(found.cert_file)), _read(Path(found.key_file))
            material = (
                _Material(entry.authority.read(), certificate, key, verify=getattr(found, "verify_ssl", True))
                if other is None
                else _Material(other.authority, certificate, key)
            )
            tls = self._tls.context(material)
        authorization = _header(found.api_key.get("BearerToken", ""))
        if other is not None:
            return Identity(server, authorization, tls, other.server_name, "")
        proxy = getattr(found, "proxy", None) or proxies.of(server, self._environ)
        return Identity(
            server, authorization, tls, getattr(found, "tls_server_name", None) or "", proxies.spoken(proxy)
        )

    def check(self) -> None:
        """Check the files without running a plugin or sending a request. Raises ClusterError."""
        entry = self._open()
        authority, certificate, key = entry.authority.read(), entry.certificate.read(), entry.key.read()
        if entry.server.startswith("https"):
            _context(_Material(authority, certificate, key, verify=entry.verify))

    def _open(self) -> _Entry:
        text = b"" if self._merged else _read(self._path)
        try:
            document = kubeconfigs.merged(str(self._path)) if self._merged else kubeconfigs.document(text)
            if self._context:
                document = {**document, "current-context": self._context}
            return _entry(document, self._path.resolve().parent)
        except ClusterError as error:
            raise ClusterError(f"{self._path} cannot be used: {error}") from None
        except ValueError as error:
            raise ClusterError(f"{self._path} is no kubeconfig: {error}") from None

    async def _authenticate(self, entry: _Entry) -> None:
        """Run plugins when their credentials have expired or were refused; read files each time."""
        if not entry.asks:
            self._found = _static(entry)
            return
        kube_config, config_exception = await LOOKUPS.run_patiently(_library)
        if self._loader is None:
            self._loader = kube_config.KubeConfigLoader(config_dict=entry.config, config_base_path=str(entry.folder))
        elif entry.plugin and not hasattr(self._loader, "exec_plugin_expiry"):
            return
        found = SimpleNamespace(api_key={})
        try:
            await self._loader.load_and_set(found)
        except (config_exception, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClusterError(f"{self._path} yields no credentials: {error}") from None
        self._found = found


def _library() -> tuple[Any, type[Exception]]:
    """Import the library in a thread: it takes half a second and 66 MB, and only kubeconfigs with a plugin need it."""
    from kubernetes_asyncio.config import ConfigException, kube_config  # noqa: PLC0415

    return kube_config, ConfigException


def _static(entry: _Entry) -> SimpleNamespace:
    """Return the credentials from the kubeconfig or a file, without a plugin."""
    user, cluster = entry.config["users"][0]["user"], entry.config["clusters"][0]["cluster"]
    token = _read(entry.folder / str(user["tokenFile"])).decode("utf-8", "replace") if user.get("tokenFile") else ""
    token = token or user.get("token") or ""
    sent = {"BearerToken": f"Bearer {token}"} if token else {}
    if not sent and "username" in user and "password" in user:
        pair = f"{user['username']}:{user['password']}"
        sent["BearerToken"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return SimpleNamespace(
        host=entry.server,
        api_key=sent,
        verify_ssl=entry.verify,
        tls_server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
    )


@dataclass(frozen=True, slots=True)
class _Pem:
    """Embedded data, or a file that may be renewed. With neither it is empty."""

    data: bytes = b""
    path: Path | None = None

    def read(self) -> bytes:
        return self.data if self.path is None else _read(self.path)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The current context. `config` is a kubeconfig that holds only this context, without certificates."""

    config: Mapping[str, Any]
    folder: Path
    server: str
    verify: bool
    authority: _Pem
    certificate: _Pem
    key: _Pem
    plugin: bool
    asks: bool
    """The credentials come from a plugin or a provider."""


def errors(paths: Iterable[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors of kubeconfigs, each file once. An empty path is skipped."""
    for path in filter(None, dict.fromkeys(paths)):
        try:
            Kubeconfig(path, environ).check()
        except ClusterError as error:
            yield str(error)


def _entry(config: dict[str, Any], folder: Path) -> _Entry:
    """Read the current context. Raises ClusterError, ValueError."""
    if not config.get("current-context"):
        raise ClusterError("current-context is not set")
    context = _named(config, "context", config["current-context"])
    if not context.get("cluster"):
        raise ClusterError(f"the context {config['current-context']!r} names no cluster")
    cluster = _named(config, "cluster", context["cluster"])
    user = _named(config, "user", context["user"]) if context.get("user") else {}
    if not isinstance(cluster.get("server"), str):
        raise ClusterError(f"the cluster {context['cluster']!r} has no server")
    if any(user.get(name) for name in _IMPERSONATION):
        # Ignoring it silently would mean acting with other rights than intended.
        raise ClusterError("impersonation (as, as-uid, as-groups, as-user-extra) is not supported")
    if not _is_url(cluster["server"]):
        raise ValueError(f"server {cluster['server']!r} is no URL")
    authority = _taken(cluster, "certificate-authority", folder)
    certificate, key = _taken(user, "client-certificate", folder), _taken(user, "client-key", folder)
    if user.get("tokenFile"):
        user.pop("token", None)  # the file is renewed, so client-go prefers it
    command = user["exec"].get("command") if isinstance(user.get("exec"), dict) else ""
    if isinstance(command, str) and "/" in command:
        user["exec"] = {**user["exec"], "command": str(folder / command)}
    only: Mapping[str, Any] = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
    }
    return _Entry(
        only,
        folder,
        cluster["server"],
        not cluster.get("insecure-skip-tls-verify"),
        authority,
        certificate,
        key,
        plugin=bool(user.get("exec")),
        asks=any(user.get(name) for name in ("exec", "auth-provider")),
    )


def _base(server: str) -> str:
    """Return the URL that paths are appended to: no query, and no slash at the end (kubernetes/client-go `rest/client.go`)."""
    url = urlsplit(server)
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"


def _is_url(server: str) -> bool:
    try:
        url = urlsplit(server)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _named(config: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    """Find a named entry. Raises ClusterError, ValueError."""
    entries = config.get(f"{kind}s") or []
    if not isinstance(entries, list):
        raise ValueError(f"{kind}s is no list")  # noqa: TRY004
    for entry in entries:
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(kind) or {}
            if not isinstance(found, dict):
                raise ValueError(f"the {kind} {name!r} is no object")
            return dict(found)
    raise ClusterError(f"it has no {kind} {name!r}")


def _taken(entry: dict[str, Any], name: str, folder: Path) -> _Pem:
    """Remove a certificate or key from `entry` and return it. Raises ValueError."""
    data, file = entry.pop(f"{name}-data", None), entry.pop(name, None)
    if data:
        try:
            return _Pem(base64.b64decode("".join(str(data).split()), validate=True))
        except ValueError:
            raise ValueError(f"{name}-data is not base64") from None
    return _Pem(path=folder / str(file)) if file else _Pem()


# ---------------------------------------------------------------------------------------------------------------- TLS


@dataclass(frozen=True, slots=True)
class _Material:
    authority: bytes = b""
    """Empty for the system's roots."""
    certificate: bytes = b""
    key: bytes = b""
    verify: bool = True


class _Tls:
    """The TLS context for some material, the same object for as long as the material is the same."""

    def __init__(self) -> None:
        self._made: tuple[_Material, ssl.SSLContext] | None = None

    def context(self, material: _Material) -> ssl.SSLContext:
        if self._made is None or self._made[0] != material:
            self._made = material, _context(material)
        return self._made[1]


def _context(material: _Material) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(OPENSSL_CIPHERS)
    context.hostname_checks_common_name = False
    try:
        if not material.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif material.authority:
            # Bundles come with comments in any encoding; only the blocks count.
            found = b"\n".join(_PEM.findall(material.authority))
            if not found:
                raise ClusterError("the API server's CA bundle holds no certificate")
            context.load_verify_locations(cadata=found.decode("ascii"))
        else:
            context.load_default_certs()
        if material.certificate:
            # OpenSSL reads it from a path only; the temporary file is private and deleted at once.
            with tempfile.NamedTemporaryFile() as pair:
                pair.write(material.certificate + b"\n" + material.key)
                pair.flush()
                context.load_cert_chain(pair.name)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ClusterError(f"the certificates for the API server cannot be used: {error}") from None
    return context


def _header(text: str) -> str:
    """Return a credential without the line end of its file."""
    text = text.strip()
    if not text.isprintable():
        raise ClusterError("the credentials for the API server fit no header")
    return text


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror}") from None
