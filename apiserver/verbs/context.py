"""What a verb may touch: the services of this process, and the one request it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from apiserver.admission.core.chain import Chain
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.fieldmanager.manager import FieldManagers
from apiserver.kinds.served import Kinds
from apiserver.listcache.encoding import EncodingCache
from apiserver.runtime.fairqueue import Turnstile
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
    """Everything that outlives a request. Clocks, randomness and ids are here so that tests can hold them still.

    `now` is in seconds since the epoch; `choose` picks one character of a text; `watch_seconds` draws the life of a watch
    that names none; `workers` make what would hold the loop, `encodings` remembers what was made, `forms` are those of answers;
    `namespace_labels` are None where the namespace is not known, `newest_labels` asks for them and raises ClusterError. `patch_types` are
    by media type. `allowed` raises when the user may not do something beyond the request that was authorized; `why_not` tells what it
    would say, None for nothing, and takes who cannot be asked for a no; `decide` is the authorizer itself, which raises ClusterError.
    `managers` keep managedFields. `cel` judges the expressions of objects. `sending` is where watchers stand that are to be sent much.
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
    sending: Turnstile
    gates: Gates = field(default_factory=Gates)
    cel: Compiler | None = None


class Call(NamedTuple):
    """One request, parsed, authenticated and authorized."""

    info: RequestInfo
    user: User
    resource: Resource
    store: Store
    exchange: Exchange
