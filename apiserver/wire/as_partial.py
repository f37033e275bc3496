"""Objects reduced to their metadata. Copies bytes; decodes nothing but the place where metadata ends."""

from __future__ import annotations

import msgspec

from apiserver.wire import negotiation
from apiserver.wire.negotiation import Target


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw


_DECODER = msgspec.json.Decoder(_Metadata)


def metadata_of(body: bytes) -> bytes:
    """The JSON of an object's metadata."""
    return bytes(_DECODER.decode(body).metadata)


def partial(target: Target, body: bytes) -> bytes:
    """The object as PartialObjectMetadata in the target's version."""
    return b'{"kind":"%b","apiVersion":"%b","metadata":%b}' % (
        negotiation.PARTIAL.encode(),
        target.api_version.encode(),
        metadata_of(body),
    )
