"""`--tracing-config-file`: the collector, and the share of requests that are traced.

Upstream: kubernetes/component-base `tracing/api/v1/{types,config}.go`, kubernetes/apiserver `pkg/server/options/tracing.go`,
`pkg/apis/apiserver/{register,types}.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File
from typing import NamedTuple

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.codecs.objects import decoding
from apiserver.kinds import type_meta
from apiserver.kinds.type_meta import TypeMeta, Unfit, Unreadable
from apiserver.schema.types import Field, Integer, Presence, String, Struct
from apiserver.wire import documents
from kubecel.libraries import urls
from kubetext import quoting

GROUP, KIND = "apiserver.config.k8s.io", "TracingConfiguration"
VERSIONS = ("v1", "v1beta1", "v1alpha1")
MOST_RATE = 1_000_000
SCHEMES = ("dns", "unix", "unix-abstract")
NAMING = "https://github.com/grpc/grpc/blob/master/doc/naming.md"
_SCHEME = "pkg/runtime/scheme.go:111"
_INTERNAL = "__internal"
_OTHERS = {
    f"{GROUP}/v1": {
        "AdmissionConfiguration",
        "AuthenticationConfiguration",
        "AuthorizationConfiguration",
        "EncryptionConfiguration",
    },
    f"{GROUP}/v1beta1": {"AuthenticationConfiguration", "AuthorizationConfiguration"},
    f"{GROUP}/v1alpha1": {"AuthenticationConfiguration", "AuthorizationConfiguration"},
    "apiserver.k8s.io/v1beta1": {"EgressSelectorConfiguration"},
    "apiserver.k8s.io/v1alpha1": {"AdmissionConfiguration", "EgressSelectorConfiguration"},
}
"""Other kinds that upstream's reader knows."""
_WITH_OPTIONS = frozenset({f"{GROUP}/v1", f"{GROUP}/v1alpha1", "apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"})
"""The versions in which it also knows the kinds that each API has."""
_MISNAMED = ("v1", "EncryptionConfig")
"""Upstream's documentation once named EncryptionConfiguration so."""
_SHAPE = Struct(
    name=f"{KIND}.{KIND}",  # it is embedded in a struct of this name
    fields=(
        Field(name="endpoint", number=1, type=String(), presence=Presence.POINTER),
        Field(name="samplingRatePerMillion", number=2, type=Integer(bits=32), presence=Presence.POINTER),
    ),
)


class InvalidConfiguration(ValueError):
    """The file holds no valid configuration. The text is upstream's."""


class TracingConfiguration(NamedTuple):
    """`endpoint` is gRPC's name of the collector, empty for the default. `per_million` requests are traced whose senders do not decide."""

    endpoint: str = ""
    per_million: int = 0


def load(path: str) -> TracingConfiguration:
    """Load the file. Raises InvalidConfiguration."""
    try:
        raw = File(path).read_bytes()
    except OSError as error:
        operation = "read" if isinstance(error, IsADirectoryError) else "open"
        why = f"{operation} {path}: {(error.strerror or '').lower()}"
        raise _unread(f"unable to read tracing configuration from {quoting.go_quote(path)}: {why}") from None
    return read(raw)


def read(raw: bytes) -> TracingConfiguration:
    """Parse and validate a configuration. Raises InvalidConfiguration."""
    try:
        document = documents.parsed(raw, _SHAPE)
        _check_kind(type_meta.read(document.value), raw)
        found, against = document.decoded(_SHAPE)
    except (Unreadable, Unfit, decoding.DecodeError) as error:
        raise _unread(f"unable to decode tracing configuration data: {error}") from None
    if against:
        raise _unread(f"unable to decode tracing configuration data: strict decoding error: {', '.join(against)}")
    errors = [*_wrong_rate(found.get("samplingRatePerMillion")), *_wrong_endpoint(found.get("endpoint"))]
    if errors:
        texts = list(dict.fromkeys(map(str, errors)))
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        raise InvalidConfiguration(f"failed to validate tracing configuration: {text}")
    return TracingConfiguration(found.get("endpoint") or "", found.get("samplingRatePerMillion") or 0)


def _unread(why: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"failed to read tracing config: {why}")


def _check_kind(meta: TypeMeta, raw: bytes) -> None:
    """Accept the kind in each of its versions, also without kind and version, as upstream does. Raises Unfit."""
    meta = meta._replace(kind=meta.kind or KIND)
    if not meta.version and meta.group in ("", GROUP):
        meta = meta._replace(group=GROUP, version=_INTERNAL)
    if not meta.version:
        raise Unfit(f"Object 'apiVersion' is missing in '{raw.decode('utf-8', 'replace')}'")
    if meta.group == GROUP and meta.kind == KIND and meta.version in (*VERSIONS, _INTERNAL):
        return
    if (meta.api_version, meta.kind) == _MISNAMED:
        raise type_meta.unconvertible(meta._replace(kind="EncryptionConfiguration"), f"apiserver.{KIND}")
    in_every_version = meta.api_version in _WITH_OPTIONS and meta.kind in type_meta.IN_EVERY_VERSION
    others = _OTHERS.get(meta.api_version, ())
    if in_every_version or meta.kind in others or meta.kind in type_meta.UNVERSIONED:
        raise type_meta.unconvertible(meta, f"apiserver.{KIND}")
    if meta.version == _INTERNAL:
        raise type_meta.not_registered_internally(meta.kind, meta.group, _SCHEME)
    raise type_meta.not_registered(meta, _SCHEME)


def _wrong_rate(rate: int | None) -> Iterator[FieldError]:
    path = fieldpath.ROOT.child("samplingRatePerMillion")
    if rate is not None and rate < 0:
        yield fieldpath.invalid(path, rate, "sampling rate must be positive")
    if rate is not None and rate > MOST_RATE:
        yield fieldpath.invalid(path, rate, "sampling rate per million must be less than or equal to one million")


def _wrong_endpoint(endpoint: str | None) -> Iterator[FieldError]:
    if endpoint is None:
        return
    path = fieldpath.ROOT.child("endpoint")
    target = endpoint if "//" in endpoint else f"dns://{endpoint}"
    try:
        scheme = urls.scheme(target)
    except ValueError as error:
        yield fieldpath.invalid(path, target, str(error))
        return
    if scheme not in SCHEMES:
        why = f"unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See {NAMING}"
        yield fieldpath.invalid(path, target, why)
