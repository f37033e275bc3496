"""What the operator decides: one table of flags with environment twins, parsed into frozen values, all mistakes told at once.

Names are kube-apiserver's where it has one. Knows nothing of the rooms that use the values.
"""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from apiserver import __version__
from apiserver.apimachinery import durations

MAX_REQUEST_BODY_BYTES = 3 * 1024 * 1024
"""Upstream's MaxRequestBodyBytes."""
WRITE_SECONDS = 34.0
"""Upper bound of one write of one object (upstream: `requestTimeoutUpperBound` of handlers/rest.go)."""
MAX_HEADER_LINES = 4096
MAX_HEADER_BYTES = 1024 * 1024
"""Go's DefaultMaxHeaderBytes, for all headers and the request line together."""
HEADER_SECONDS = 32.0
"""Upstream's ReadHeaderTimeout (secure_serving.go)."""
TLS_HANDSHAKE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 120.0
"""Must exceed the 90 s after which kube-apiserver's proxy drops idle connections (aggregation trap T8)."""
BACKLOG = 4096
MAX_WATCHES = 10_000

DEV, SERVE, STORE = "dev", "serve", "store"
STORE_ACTIONS = ("init", "check", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where and as whom the server listens. Empty file names: the command makes its own.

    `group` is that of kinds which name none, `kinds` are the modules whose kinds are served beside those of this house.
    """

    bind_address: str
    secure_port: int
    group: str
    kinds: tuple[str, ...]
    cert_file: str
    key_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """Which front proxy is believed, and in which headers it names the user. Header names are lower case."""

    ca_file: str
    allowed_names: tuple[str, ...]
    username_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    client_ca_file: str
    request_header: RequestHeader
    anonymous: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """What is asked of the cluster's kube-apiserver, as whom, and for how many seconds an answer is believed.

    `standalone`: nothing is asked. Otherwise an empty kubeconfig is the service account of the pod.
    """

    standalone: bool
    authentication_kubeconfig: str
    authorization_kubeconfig: str
    skip_lookup: bool
    tolerate_lookup_failure: bool
    token_seconds: float
    allow_seconds: float
    deny_seconds: float
    always_allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds and counts. `watch_seconds` is the least life of a watch that names none; the most is twice that."""

    request_seconds: float
    watch_seconds: float
    in_flight: int
    mutating_in_flight: int
    watches: int = MAX_WATCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """`delay_seconds`: everything is still served after the signal. `watch_seconds`: the ends of watches are spread over it."""

    delay_seconds: float
    watch_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    redis_url: str
    allow_volatile: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    format: str
    verbosity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dev:
    data_dir: Path
    kubeconfig: Path
    samples: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All of it. `action` is set for `store` only; `dev` has no meaning for the other commands."""

    command: str
    action: str
    serving: Serving
    authentication: Authentication
    delegation: Delegation
    limits: Limits
    shutdown: Shutdown
    storage: Storage
    logging: Logging
    dev: Dev


class ConfigError(Exception):
    """The configuration cannot be used; `mistakes` are all reasons."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = list(mistakes)


# ---------------------------------------------------------------------------------------------------------------- values


def _seconds(text: str) -> float:
    value = durations.parse(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _count(text: str) -> int:
    value = _integer(text)
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _port(text: str) -> int:
    value = _integer(text)
    if not 0 <= value <= 65535:
        raise ValueError(f"{text} is not between 0 and 65535")
    return value


def _boolean(text: str) -> bool:
    lower = text.lower()
    if lower in ("true", "t", "1"):
        return True
    if lower in ("false", "f", "0"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_GROUP = re.compile(rf"{_LABEL}(\.{_LABEL})+")


def _group(text: str) -> str:
    if len(text) > 253 or not _GROUP.fullmatch(text):
        raise ValueError(f"{text!r} is not an API group: a lower-case DNS name with at least one dot")
    return text


def _modules(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a Python module")
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise ValueError(f"there is no module {name}")
    return tuple(dict.fromkeys(names))


def _file(text: str) -> str:
    if text and not Path(text).is_file():
        raise ValueError(f"there is no file {text}")
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",")) if text else ()
    if not all(names):
        raise ValueError("has an empty entry")
    return names


def _headers(text: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(text))


def _paths(text: str) -> tuple[str, ...]:
    """Paths of which a `*` at the end makes a prefix (kubernetes/apiserver `pkg/authorization/path/path.go`)."""
    paths = _names(text)
    for path in paths:
        if "*" in path[:-1]:
            raise ValueError(f'only trailing * allowed in "{path.removeprefix("/")}"')
    return paths


def _redis_url(text: str) -> str:
    """Never shows the value: it may hold a password."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        raise ValueError("is not a URL") from None
    if url.scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must begin with redis://, rediss:// or unix://")
    if not (url.path if url.scheme == "unix" else url.hostname):
        raise ValueError("names no " + ("socket" if url.scheme == "unix" else "host"))
    return text


def _log_format(text: str) -> str:
    if text not in ("text", "json"):
        raise ValueError(f"{text!r} is neither text nor json")
    return text


# ---------------------------------------------------------------------------------------------------------------- the table

_EVERYWHERE = (DEV, SERVE, STORE)
_SERVERS = (DEV, SERVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One setting. `default` is text in the flag's own syntax, or one per command; None: must be given. `switch`: on without a value."""

    name: str
    parse: Callable[[str], Any]
    default: str | Mapping[str, str | None] | None
    text: str
    commands: tuple[str, ...] = _SERVERS
    value: str = "TEXT"
    switch: bool = False

    @property
    def option(self) -> str:
        return f"-{self.name}" if len(self.name) == 1 else f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"SLUICE_{self.name.replace('-', '_').upper()}"

    @property
    def many(self) -> bool:
        """May be given several times; the values add up."""
        return self.parse in (_names, _headers, _paths, _modules)

    def default_for(self, command: str) -> str | None:
        return self.default.get(command) if isinstance(self.default, Mapping) else self.default


FLAGS: tuple[Flag, ...] = (
    Flag(name="data-dir", parse=Path, default="./.sluice", commands=(DEV,), value="DIR",
         text="where the store, the certificates and the kubeconfig are kept"),
    Flag(name="kubeconfig", parse=str, default="", commands=(DEV,), value="FILE",
         text="where to write the kubeconfig (default: kubeconfig in the data directory)"),
    Flag(name="samples", parse=_boolean, default="true", commands=(DEV,), switch=True,
         text="put a few objects of each kind into an empty store"),
    Flag(name="bind-address", parse=_address, default={DEV: "127.0.0.1", SERVE: "0.0.0.0"}, value="IP",
         text="address to listen on"),
    Flag(name="secure-port", parse=_port, default="6443", value="PORT", text="port to listen on; 0 takes any free one"),
    Flag(name="group", parse=_group, default="resource.sluice.dev", commands=_EVERYWHERE, value="GROUP",
         text="API group of the served kinds that name none"),
    Flag(name="kinds", parse=_modules, default="", commands=_EVERYWHERE, value="PACKAGE",
         text="installed Python package whose RESOURCES are served too; may be given several times"),
    Flag(name="tls-cert-file", parse=_file, default=None, commands=(SERVE,), value="FILE",
         text="serving certificate, followed by its intermediates; read again when it changes"),
    Flag(name="tls-private-key-file", parse=_file, default=None, commands=(SERVE,), value="FILE",
         text="key of the serving certificate"),
    Flag(name="client-ca-file", parse=_file, default="", commands=(SERVE,), value="FILE",
         text="CAs whose client certificates name users"),
    Flag(name="requestheader-client-ca-file", parse=_file, default="", commands=(SERVE,), value="FILE",
         text="CAs of the front proxy, whose requests name users in headers"),
    Flag(name="requestheader-allowed-names", parse=_names, default="", commands=(SERVE,), value="NAMES",
         text="common names the front proxy may have; none: any that its CA signed"),
    Flag(name="requestheader-username-headers", parse=_headers, default="x-remote-user", commands=(SERVE,), value="HEADERS",
         text="headers with the user's name"),
    Flag(name="requestheader-group-headers", parse=_headers, default="x-remote-group", commands=(SERVE,), value="HEADERS",
         text="headers with the user's groups"),
    Flag(name="requestheader-uid-headers", parse=_headers, default="", commands=(SERVE,), value="HEADERS",
         text="headers with the user's uid"),
    Flag(name="requestheader-extra-headers-prefix", parse=_headers, default="x-remote-extra-", commands=(SERVE,), value="PREFIXES",
         text="beginnings of headers with extra properties of the user"),
    Flag(name="anonymous-auth", parse=_boolean, default="true", switch=True,
         text="let requests without credentials in as system:anonymous"),
    Flag(name="standalone", parse=_boolean, default="false", commands=(SERVE,), switch=True,
         text="ask no cluster: users come from certificates alone, only system:masters may change anything, every namespace exists"),
    Flag(name="authentication-kubeconfig", parse=_file, default="", commands=(SERVE,), value="FILE",
         text="kube-apiserver that reviews tokens and knows the CAs (default: as for authorization, else the pod's service account)"),
    Flag(name="authentication-skip-lookup", parse=_boolean, default="false", commands=(SERVE,), switch=True,
         text="do not look up in the cluster the CAs that no flag names"),
    Flag(name="authentication-tolerate-lookup-failure", parse=_boolean, default="false", commands=(SERVE,), switch=True,
         text="start even when that lookup is refused; everybody may then be anonymous"),
    Flag(name="authentication-token-webhook-cache-ttl", parse=_seconds, default="10s", commands=(SERVE,), value="DURATION",
         text="how long an answer about a token is believed"),
    Flag(name="authorization-kubeconfig", parse=_file, default="", commands=(SERVE,), value="FILE",
         text="kube-apiserver that is asked who may do what, and which namespaces exist (default: as for authentication)"),
    Flag(name="authorization-webhook-cache-authorized-ttl", parse=_seconds, default="10s", commands=(SERVE,), value="DURATION",
         text="how long a permission is believed"),
    Flag(name="authorization-webhook-cache-unauthorized-ttl", parse=_seconds, default="10s", commands=(SERVE,), value="DURATION",
         text="how long a refusal is believed"),
    Flag(name="authorization-always-allow-paths", parse=_paths, default="/healthz,/readyz,/livez", commands=(SERVE,), value="PATHS",
         text="paths that everybody may ask for; * at the end makes a prefix"),
    Flag(name="redis-url", parse=_redis_url, default=None, commands=(SERVE, STORE), value="URL",
         text="the store: redis://, rediss:// or unix://, with user and password where needed"),
    Flag(name="allow-volatile", parse=_boolean, default="false", commands=(SERVE, STORE), switch=True,
         text="accept a store without append-only file (everything is lost when it restarts)"),
    Flag(name="request-timeout", parse=_seconds, default="60s", value="DURATION",
         text="longest time for a request that is no watch"),
    Flag(name="min-request-timeout", parse=_count, default="1800", value="SECONDS",
         text="shortest life of a watch that names none; the longest is twice that"),
    Flag(name="max-requests-inflight", parse=_count, default="400", value="N",
         text="reading requests served at a time; 0 is no limit"),
    Flag(name="max-mutating-requests-inflight", parse=_count, default="200", value="N",
         text="writing requests served at a time; 0 is no limit"),
    Flag(name="shutdown-delay-duration", parse=_seconds, default={DEV: "0s", SERVE: "10s"}, value="DURATION",
         text="how long everything is still served after a stop signal, for load balancers to notice"),
    Flag(name="shutdown-watch-termination-grace-period", parse=_seconds, default={DEV: "0s", SERVE: "10s"}, value="DURATION",
         text="how long the ends of open watches are spread"),
    Flag(name="logging-format", parse=_log_format, default="text", commands=_EVERYWHERE, value="text|json",
         text="form of log lines"),
    Flag(name="v", parse=_count, default="0", commands=_EVERYWHERE, value="LEVEL",
         text="how much to log: 3 adds each request, 4 and more details"),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- reading

_SUMMARY = {
    DEV: "everything for one machine: a store of its own, certificates, a kubeconfig",
    SERVE: "serve a cluster: behind an APIService or directly, with a store that is already there",
    STORE: "prepare (init), compare (check) or describe (info) the store",
}


class _Parser(argparse.ArgumentParser):
    """argparse splits the words and prints the help; a mistake is raised, not printed."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError([message])


def _parser() -> _Parser:
    parser = _Parser(
        prog="sluice",
        description="A Kubernetes aggregated API server that keeps its objects in Redis Streams.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for command, summary in _SUMMARY.items():
        sub = commands.add_parser(
            command, help=summary, description=summary, allow_abbrev=False,
            epilog="Each flag also reads the environment variable in brackets; the command line wins.",
        )  # fmt: skip
        if command == STORE:
            sub.add_argument("action", choices=STORE_ACTIONS, metavar="|".join(STORE_ACTIONS))
        for flag in FLAGS:
            if command in flag.commands:
                _add(sub, flag, command)
    return parser


def _add(parser: argparse.ArgumentParser, flag: Flag, command: str) -> None:
    default = flag.default_for(command)
    shown = "required" if default is None else f"default: {default}" if default and not flag.switch else ""
    text = f"{flag.text}{f' ({shown})' if shown else ''} [{flag.variable}]".replace("%", "%%")
    if flag.switch:
        state = "on" if default == "true" else "off"
        text = f"{flag.text} (default: {state}) [{flag.variable}]"
        parser.add_argument(flag.option, dest=flag.name, nargs="?", const="true", metavar="true|false", help=text)
        parser.add_argument(
            f"--no-{flag.name}", dest=flag.name, action="store_const", const="false", help=argparse.SUPPRESS
        )
    else:
        action = "append" if flag.many else "store"
        parser.add_argument(flag.option, dest=flag.name, metavar=flag.value, action=action, help=text)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """The configuration of this start. Raises ConfigError with every mistake; `--help` and `--version` print and exit."""
    words, unknown = _parser().parse_known_args(list(argv))
    mistakes = [f"unknown argument {word}" for word in unknown]
    values = _values(words, environ, mistakes)
    if words.command == SERVE:
        mistakes += _contradictions(values, environ)
    if mistakes:
        raise ConfigError(mistakes)
    return _config(words.command, getattr(words, "action", ""), values)


def _values(words: argparse.Namespace, environ: Mapping[str, str], mistakes: list[str]) -> dict[str, Any]:
    """Every flag's value: from the command line, else the environment, else its default. Mistakes are collected."""
    values: dict[str, Any] = {}
    for flag in FLAGS:
        if words.command not in flag.commands:
            values[flag.name] = _unused(flag)
            continue
        source, text = flag.option, getattr(words, flag.name)
        if isinstance(text, list):
            text = ",".join(text)
        if text is None and flag.variable in environ:
            source, text = flag.variable, environ[flag.variable]
        if text is None:
            text = flag.default_for(words.command)
        if text is None:
            mistakes.append(f"{flag.option} (or {flag.variable}) is required")
            continue
        try:
            values[flag.name] = flag.parse(text)
        except ValueError as e:
            mistakes.append(f"{source}: {e}")
    return values


IN_POD = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""What the kubelet tells every container about kube-apiserver."""


def _contradictions(v: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[str]:
    """What each flag by itself cannot tell. A flag with a mistake of its own has no value and is taken as given."""
    kubeconfigs = [name for name in ("authentication-kubeconfig", "authorization-kubeconfig") if v.get(name, name)]
    if v.get("standalone"):
        for name in kubeconfigs:
            yield f"--{name}: --standalone asks no cluster"
    elif not kubeconfigs and not all(environ.get(name) for name in IN_POD):
        yield "outside a pod --authentication-kubeconfig or --authorization-kubeconfig is required (--standalone does without a cluster)"
    uid_headers = v.get("requestheader-uid-headers")
    if uid_headers and "x-remote-uid" not in uid_headers:
        yield "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"


def _unused(flag: Flag) -> Any:
    """What a flag is worth to a command that does not have it."""
    default = flag.default_for(flag.commands[0])
    return "" if default is None else flag.parse(default)


def _config(command: str, action: str, v: Mapping[str, Any]) -> Config:
    return Config(
        command=command,
        action=action,
        serving=Serving(
            bind_address=v["bind-address"],
            secure_port=v["secure-port"],
            group=v["group"],
            kinds=v["kinds"],
            cert_file=v["tls-cert-file"],
            key_file=v["tls-private-key-file"],
        ),
        authentication=Authentication(
            client_ca_file=v["client-ca-file"],
            request_header=RequestHeader(
                ca_file=v["requestheader-client-ca-file"],
                allowed_names=v["requestheader-allowed-names"],
                username_headers=v["requestheader-username-headers"],
                group_headers=v["requestheader-group-headers"],
                uid_headers=v["requestheader-uid-headers"],
                extra_prefixes=v["requestheader-extra-headers-prefix"],
            ),
            anonymous=v["anonymous-auth"],
        ),
        delegation=Delegation(
            standalone=command != SERVE or v["standalone"],
            authentication_kubeconfig=v["authentication-kubeconfig"] or v["authorization-kubeconfig"],
            authorization_kubeconfig=v["authorization-kubeconfig"] or v["authentication-kubeconfig"],
            skip_lookup=v["authentication-skip-lookup"],
            tolerate_lookup_failure=v["authentication-tolerate-lookup-failure"],
            token_seconds=v["authentication-token-webhook-cache-ttl"],
            allow_seconds=v["authorization-webhook-cache-authorized-ttl"],
            deny_seconds=v["authorization-webhook-cache-unauthorized-ttl"],
            always_allowed=v["authorization-always-allow-paths"],
        ),
        limits=Limits(
            request_seconds=v["request-timeout"],
            watch_seconds=float(v["min-request-timeout"]),
            in_flight=v["max-requests-inflight"],
            mutating_in_flight=v["max-mutating-requests-inflight"],
        ),
        shutdown=Shutdown(
            delay_seconds=v["shutdown-delay-duration"], watch_seconds=v["shutdown-watch-termination-grace-period"]
        ),
        storage=Storage(redis_url=v["redis-url"], allow_volatile=v["allow-volatile"]),
        logging=Logging(format=v["logging-format"], verbosity=v["v"]),
        dev=Dev(
            data_dir=v["data-dir"],
            kubeconfig=Path(v["kubeconfig"]) if v["kubeconfig"] else Path(v["data-dir"]) / "kubeconfig",
            samples=v["samples"],
        ),
    )
