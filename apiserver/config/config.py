"""All settings: each is declared once as a field of a frozen value. Parsing reports all errors at once.

Names are kube-apiserver's if it has one. Knows nothing of the packages that use the values.
"""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import Release
from apiserver.config import (
    auditing,
    command_line,
    config_file,
    flags,
    parsers,
    release_flags,
    store_address,
    tls_flags,
    topics,
)
from apiserver.config.auditing import Audit
from apiserver.config.command_line import help_for
from apiserver.config.commands import (
    ASKING,
    DEV,
    DOCTOR,
    FILE_ACTIONS,
    MANIFESTS,
    PACKAGES,
    ROLES,
    SERVE,
    STORE,
    TOP,
    VERIFY,
    VERSION,
)
from apiserver.config.diagnosis import Diagnosis
from apiserver.config.flags import Choice, ConfigError, flag
from apiserver.config.tls_flags import NamedPair

__all__ = [
    "DEV",
    "DOCTOR",
    "MANIFESTS",
    "PACKAGES",
    "ROLES",
    "SERVE",
    "STORE",
    "TOP",
    "VERIFY",
    "Audit",
    "Config",
    "ConfigError",
    "Reading",
    "help_for",
]

BODY_TO_OBJECT = 2
"""Bytes of a request body to bytes of an object, as upstream: MaxRequestBodyBytes is 3 MiB, etcd's limit 1.5 MiB."""
WRITE_SECONDS = 34.0
"""Upper bound of one write of one object (upstream: `requestTimeoutUpperBound` of handlers/rest.go)."""
MAX_HEADER_LINES = 4096
MAX_HEADER_BYTES = 1024 * 1024
"""Go's DefaultMaxHeaderBytes, for all headers and the request line together."""
HEADER_SECONDS = 32.0
"""Upstream's ReadHeaderTimeout (secure_serving.go)."""
TLS_HANDSHAKE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 120.0
"""Must exceed the 90 s after which kube-apiserver's proxy drops idle connections."""
BACKLOG = 4096
MAX_WATCHES = 10_000

EVERYWHERE, SERVERS = (DEV, SERVE, STORE, ROLES, PACKAGES, MANIFESTS, *ASKING), (DEV, SERVE)
STORED = (SERVE, STORE, DOCTOR)
"""The commands that connect to a store which somebody else runs."""
DURABILITIES, LOG_FORMATS = ("primary", "replica", "all"), ("text", "json")
GROUP, KINDS, FEATURE_GATES, EMULATED_VERSION = "group", "kinds", "feature-gates", "emulated-version"
FAIRNESS, MOST_READS, MOST_WRITES = (
    "enable-priority-and-fairness",
    "max-requests-inflight",
    "max-mutating-requests-inflight",
)
CRDS, BUILTIN, CA_FILE = "crds", "builtin-kinds", "ca-file"
ENABLE_PLUGINS, DISABLE_PLUGINS = "enable-admission-plugins", "disable-admission-plugins"


# ---------------------------------------------------------------------------------------------------------------- the settings


# Each flag takes two lines: first what the program uses, then what the user reads.
# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Dev:
    """Settings of `sluice dev` only. By default the kubeconfig is in the data directory."""

    TOPIC: ClassVar[str] = topics.DEVELOPMENT

    data_dir: Path = flag("data-dir", (DEV,), Path, "./.sluice",
        text="where the store, the certificates and the kubeconfig are kept", value="DIR")
    kubeconfig: Path = flag("kubeconfig", (DEV, *ASKING), Path, "",
        text="where dev writes its kubeconfig (default: kubeconfig in the data directory); doctor and top read it from there (default: "
        "that of kubectl, in a pod its service account)", value="FILE")
    admission: tuple[Path, ...] = flag("admission", (DEV,), parsers.existing, "",
        text="file or folder of webhook configurations, policies, bindings and their parameters; read again when it changes; may be given "
        "several times", value="FILE|DIR", many=True, topic=topics.ADMISSION)
    samples: bool = flag("samples", (DEV,), parsers.boolean, "true",
        text="put a few objects of each kind into an empty store", switch=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The addresses and certificates of the server, and what it serves. Empty file names: the command makes its own certificates.

    `group` is the group of kinds that name none. `kinds` are the modules whose kinds are served beside the built-in ones, `crds` the
    files whose definitions are. `builtin`: the built-in kinds are served.
    `emulated` is the release to be, None to follow the kube-apiserver in front. `feature_gates` are the switched gates by name.
    `runtime_config` is checked when the kinds are known.
    """

    TOPIC: ClassVar[str] = topics.SECURE_SERVING

    bind_address: str = flag("bind-address", SERVERS, parsers.address, {DEV: "127.0.0.1", SERVE: "0.0.0.0"},
        text="address to listen on", value="IP")
    secure_port: int = flag("secure-port", SERVERS, parsers.port, "7643",
        text="port to listen on; 0 takes any free one", value="PORT")
    group: str = flag(GROUP, EVERYWHERE, parsers.group, "resource.sluice.dev",
        text="API group of the served kinds that name none", value="GROUP", topic=topics.API_ENABLEMENT)
    kinds: tuple[str, ...] = flag(KINDS, EVERYWHERE, parsers.modules, "",
        text="installed Python package whose RESOURCES are served too; may be given several times",
        value="PACKAGE", many=True, topic=topics.API_ENABLEMENT)
    crds: tuple[Path, ...] = flag(CRDS, EVERYWHERE, parsers.existing, "",
        text="file or folder of CustomResourceDefinitions whose kinds are served too; read again when it changes; may be given several "
        "times", value="FILE|DIR", many=True, topic=topics.API_ENABLEMENT)
    builtin: bool = flag(BUILTIN, (DEV, SERVE, STORE, ROLES, MANIFESTS, *ASKING), parsers.boolean, "true",
        text="serve the built-in kinds; without them there must be others", switch=True, topic=topics.API_ENABLEMENT)
    emulated: Release | None = flag(EMULATED_VERSION, EVERYWHERE, release_flags.release, "",
        text=f"minor version of Kubernetes that this server is: {', '.join(map(str, releases.SUPPORTED))} (default: serve follows the "
        f"kube-apiserver in front, all else is {releases.NEWEST})", value="MAJOR.MINOR", topic=topics.GENERIC,
        choices=map(str, releases.SUPPORTED))
    feature_gates: Mapping[str, bool] = flag(FEATURE_GATES, SERVERS, release_flags.gates, "",
        text="switch alpha and beta features on or off; may be given several times",
        value="GATE=true|false", many=True, topic=topics.GENERIC)
    runtime_config: Mapping[str, str] = flag("runtime-config", SERVERS, parsers.pairs, "",
        text="versions and resources to serve or not, each key with =true or =false: <group>/<version>, <group>/<version>/<resource>, "
        "or api/all, api/ga, api/beta and api/alpha for all versions of a stability level",
        value="KEY=VALUE", many=True, topic=topics.API_ENABLEMENT)
    cert_file: str = flag("tls-cert-file", (SERVE,), parsers.file, None,
        text="serving certificate, followed by its intermediates; read again when it changes", value="FILE")
    key_file: str = flag("tls-private-key-file", (SERVE,), parsers.file, None,
        text="key of the serving certificate", value="FILE")
    tls_minimum: ssl.TLSVersion = flag("tls-min-version", (SERVE,), tls_flags.version, "VersionTLS12",
        text="oldest version of TLS that clients may speak: VersionTLS12 or VersionTLS13", value="VERSION", choices=tls_flags.VERSIONS)
    ciphers: tuple[str, ...] = flag("tls-cipher-suites", (SERVE,), tls_flags.ciphers, "",
        text=f"cipher suites for clients that speak TLS 1.2; those of TLS 1.3 are always offered (default: the preferred). Preferred: "
        f"{', '.join(sorted({*tls_flags.CIPHERS} - tls_flags.INSECURE))}; insecure: {', '.join(sorted(tls_flags.INSECURE))}",
        value="SUITES", many=True, choices=tls_flags.CIPHERS)
    named_pairs: tuple[NamedPair, ...] = flag("tls-sni-cert-key", (SERVE,), tls_flags.named_pairs, "",
        text="certificate and key for clients that ask for one of these names (*.example.org is each directly below it), or without names "
        "for one that the certificate says; a pair with names wins over one without, the first over those behind it; read again when "
        f"they change; may be given several times, in the environment with {tls_flags.BETWEEN_PAIRS} between them",
        value="CERTFILE,KEYFILE[:NAMES]", many=True, separator=tls_flags.BETWEEN_PAIRS)
    profiling: bool = flag("profiling", SERVERS, parsers.boolean, "true",
        text="serve profiles of CPU time and memory at /debug/pprof, and change -v by PUT of /debug/flags/v, for users who may",
        switch=True, topic=topics.FEATURES)
    tracing_file: str = flag("tracing-config-file", SERVERS, parsers.file, "",
        text="TracingConfiguration: the OpenTelemetry collector that gets spans of requests, and the share of requests that are traced",
        value="FILE", topic=topics.TRACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """The trusted front proxy, and the headers in which it names the user. Header names are lower case."""

    TOPIC: ClassVar[str] = topics.AUTHENTICATION

    ca_file: str = flag("requestheader-client-ca-file", (SERVE,), parsers.file, "",
        text="CAs of the front proxy, whose requests name users in headers", value="FILE")
    allowed_names: tuple[str, ...] = flag("requestheader-allowed-names", (SERVE,), parsers.names, "",
        text="common names the front proxy may have; none: any that its CA signed", value="NAMES", many=True)
    username_headers: tuple[str, ...] = flag("requestheader-username-headers", (SERVE,), parsers.headers, "x-remote-user",
        text="headers with the user's name", value="HEADERS", many=True)
    group_headers: tuple[str, ...] = flag("requestheader-group-headers", (SERVE,), parsers.headers, "x-remote-group",
        text="headers with the user's groups", value="HEADERS", many=True)
    uid_headers: tuple[str, ...] = flag("requestheader-uid-headers", (SERVE,), parsers.headers, "",
        text="headers with the user's uid", value="HEADERS", many=True)
    extra_prefixes: tuple[str, ...] = flag("requestheader-extra-headers-prefix", (SERVE,), parsers.headers, "x-remote-extra-",
        text="beginnings of headers with extra properties of the user", value="PREFIXES", many=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    TOPIC: ClassVar[str] = topics.AUTHENTICATION

    client_ca_file: str = flag("client-ca-file", (SERVE,), parsers.file, "",
        text="CAs whose client certificates name users", value="FILE")
    request_header: RequestHeader
    anonymous: bool = flag("anonymous-auth", SERVERS, parsers.boolean, "true",
        text="let requests without credentials in as system:anonymous", switch=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The requests to the cluster's kube-apiserver, their identity, and how long answers are cached in seconds.

    `standalone`: no cluster is asked. Otherwise an empty kubeconfig means the service account of the pod.
    """

    TOPIC: ClassVar[str] = topics.AUTHENTICATION

    standalone: bool = flag("standalone", (SERVE,), parsers.boolean, "false",
        text="ask no cluster: users come from certificates alone, only system:masters may change anything, the store keeps namespaces",
        switch=True, topic=topics.GENERIC)
    authentication_kubeconfig: str = flag("authentication-kubeconfig", (SERVE,), parsers.file, "",
        text="kube-apiserver that reviews tokens and knows the CAs (default: as for authorization, else the pod's service account)",
        value="FILE")
    skip_lookup: bool = flag("authentication-skip-lookup", (SERVE,), parsers.boolean, "false",
        text="do not read from the cluster the CAs that no flag names", switch=True)
    tolerate_lookup_failure: bool = flag("authentication-tolerate-lookup-failure", (SERVE,), parsers.boolean, "false",
        text="start even when that lookup is refused; every client may then be anonymous", switch=True)
    token_seconds: float = flag("authentication-token-webhook-cache-ttl", (SERVE,), parsers.seconds, "10s",
        text="how long an answer about a token is cached", value="DURATION")
    authorization_kubeconfig: str = flag("authorization-kubeconfig", (SERVE,), parsers.file, "",
        text="kube-apiserver that authorizes requests and knows the namespaces (default: as for authentication)",
        value="FILE", topic=topics.AUTHORIZATION)
    allow_seconds: float = flag("authorization-webhook-cache-authorized-ttl", (SERVE,), parsers.seconds, "10s",
        text="how long a permission is cached", value="DURATION", topic=topics.AUTHORIZATION)
    deny_seconds: float = flag("authorization-webhook-cache-unauthorized-ttl", (SERVE,), parsers.seconds, "10s",
        text="how long a refusal is cached", value="DURATION", topic=topics.AUTHORIZATION)
    always_allowed: tuple[str, ...] = flag("authorization-always-allow-paths", (SERVE,), parsers.paths, "/healthz,/readyz,/livez",
        text="paths that everybody may ask for; * at the end makes a prefix", value="PATHS", many=True,
        topic=topics.AUTHORIZATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The admission plugins. Without NodeRestriction, reads of nodes are not restricted either.

    Upstream: kubernetes/apiserver `pkg/server/options/admission.go`.
    """

    TOPIC: ClassVar[str] = topics.ADMISSION

    enabled: tuple[str, ...] = flag(ENABLE_PLUGINS, SERVERS, parsers.plugins, "",
        text=f"admission plugins run beside {parsers.DEFAULT_PLUGINS}, of {', '.join(parsers.PLUGINS)}; may be given several times",
        value="PLUGINS", many=True, choices=parsers.PLUGINS)
    disabled: tuple[str, ...] = flag(DISABLE_PLUGINS, SERVERS, parsers.plugins, "",
        text="admission plugins that are not run; may be given several times", value="PLUGINS", many=True,
        choices=parsers.PLUGINS)

    control: str = flag("admission-control-config-file", SERVERS, str, "",
        text="AdmissionConfiguration: credentials for webhooks, and resources that may only be used if a quota covers them", value="FILE")

    def asks(self, plugin: str) -> bool:
        """Return whether a plugin is enabled. Only then does it follow its objects in the cluster."""
        return plugin in self.enabled or (parsers.PLUGINS.get(plugin, True) and plugin not in self.disabled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The store, and the bytes of the longest object in it."""

    TOPIC: ClassVar[str] = topics.STORE

    redis_url: str = flag("redis-url", STORED, parsers.redis_url, {DOCTOR: ""},
        text="the store: redis://, rediss:// (TLS) or unix://; or its sentinels: redis+sentinel://HOST:PORT,HOST:PORT/NAME; or nodes of "
        "its cluster: redis+cluster://HOST:PORT,HOST:PORT; with user and password where needed", value="URL", secret=True)
    password_file: str = flag("redis-password-file", STORED, parsers.file, "",
        text="password of the store's user, instead of one in the URL; read again for each connection", value="FILE")
    sentinel_username: str = flag("redis-sentinel-username", STORED, str, "",
        text="user at the sentinels", value="NAME")
    sentinel_password_file: str = flag("redis-sentinel-password-file", STORED, parsers.file, "",
        text="password of that user; read again for each connection", value="FILE")
    ca_file: str = flag("redis-ca-file", STORED, parsers.file, "",
        text="authorities of the certificates of the store and its sentinels (default: the system's); read again when it changes",
        value="FILE")
    cert_file: str = flag("redis-cert-file", STORED, parsers.file, "",
        text="client certificate for the store and its sentinels; read again when it changes", value="FILE")
    key_file: str = flag("redis-key-file", STORED, parsers.file, "",
        text="key of that certificate", value="FILE")
    durability: str = flag("store-durability", STORED, Choice(DURABILITIES, optional=True), "",
        text="servers that must have a write before it is acknowledged: the primary alone, one replica too, or all replicas that "
        "the sentinels or the cluster know (default: replica with these, else primary)", value="primary|replica|all")
    allow_volatile: bool = flag("allow-volatile", STORED, parsers.boolean, "false",
        text="accept a store that reports no append-only file: its restart loses everything, unless it is a service that keeps a durable "
        "log of its own (MemoryDB)", switch=True)
    object_bytes: int = flag("max-object-bytes", (DEV, SERVE, STORE), parsers.object_bytes, str(parsers.LEAST_OBJECT_BYTES),
        text=f"longest object as it is stored, up to {parsers.MOST_OBJECT_BYTES}; a request body may be {BODY_TO_OBJECT} times as long; "
        "give all replicas the same", value="N", actions=("import",))
    wait_seconds: float = flag("wait", (STORE,), parsers.seconds, "0s",
        text="how long to wait for a store that does not answer yet, printing the probable cause", value="DURATION",
        actions=("init", "check", "info"))

    @property
    def body_bytes(self) -> int:
        """Bytes of the longest request body."""
        return BODY_TO_OBJECT * self.object_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The source of `sluice store import`, the destination of `sluice store export`, and the choice of what is moved."""

    TOPIC: ClassVar[str] = topics.MIGRATION

    from_kubeconfig: str = flag("from-kubeconfig", (STORE,), parsers.file, "",
        text="kube-apiserver that serves the group itself, as the user of the current context", value="FILE", actions=("import",))
    from_file: tuple[Path, ...] = flag("from-file", (STORE,), parsers.existing, "",
        text="file of a list as `kubectl get --raw` prints it, or folder of such files (*.json); may be given several times",
        value="FILE|DIR", many=True, actions=("import",))
    to_kubeconfig: str = flag("to-kubeconfig", (STORE,), parsers.file, "",
        text="kube-apiserver that serves the group itself, as the user of the current context", value="FILE", actions=("export",))
    prune: bool = flag("prune", (STORE,), parsers.boolean, "false",
        text="delete objects there that the store does not have", switch=True, actions=("export",))
    dry_run: bool = flag("dry-run", (STORE,), parsers.boolean, "false",
        text="check everything and print what would be done, without writing", switch=True, actions=("import", "export", "restore"))
    only: tuple[str, ...] = flag("only", (STORE,), parsers.resources, "",
        text="resource of the store, as `sluice store info` prints it (GROUP/PLURAL), instead of all; may be given several times",
        value="RESOURCE", many=True, actions=("backup", "restore"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """The choice of what `sluice manifests` prints."""

    TOPIC: ClassVar[str] = topics.MANIFESTS

    deployment: bool = flag("deployment", (MANIFESTS,), parsers.boolean, "true",
        text="print the Deployment and the ConfigMaps of --crds, too; without them only APIServices and ClusterRoles, for a server that an "
        "overlay or the chart deploys", switch=True)
    ca_file: str = flag(CA_FILE, (MANIFESTS,), parsers.file, "",
        text="CAs of the serving certificate, for APIServices (default: cert-manager writes them)", value="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """The form of what `sluice version` and `sluice doctor` print."""

    output: str = flag("output", (VERSION, DOCTOR), Choice(("text", "json")), "text", short="o",
        text="form of the facts", value="text|json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The configuration file; empty without one."""

    TOPIC: ClassVar[str] = topics.GENERIC

    file: str = flag(config_file.CONFIG, SERVERS, parsers.file, "",
        text="YAML file of flags, each by its name without dashes; the command line and the environment win; changes of the file apply to "
        "log level and form, limits of requests, times of the shutdown and the audit policy, all else needs a restart", value="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds and counts. `watch_seconds` is the shortest life of a watch without a timeout; the longest is twice that."""

    TOPIC: ClassVar[str] = topics.GENERIC

    request_seconds: float = flag("request-timeout", SERVERS, parsers.seconds, "60s",
        text="longest time for a request other than a watch", value="DURATION")
    watch_seconds: float = flag("min-request-timeout", SERVERS, parsers.whole_seconds, "1800",
        text="shortest life of a watch without timeoutSeconds; the longest is twice that", value="SECONDS", live=True)
    fair: bool = flag(FAIRNESS, SERVERS, parsers.boolean, "true",
        text="let requests wait by priority and fairly; off: refuse them above the two limits", switch=True, topic=topics.FEATURES)
    in_flight: int = flag(MOST_READS, SERVERS, parsers.count, "400",
        text="reading requests served at a time; 0 is no limit. With priority and fairness, the sum of both limits is divided", value="N",
        live=True)
    mutating_in_flight: int = flag(MOST_WRITES, SERVERS, parsers.count, "200",
        text="writing requests served at a time; 0 is no limit", value="N", live=True)
    encoding_bytes: int = flag("encoding-cache-bytes", SERVERS, parsers.count, str(64 << 20),
        text="memory for cached encodings of objects: compressed, as Table rows, protobuf; 0 caches nothing", value="N")
    watches: int = MAX_WATCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """`delay_seconds`: everything is still served after the signal. `watch_seconds`: the ends of watches are spread over this time."""

    TOPIC: ClassVar[str] = topics.GENERIC

    delay_seconds: float = flag("shutdown-delay-duration", SERVERS, parsers.seconds, {DEV: "0s", SERVE: "10s"},
        text="how long everything is still served after a stop signal, for load balancers to notice", value="DURATION", live=True)
    watch_seconds: float = flag("shutdown-watch-termination-grace-period", SERVERS, parsers.seconds, {DEV: "0s", SERVE: "10s"},
        text="time over which the ends of open watches are spread", value="DURATION", live=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    TOPIC: ClassVar[str] = topics.LOGS

    format: str = flag("logging-format", EVERYWHERE, Choice(LOG_FORMATS), "text",
        text="form of log lines", value="text|json", live=True)
    verbosity: int = flag("v", EVERYWHERE, parsers.count, "0",
        text="how much to log: 3 adds each request, 4 and more details", value="LEVEL", live=True)
# fmt: on


class Live:
    """The settings that may change while the server runs: those of flags that are declared `live`. The others keep their first values.

    `exact` are the texts of all flags of the command by name, `shown` the same as people may see them. `read_again` reads all settings
    anew, from the command line, the environment and the configuration file.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        exact: Mapping[str, str],
        shown: Mapping[str, str],
        read_again: Callable[[], Reading],
    ) -> None:
        self.read_again = read_again
        self.exact = exact
        self.shown = shown
        self._use(values)

    def _use(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.limits = flags.section(Limits, values)
        self.shutdown = flags.section(Shutdown, values)
        self.logging = flags.section(Logging, values)
        self.audit = flags.section(Audit, values)

    def adopt(self, new: Live, names: Set[str]) -> None:
        """Take the values of some flags over."""
        self.exact = {name: (new if name in names else self).exact[name] for name in self.exact}
        self.shown = {name: (new if name in names else self).shown[name] for name in self.shown}
        self._use({name: (new if name in names else self)._values[name] for name in self._values})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration. `action` is set for `store` and `kinds` only, `file` for those of FILE_ACTIONS; `dev` has no meaning for
    the other commands."""

    command: str
    action: str
    file: str
    dev: Dev
    serving: Serving
    authentication: Authentication
    delegation: Delegation
    admission: Admission
    audit: Audit
    storage: Storage
    migration: Migration
    manifests: Manifests
    diagnosis: Diagnosis
    printed: Printed
    source: Source
    limits: Limits
    shutdown: Shutdown
    logging: Logging
    live: Live = field(compare=False)
    """The settings that may change while the server runs. Read them here where a change must apply."""

    @property
    def alone(self) -> bool:
        """Whether this server has the kinds that a cluster otherwise has. A new store has streams for them, since it may serve either."""
        return self.delegation.standalone if self.command in SERVERS else self.action == "init"

    @property
    def follows(self) -> bool:
        """Whether the kube-apiserver in front decides which release this server is."""
        return self.command == SERVE and self.serving.emulated is None and not self.delegation.standalone


FLAGS = tuple(flags.declared(Config))


# ---------------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings as far as they could be parsed, with all errors in flags and environment.

    Flags in `wrong` have the valid part of their value, or their default.
    """

    config: Config
    wrong: Set[str]
    errors: Sequence[str]


def parse(argv: Sequence[str], environ: Mapping[str, str], *, gates: Sequence[str] = ()) -> Config:
    """Return the configuration of this start. Raises ConfigError with every error in flags and environment."""
    reading = read(argv, environ, gates=gates)
    if reading.errors:
        raise ConfigError(reading.errors)
    return reading.config


def read(argv: Sequence[str], environ: Mapping[str, str], *, gates: Sequence[str] = ()) -> Reading:
    """Read the settings for a caller that finds further errors. `gates` are the lines about feature gates in the help.

    Raises ConfigError for an unknown command. `--help` and `--version` print and exit; so does an incomplete command.
    """
    words, unknown = command_line.split(argv, FLAGS, gates=gates)
    action: str = getattr(words, "action", "")
    if action == VERIFY:  # it opens no store
        words.__dict__["redis-url"] = words.__dict__["redis-url"] or "unix:///none"
    configured = _configured(words, environ)
    values = flags.values(FLAGS, words.command, words, environ, configured=configured)
    errors = [*configured.errors]
    errors += [command_line.unknown(word, words.command, FLAGS) for word in unknown] + values.errors
    errors += _overlaps(values)
    errors += _without_seats(values)
    if "redis-url" in values.given and not values.get("redis-url", " "):
        errors.append("--redis-url: the URL is empty")
    if not values.get(BUILTIN, True) and not _given(values, KINDS) and not _given(values, CRDS):
        errors.append(f"--no-{BUILTIN}: --{CRDS} or --{KINDS} is required")
    if words.command == SERVE:
        errors += _contradictions(values, environ)
    file: str = getattr(words, "file", None) or ""
    if words.command == STORE:
        errors += _place_errors(action, values)
        if action in FILE_ACTIONS and not file:
            errors.append(f"store {action}: a FILE is required, or -")
    if words.command == PACKAGES and not _given(values, KINDS) and not _given(values, CRDS):
        errors.append("kinds check: a PACKAGE or a FILE is required")
    complete = values.completed(FLAGS)
    live = Live(complete, exact=values.exact, shown=values.texts, read_again=partial(read, argv, environ))
    found = flags.section(Config, complete, command=words.command, action=action, file=file, live=live)
    errors += auditing.errors(found.audit, values.wrong)
    return Reading(_completed(found), values.wrong, errors)


def _configured(words: argparse.Namespace, environ: Mapping[str, str]) -> config_file.Found:
    """Read the configuration file that the command line or the environment names."""
    variable = next(flag.variable for flag in FLAGS if flag.name == config_file.CONFIG)
    path: str = getattr(words, config_file.CONFIG, None) or environ.get(variable, "")
    if words.command not in SERVERS or path in ("", flags.NO_VALUE):
        return config_file.Found()
    return config_file.read(path, FLAGS, words.command)


def _completed(config: Config) -> Config:
    """Complete values that follow from others."""
    dev, asked = config.dev, config.delegation
    # The text decides: the path "." is the same as that of an empty text.
    unnamed = config.command not in ASKING and not config.live.exact.get("kubeconfig")
    return replace(
        config,
        dev=replace(dev, kubeconfig=dev.data_dir / "kubeconfig") if unnamed else dev,
        delegation=replace(
            asked,
            standalone=config.command != SERVE or asked.standalone,
            authentication_kubeconfig=asked.authentication_kubeconfig or asked.authorization_kubeconfig,
            authorization_kubeconfig=asked.authorization_kubeconfig or asked.authentication_kubeconfig,
        ),
    )


def _overlaps(v: Mapping[str, Any]) -> Iterator[str]:
    """Yield an error for admission plugins that are both enabled and disabled."""
    both = sorted({*v.get(ENABLE_PLUGINS, ())} & {*v.get(DISABLE_PLUGINS, ())})
    if both:
        yield f"[{' '.join(both)}] in {ENABLE_PLUGINS} and {DISABLE_PLUGINS} overlapped"


def _without_seats(v: Mapping[str, Any]) -> Iterator[str]:
    """Yield an error for priority and fairness without anything to divide (kubernetes/apiserver `pkg/server/options/feature.go`)."""
    if v.get(FAIRNESS) and v.get(MOST_READS) == v.get(MOST_WRITES) == 0:
        yield (
            "invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add up to something positive "
            f"(or give --no-{FAIRNESS})"
        )


_PLACES = {"import": ("from-kubeconfig", "from-file"), "export": ("to-kubeconfig",)}
"""The actions of `store` that need exactly one of some flags."""


def _place_errors(action: str, v: flags.Values) -> Iterator[str]:
    """Yield errors about missing sources or destinations, and about flags that the action does not use."""
    offered = _PLACES.get(action, ())
    given = [name for name in offered if _given(v, name)]
    if offered and len(given) != 1:
        named = " or ".join(f"--{name}" for name in offered)
        yield (
            f"store {action}: one of {named} is required"
            if len(offered) > 1
            else f"store {action}: {named} is required"
        )
    for other in FLAGS:
        if other.actions and action not in other.actions and _given(v, other.name):
            yield f"--{other.name}: only for {' and '.join(f'store {used}' for used in other.actions)}"


def _given(v: flags.Values, name: str) -> bool:
    """Return whether a flag is given, not empty. An invalid one counts as given."""
    return name in v.wrong or (name in v.given and bool(v.get(name)))


IN_POD = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""The kubelet sets these in every container."""


def _contradictions(v: flags.Values, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield errors that no flag shows by itself."""
    kubeconfigs = [name for name in ("authentication-kubeconfig", "authorization-kubeconfig") if _given(v, name)]
    if v.get("standalone"):
        for name in kubeconfigs:
            yield f"--{name}: --standalone asks no cluster"
    elif not kubeconfigs and not all(environ.get(name) for name in IN_POD):
        yield "outside a pod --authentication-kubeconfig or --authorization-kubeconfig is required (--standalone does without a cluster)"
    if v.get("store-durability") == "all" and (url := v.get("redis-url")):
        address = store_address.parse(url)
        if not address.sentinels and not address.cluster:
            yield "--store-durability=all: one server does not tell how many replicas there are; name its sentinels in --redis-url"
    uid_headers = v.get("requestheader-uid-headers")
    if uid_headers and "x-remote-uid" not in uid_headers:
        yield "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"
