import json
import zlib

import pytest

from bench import forms


def enveloped(message: bytes) -> bytes:
    """In field 2 of `Unknown`, behind an empty TypeMeta."""
    assert len(message) < 128
    return b"k8s\0\x0a\0\x12" + bytes([len(message)]) + message


LIST = json.dumps({"kind": "ResourceSliceList", "items": [{}, {}]}).encode()
TABLE = json.dumps({"kind": "Table", "rows": [{}, {}, {}]}).encode()
MESSAGE = enveloped(b"\x0a\x02\x0a\0" + 4 * b"\x12\x03\x0a\x01a")


def test_objects_of_a_list_are_counted_in_every_form() -> None:
    assert forms.objects(forms.WHOLE, LIST) == 2
    assert forms.objects(forms.TABLE, TABLE) == 3
    assert forms.objects(forms.MESSAGES, MESSAGE) == 4
    assert forms.objects(forms.WHOLE, zlib.compress(LIST, wbits=31), gzip=True) == 2


@pytest.mark.parametrize(
    ("form", "body", "gzip"),
    [
        (forms.WHOLE, LIST[:-1], False),
        (forms.MESSAGES, MESSAGE[:-1], False),
        (forms.MESSAGES, LIST, False),
        (forms.WHOLE, zlib.compress(LIST, wbits=31)[:-1], True),
        (forms.WHOLE, zlib.compress(LIST, wbits=31) * 2, True),
    ],
)
def test_truncated_or_malformed_list_has_no_count(form: forms.Form, body: bytes, *, gzip: bool) -> None:
    with pytest.raises(ValueError, match=r"Unterminated|delimiter|cut off|magic|one whole gzip"):
        forms.objects(form, body, gzip=gzip)


def chunked(*parts: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def test_initial_events_are_counted_up_to_their_bookmark() -> None:
    lines = [json.dumps({"type": each}).encode() + b"\n" for each in ("ADDED", "ADDED", "BOOKMARK")]
    assert forms.events(forms.WHOLE, chunked(lines[0] + lines[1][:5], lines[1][5:], lines[2])) == 2
    frames = [bytes([0, 0, 0, len(kind) + 2, 0x0A, len(kind)]) + kind for kind in (b"ADDED", b"BOOKMARK")]
    assert forms.events(forms.MESSAGES, chunked(*frames)) == 1
    with pytest.raises(ValueError, match="ended with"):
        forms.events(forms.WHOLE, chunked(*lines[:2]))
