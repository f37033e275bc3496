"""Translate storage errors into API errors. Storage knows no kinds, and clients know no streams.

Upstream: kubernetes/apiserver `pkg/storage/errors/storage.go`, `pkg/storage/cacher/{ready,delegator}.go`.
"""

from __future__ import annotations

import math
import random

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import RequestInfo
from apiserver.storage.errors import Initializing, NoRoom, OutcomeUnknown, TooBig, Unavailable
from apiserver.watchcache.entry import Key
from apiserver.watchcache.errors import Corrupt, Future

READS = frozenset({"get", "list", "watch"})
UNAVAILABLE = "the store of this resource is not available, please try again"
NO_ROOM = "the disk of the store is full: the server's log and /readyz/store name its folder; please try again when there is room"
SHARPNESS, MOST_SECONDS = 0.06, 30
"""How fast Retry-After grows while memory is being filled, and its maximum (upstream's `ready.go`)."""
SPREAD = 2
"""Clients that are refused at the same moment get times up to this factor longer, so that they do not all come back together."""


class translated:  # noqa: N801 - used as a function; a context manager of contextlib would cost every request five times as much
    """Translate storage errors that mean the same for every verb. The verbs handle the others (KeyExists, Moved, Compacted)."""

    __slots__ = ("_info",)

    def __init__(self, info: RequestInfo) -> None:
        self._info = info

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and (translation := _translated(self._info, error)) is not None:
            raise translation from error


def _translated(info: RequestInfo, error: BaseException) -> StatusError | None:
    match error:
        case Corrupt():
            return corrupt(info, error.key)
        case Future():
            return errors.too_large_resource_version(error.revision, error.current)
        case Initializing():
            return _initializing(info, error)
        case NoRoom():
            return _unavailable(info, NO_ROOM)
        case Unavailable():
            return _unavailable(info)
        case OutcomeUnknown():
            return errors.timeout("request did not complete within requested timeout - context deadline exceeded")
        case TooBig():
            return errors.raw("etcdserver: request is too large")
    return None


def corrupt(info: RequestInfo, key: Key) -> StatusError:
    """Return the error for a key whose stored value cannot be decoded."""
    return errors.internal(corrupt_text(info, key))


def corrupt_text(info: RequestInfo, key: Key) -> str:
    where = f"Key: {shown_key(info, key)}, ResourceVersion: 0"
    return f"StorageError: corrupt object, Code: 7, {where}, AdditionalErrorMsg: object not decodable"


def shown_key(info: RequestInfo, key: Key) -> str:
    """Return the storage key of an object as errors show it."""
    return f"/{info.group}/{info.resource}/{key}"


def _initializing(info: RequestInfo, e: Initializing) -> StatusError:
    if info.verb not in READS:
        return _unavailable(info)
    least = min(max(int(math.exp(min(SHARPNESS * e.seconds, 10))), 1), MOST_SECONDS)
    return errors.too_many_requests(str(e), retry_after=random.randint(least, SPREAD * least + 1))


def _unavailable(info: RequestInfo, text: str = UNAVAILABLE) -> StatusError:
    """Return 503, or 429 for a watch. A 503 makes informers list again; after a 429 they retry the same watch."""
    if info.verb == "watch":
        return errors.too_many_requests(text, retry_after=1)
    return errors.service_unavailable(text)
