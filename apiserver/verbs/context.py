"""Hold what a verb may use: the services of this process, and the request that it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from apiserver.admission.core.chain import Chain
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.conversion.converter import Conversions, Converter
from apiserver.fieldmanager.manager import FieldManagers
from apiserver.kinds import type_meta
from apiserver.kinds.served import Kinds
from apiserver.listcache.encoding import EncodingCache
from apiserver.runtime import spans
from apiserver.runtime.spans import Attributes
from apiserver.runtime.workers import Workers
from apiserver.schema.context import Compiler
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Resource
from apiserver.storage.store import Store
from apiserver.wire.forms.choice import Forms
from apiserver.wire.response import Exchange

if TYPE_CHECKING:
    from apiserver.verbs.patch_type import PatchType


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that outlives a request. Clocks, randomness and ids are here so that tests can fix them.

    * `now` returns seconds since the epoch; `choose` returns one character of a text.
    * `watch_seconds` draws the timeout of a watch that names none.
    * `workers` run long computations in threads; `encodings` caches encodings; `forms` has the forms of answers.
    * `namespace_labels` returns None for an unknown namespace. `newest_labels` reads them anew, and raises ClusterError.
    * `patch_types` are by media type.
    * `allowed` raises if the user may not do something beyond the authorized request. `why_not` returns the text of that refusal, or None;
      an authorizer that cannot be reached counts as a refusal. `decide` is the authorizer itself, which raises ClusterError.
    * `managers` keep managedFields. `cel` compiles the expressions of objects.
    * `conversions` call the webhooks of definitions.
    """

    kinds: Kinds
    stores: Mapping[str, Store]
    now: Callable[[], float]
    choose: Callable[[str], str]
    new_uid: Callable[[], str]
    watch_seconds: Callable[[], float]
    workers: Workers
    encodings: EncodingCache
    forms: Forms
    admission: Chain
    managers: FieldManagers
    patch_types: Mapping[str, PatchType]
    allowed: Callable[[User, RequestInfo], Awaitable[None]]
    why_not: Callable[[User, RequestInfo], Awaitable[str | None]]
    decide: Callable[[User, RequestInfo], Awaitable[Decision]]
    namespace_labels: Callable[[str], Mapping[str, str] | None]
    newest_labels: Callable[[str], Awaitable[Mapping[str, str] | None]]
    conversions: Conversions
    gates: Gates = field(default_factory=Gates)
    cel: Compiler | None = None


class Call(NamedTuple):
    """One request, parsed, authenticated and authorized. With a `converter`, `store` may have objects in other versions than that of the
    request."""

    info: RequestInfo
    user: User
    resource: Resource
    store: Store
    exchange: Exchange
    converter: Converter | None = None

    def converter_of_view(self) -> Converter | None:
        """Return the converter of a list of a view that the caller has; None if every object of it is in the version of the request."""
        converter = self.converter
        return converter if converter is not None and converter.needed(self.store.versions) else None

    def storing(self, key: str) -> Attributes:
        """Return the attributes of the span of a write."""
        return {
            "audit-id": spans.audit_id(),
            "key": f"/{self.resource.plural}/{key}",
            "type": f"*{type_meta.hub_type(self.resource)}",
            "group": self.resource.group,
            "resource": self.resource.plural,
        }

    def answering(self) -> Attributes:
        """Return the attributes of the span of an answer."""
        info = self.info
        return {"audit-id": spans.audit_id(), "method": info.method, "url": info.path, "protocol": "HTTP/1.1"}
