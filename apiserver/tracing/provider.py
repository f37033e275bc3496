"""Record spans with OpenTelemetry's SDK, and export them over OTLP and gRPC. Only this module imports the SDK.

The extra `tracing` installs it. Spans are exported in a thread of the SDK's, from a queue of 2,048 spans. A full queue loses spans; a
request never waits for it.
Upstream: kubernetes/component-base `tracing/{tracing,utils}.go`, kubernetes/apiserver `pkg/server/options/tracing.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from apiserver.runtime.spans import Attributes, Kind, MakeAttributes, Remote, Span, Value
from apiserver.tracing import propagation

SERVICE = "apiserver"
MOST_CHARACTERS = 1024
"""Characters of an attribute. Clients choose paths, queries and headers, and the queue must not hold megabytes of each."""
PER_MILLION = 1_000_000
_REQUESTS = "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
_KINDS = {
    Kind.INTERNAL: (SpanKind.INTERNAL, "k8s.io/component-base/tracing"),
    Kind.FILTER: (SpanKind.INTERNAL, "k8s.op/apiserver/pkg/endpoints/filterlatency"),
    Kind.SERVER: (SpanKind.SERVER, _REQUESTS),
    Kind.CLIENT: (SpanKind.CLIENT, _REQUESTS),
    Kind.STORE: (SpanKind.CLIENT, "apiserver/storage"),
}
"""OpenTelemetry's kind of a span, and its instrumentation scope, which is upstream's: queries find the spans of both servers."""
_NAMED_SERVER = re.compile(r"dns://[^/]*/(.+)")


class Provider:
    """A tracer of this process: a `runtime.spans.Tracer`."""

    def __init__(self, *, endpoint: str, per_million: int, instance: str) -> None:
        """`endpoint` is gRPC's name of the collector; empty: that of the environment, else localhost:4317."""
        others = TraceIdRatioBased(per_million / PER_MILLION) if per_million > 0 else ALWAYS_OFF
        named = Resource({"service.name": SERVICE, "service.instance.id": instance})
        self._samples = per_million > 0
        self._provider = TracerProvider(
            sampler=ParentBased(others),
            resource=OTELResourceDetector().detect().merge(named),
            span_limits=SpanLimits(max_attribute_length=MOST_CHARACTERS),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=_target(endpoint), insecure=True))
        )
        self._tracers = {
            kind: (self._provider.get_tracer(scope), otel_kind) for kind, (otel_kind, scope) in _KINDS.items()
        }

    def root(
        self, name: str, attributes: MakeAttributes, kind: Kind, *, audit_id: str, parent: Remote | None = None
    ) -> Span | None:
        if parent is None:
            if not self._samples:
                return None
            return self._begun(name, attributes, kind, audit_id=audit_id)
        if not parent.flags & propagation.SAMPLED:
            return None
        above = trace.set_span_in_context(NonRecordingSpan(_context(parent)), Context())
        return self._begun(name, attributes, kind, audit_id=audit_id, above=above, baggage=parent.baggage)

    def linked(self, name: str, attributes: MakeAttributes, kind: Kind, *, audit_id: str, link: Remote) -> Span | None:
        if not self._samples:
            return None
        links = [trace.Link(_context(link))]
        return self._begun(name, attributes, kind, audit_id=audit_id, links=links, baggage=link.baggage)

    def close(self) -> None:
        self._provider.shutdown()

    def _begun(
        self,
        name: str,
        attributes: MakeAttributes,
        kind: Kind,
        *,
        audit_id: str,
        above: Context | None = None,
        links: Sequence[trace.Link] = (),
        baggage: str = "",
    ) -> Span | None:
        tracer, otel_kind = self._tracers[kind]
        span = tracer.start_span(name, context=above or Context(), kind=otel_kind, links=links)
        if not span.is_recording():
            return None
        span.set_attributes(attributes())
        return Recorded(span, self, _Request(audit_id, baggage))

    def inside(self, span: trace.Span, name: str, attributes: Attributes, kind: Kind) -> trace.Span:
        """Begin a span inside another."""
        above = trace.set_span_in_context(span, Context())
        tracer, otel_kind = self._tracers[kind]
        return tracer.start_span(name, context=above, kind=otel_kind, attributes=attributes)


class _Request:
    """The common part of the spans of one request. `over`: the outermost has ended."""

    __slots__ = ("audit_id", "baggage", "over")

    def __init__(self, audit_id: str, baggage: str) -> None:
        self.audit_id = audit_id
        self.baggage = baggage
        self.over = False


class Recorded(Span):
    """A span that is exported when it has ended."""

    __slots__ = ("_outermost", "_provider", "_request", "_span")

    def __init__(self, span: trace.Span, provider: Provider, request: _Request, *, outermost: bool = True) -> None:
        super().__init__()
        self._span = span
        self._provider = provider
        self._request = request
        self._outermost = outermost

    @property
    def recording(self) -> bool:
        """A task that the request began may outlive it: its spans would have no parent to be shown in."""
        return not self._request.over

    @property
    def audit_id(self) -> str:
        return self._request.audit_id

    def headers(self) -> Mapping[str, str]:
        if self._request.over:
            return {}
        own = self._span.get_span_context()
        state = own.trace_state.to_header()
        return propagation.written(
            Remote(own.trace_id, own.span_id, int(own.trace_flags), state, self._request.baggage)
        )

    def child(self, name: str, attributes: Attributes, kind: Kind) -> Span:
        return Recorded(
            self._provider.inside(self._span, name, attributes, kind), self._provider, self._request, outermost=False
        )

    def event(self, name: str, **attributes: Value) -> None:
        self._span.add_event(name, attributes)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def fail(self, text: str = "") -> None:
        self._span.set_status(Status(StatusCode.ERROR, text or None))

    def end(self) -> None:
        if self._outermost:
            self._request.over = True
        self._span.end()


def _context(remote: Remote) -> SpanContext:
    state = TraceState.from_header([remote.state]) if remote.state else None
    return SpanContext(
        remote.trace_id, remote.span_id, is_remote=True, trace_flags=TraceFlags(remote.flags), trace_state=state
    )


def _target(endpoint: str) -> str | None:
    """Return the endpoint as the exporter takes it. It takes a name server for the collector; the system's is asked then."""
    named = _NAMED_SERVER.fullmatch(endpoint)
    return named[1] if named else endpoint or None
