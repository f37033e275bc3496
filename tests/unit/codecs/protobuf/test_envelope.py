from __future__ import annotations

import pytest

from apiserver.codecs.protobuf import envelope
from apiserver.codecs.protobuf.envelope import Envelope
from apiserver.codecs.protobuf.messages import DecodeError


def test_an_envelope_says_what_is_in_it() -> None:
    data = envelope.envelope("v1", "Status", b"raw")
    assert data == b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x03raw\x1a\0\x22\0"
    assert envelope.opened(data) == Envelope(api_version="v1", kind="Status", raw=b"raw")


def test_the_parts_of_an_envelope_may_come_in_any_order_and_twice() -> None:
    data = b"k8s\0\x12\x01a\x0a\x03\x12\x01K\x12\x01b\x28\x01\x0a\x03\x0a\x01v"
    assert envelope.opened(data) == Envelope(api_version="v", kind="K", raw=b"b")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "empty data"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a", "unexpected EOF"),
        (b"k8s\0\x0a\x05\x0a", "unexpected EOF"),
        (b"k8s\0\x0a\x01\x0a", "unexpected EOF"),
        (b"k8s\0\x08\x01", "proto: wrong wireType = 0 for field TypeMeta"),
        (b"k8s\0\x0a\x02\x10\0", "proto: wrong wireType = 0 for field Kind"),
        (b"k8s\0\0\0", "proto: Unknown: illegal tag 0 (wire type 0)"),
        (b"k8s\0\x2c", "proto: Unknown: wiretype end group for non-group"),
    ],
)
def test_bytes_that_are_no_envelope_get_upstreams_message(data: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        envelope.opened(data)
    assert str(refused.value) == text
