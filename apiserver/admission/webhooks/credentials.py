"""`--admission-control-config-file`: what plugins are configured with, and as whom webhooks are called.

Upstream: kubernetes/apiserver `pkg/admission/config.go`, `pkg/admission/plugin/webhook/config/kubeconfig.go`,
`pkg/util/webhook/authentication.go`, kubernetes/client-go `rest/transport.go`.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from apiserver.admission.webhooks.answers import SCHEME, json_type
from kubetext.quoting import go_quote

WEBHOOK_PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
KUBERNETES = "kubernetes.default.svc"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 50.0
"""How long a token from a file is used before the file is read again (client-go: a minute less 10 s)."""
_CONFIG = "apiserver.config.k8s.io"
_VERSIONS = {f"{_CONFIG}/v1": "v1", "apiserver.k8s.io/v1alpha1": "v1alpha1"}
_GO_STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'

Login = Mapping[str, Any]
"""A user of a kubeconfig."""


class Configuration:
    """The settings of each plugin in an AdmissionConfiguration."""

    def __init__(self, plugins: Mapping[str, Any] | None = None) -> None:
        self._plugins = dict(plugins or {})
        self._credentials = {name: _credentials(name, self._plugins.get(name)) for name in WEBHOOK_PLUGINS}

    def of(self, plugin: str) -> Any:
        """The decoded document of a plugin's own configuration, None if it has none."""
        return self._plugins.get(plugin)

    def credentials(self, plugin: str) -> Credentials:
        """With which a plugin calls its webhooks."""
        return self._credentials[plugin]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The users of a kubeconfig that stand for the hosts of webhooks; `default` is the current context's."""

    users: Mapping[str, Login] = field(default_factory=dict)
    default: str = ""
    folder: Path = Path("/")

    def of(self, host: str, port: int) -> User:
        """Return the user that calls a host. Raises ValueError for an unusable user."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for name in _names(target, host if port == 443 else ""):
            if name in self.users:
                return User(self.users[name], self.folder)
        if target == f"{KUBERNETES}:443" and (SERVICE_ACCOUNT / "token").exists():
            return User(
                {"tokenFile": str(SERVICE_ACCOUNT / "token")}, self.folder, authority=str(SERVICE_ACCOUNT / "ca.crt")
            )
        found = next((self.users[name] for name in ("*", self.default) if name in self.users), {})
        return User(found, self.folder)


def _names(target: str, host: str) -> Iterator[str]:
    """The names of users that fit a target, the best first."""
    for text in (target, host):
        if text:
            yield text
            steps = text.split(".")
            yield from ("*." + ".".join(steps[i:]) for i in range(1, len(steps)))


class User:
    """The credentials of one user. Raises ValueError for impossible settings of the kubeconfig."""

    def __init__(self, login: Login, folder: Path, *, authority: str = "") -> None:
        if login.get("auth-provider"):
            raise ValueError("auth provider not supported")
        if login.get("exec"):
            raise ValueError("exec credential plugins are not supported for webhooks")
        self._login, self._folder, self._authority = login, folder, authority
        self._basic = bool(login.get("username") or login.get("password"))
        self._token_file = login.get("tokenFile") or ""
        if self._basic and (login.get("token") or self._token_file):
            raise ValueError("username/password or bearer token may be set, but not both")
        self._token, self._read = str(login.get("token") or ""), 0.0
        if self._token_file and not self._token:
            self._renew()

    def authority(self) -> bytes:
        """The CAs that are believed beside those of the webhook."""
        return Path(self._authority).read_bytes() if self._authority else b""

    def pair(self) -> tuple[bytes, bytes]:
        """The client certificate and its key, empty for none. Raises ValueError."""
        return self._pem("client-certificate"), self._pem("client-key")

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of each request."""
        sent = [*self._impersonation()]
        if self._basic:
            words = f"{self._login.get('username') or ''}:{self._login.get('password') or ''}"
            sent.append(("Authorization", f"Basic {base64.b64encode(words.encode()).decode()}"))
        elif self._token or self._token_file:
            if self._token_file and time.monotonic() - self._read > TOKEN_SECONDS:
                self._renew()
            sent.append(("Authorization", f"Bearer {self._token}"))
        return [(name, value) for name, value in sent if value.isprintable()]

    def _renew(self) -> None:
        """A file that cannot be read leaves the token that is known."""
        try:
            token = _resolved(self._folder, self._token_file).read_text().strip()
        except OSError as error:
            if not self._token:
                raise ValueError(f"open {self._token_file}: {(error.strerror or '').lower()}") from None
            return
        self._token, self._read = token or self._token, time.monotonic()

    def _impersonation(self) -> Iterator[tuple[str, str]]:
        login = self._login
        if not login.get("as"):
            return
        yield "Impersonate-User", str(login["as"])
        if login.get("as-uid"):
            yield "Impersonate-Uid", str(login["as-uid"])
        for group in login.get("as-groups") or ():
            yield "Impersonate-Group", str(group)
        for key, values in (login.get("as-user-extra") or {}).items():
            yield from ((f"Impersonate-Extra-{key}", str(value)) for value in values)

    def _pem(self, name: str) -> bytes:
        data, file = self._login.get(f"{name}-data"), self._login.get(name)
        if data:
            try:
                return base64.b64decode("".join(str(data).split()), validate=True)
            except (binascii.Error, ValueError):
                raise ValueError(f"illegal base64 data in {name}-data") from None
        if not file:
            return b""
        try:
            return _resolved(self._folder, file).read_bytes()
        except OSError as error:
            raise ValueError(f"open {file}: {(error.strerror or '').lower()}") from None


# ---------------------------------------------------------------------------------------------------------------------- files


def load(path: str) -> Configuration:
    """The AdmissionConfiguration in a file; that of no plugin for an empty path. Raises ValueError with upstream's text."""
    if not path:
        return Configuration()
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ValueError(
            f"failed to read plugin config: unable to read admission control configuration from {go_quote(path)} "
            f"[open {path}: {why}]"
        ) from None
    try:
        plugins = _plugins(_yaml(text), text)
    except ValueError as error:
        raise ValueError(f"failed to read plugin config: {error}") from None
    found: dict[str, Any] = {}
    for plugin in plugins:
        found.setdefault(plugin.get("name") or "", _own(plugin, Path(path).absolute().parent))
    return Configuration(found)


def _plugins(document: Any, text: bytes) -> list[dict[str, Any]]:
    api_version = _check_kind(document, text, {"AdmissionConfiguration": tuple(_VERSIONS)})
    package = _VERSIONS[api_version]
    _known(document, ("kind", "apiVersion", "plugins"), "")
    plugins = document.get("plugins") or []
    if not isinstance(plugins, list):
        raise _mismatch(plugins, "AdmissionConfiguration.plugins", f"[]{package}.AdmissionPluginConfiguration")
    for i, plugin in enumerate(plugins):
        if not isinstance(plugin, dict):
            raise _mismatch(plugin, "AdmissionConfiguration.plugins", f"{package}.AdmissionPluginConfiguration")
        for name in ("name", "path"):
            if plugin.get(name) is not None and not isinstance(plugin[name], str):
                raise _mismatch(plugin[name], f"AdmissionPluginConfiguration.plugins.{name}", "string")
        _known(plugin, ("name", "path", "configuration"), f"plugins[{i}].")
    return plugins


def _own(plugin: Mapping[str, Any], folder: Path) -> Any:
    """The document of one plugin: inside the file, or in one that it names."""
    if plugin.get("configuration") is not None:
        return plugin["configuration"]
    if not plugin.get("path"):
        return None
    path = _resolved(folder, plugin["path"])
    try:
        return _yaml(path.read_bytes())
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ValueError(f"Couldn't open admission plugin configuration {path}: {why}") from None
    except ValueError as error:
        raise ValueError(f"couldn't init admission plugin {go_quote(plugin.get('name') or '')}: {error}") from None


def _credentials(plugin: str, document: Any) -> Credentials:
    if document is None:
        return Credentials()
    try:
        _check_kind(document, b"", {"WebhookAdmissionConfiguration": (f"{_CONFIG}/v1",)})
        _known(document, ("kind", "apiVersion", "kubeConfigFile", "staticManifestsDir"), "")
        for name in ("kubeConfigFile", "staticManifestsDir"):
            if document.get(name) is not None and not isinstance(document[name], str):
                raise _mismatch(document[name], f"WebhookAdmission.{name}", "string")
        file = document.get("kubeConfigFile") or ""
        if file and not file.startswith("/"):
            raise ValueError(f"kubeConfigFile: Invalid value: {go_quote(file)}: must be an absolute file path")
        if document.get("staticManifestsDir"):
            raise ValueError(
                "staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig "
                "feature gate to be enabled"
            )
        return _kubeconfig(file) if file else Credentials()
    except ValueError as error:
        raise ValueError(f"couldn't init admission plugin {go_quote(plugin)}: {error}") from None


def _kubeconfig(file: str) -> Credentials:
    try:
        text = Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"stat {file}: {(error.strerror or '').lower()}") from None
    try:
        document = _yaml(text)
        _check_object(document)
        users, default = dict(_named(document, "users", "user", "AuthInfo")), ""
        current = document.get("current-context")
        for name, context in _named(document, "contexts", "context", "Context"):
            if name == current:
                default = context.get("user") or ""
    except ValueError as error:
        raise ValueError(f"error loading config file {go_quote(file)}: {error}") from None
    return Credentials(users, default, Path(file).parent)


def _named(document: Mapping[str, Any], where: str, what: str, go: str) -> Iterator[tuple[str, Login]]:
    entries = document.get(where) or []
    if not isinstance(entries, list):
        raise _mismatch(entries, f"Config.{where}", f"[]v1.Named{go}")
    for entry in entries:
        if not isinstance(entry, dict):
            raise _mismatch(entry, f"Config.{where}", f"v1.Named{go}")
        value = entry.get(what) or {}
        if not isinstance(value, dict):
            raise _mismatch(value, f"Named{go}.{where}.{what}", f"v1.{go}")
        yield str(entry.get("name") or ""), value


# -------------------------------------------------------------------------------------------------------------------- decoding


def _yaml(text: bytes) -> Any:
    """Raises ValueError."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(f"yaml: {where}{getattr(error, 'problem', None) or error}") from None


def _check_object(document: Any) -> None:
    if document is not None and not isinstance(document, dict):
        what = f"json: cannot unmarshal {json_type(document)} into Go value of type {_GO_STRUCT}"
        raise ValueError(f"couldn't get version/kind; json parse error: {what}")


def _check_kind(document: Any, text: bytes, kinds: Mapping[str, tuple[str, ...]]) -> str:
    """The apiVersion of a document of one of the kinds."""
    _check_object(document)
    found = document or {}
    kind, api_version = found.get("kind") or "", found.get("apiVersion") or ""
    shown = text.decode("utf-8", "replace") if text or document is None else _json(document)
    if not kind:
        raise ValueError(f"Object 'Kind' is missing in '{shown}'")
    if not api_version:
        raise ValueError(f"Object 'apiVersion' is missing in '{shown}'")
    if api_version not in kinds.get(kind, ()):
        scheme = go_quote(SCHEME)
        raise ValueError(
            f"no kind {go_quote(str(kind))} is registered for version {go_quote(str(api_version))} in scheme {scheme}"
        )
    return str(api_version)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _known(document: Mapping[str, Any], members: tuple[str, ...], prefix: str) -> None:
    unknown = [f'unknown field "{prefix}{name}"' for name in document if name not in members]
    if unknown:
        raise ValueError(f"strict decoding error: {', '.join(unknown)}")


def _mismatch(value: Any, where: str, go: str) -> ValueError:
    return ValueError(f"json: cannot unmarshal {json_type(value)} into Go struct field {where} of type {go}")


def _resolved(folder: Path, file: str) -> Path:
    return Path(os.path.normpath(folder / file))
