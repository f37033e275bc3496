"""Formats of texts. Every answer was seen from kube-apiserver 1.36.3 and 1.37.2."""

from __future__ import annotations

import itertools

import pytest

from apiserver.structural import formats
from tests.fixtures.cases import each_case

ACCEPTED = {
    "hostname": ["a", "a-", "a-b", "a.bc", "exa-mple.com", "münchen.de", "a$b", "1", "9gag.com"],
    "ipv4": ["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4", "1:2:3:4:5::1.2.3.4"],
    "ipv6": ["::", "1::", "::1.2.3.4", "1:2:3:4:5:6:7::"],
    "cidr": ["010.0.0.0/8", "10.0.0.1/08", "::/0", "::ffff:1.2.3.4/120"],
    "mac": ["00:00:5e:00:53:01", "0000.5e00.5301", "00005e005301"],
    "uuid": ["123E4567E89B12D3A456426614174000"],
    "uuid4": ["123e4567-e89b-42d3-a456-426614174000"],
    "isbn": ["0321751043", "978-0321751041", "080442957X"],
    "creditcard": ["4111-1111-1111-1111", "abc4111111111111111"],
    "ssn": ["123-45-6789", "123 45 6789"],
    "hexcolor": ["#fff", "FFFFFF"],
    "hex-color": ["fff"],
    "rgbcolor": ["rgb( 255 , 0 , 10 )"],
    "byte": ["YQ==", "YWI=", "YWJj"],
    "password": [""],
    "date": ["0000-01-01", "2000-02-29"],
    "date-time": ["2020-01-01t00:00:00z", "2020-01-01T00:00:00,5Z", "2020-01-01T00:00:00+99:99"],
    "duration": ["1 day", "2 weeks", "1d", "0", "-1h", "1sec2foo", "abc 1 s"],
    "bsonobjectid": ["507F1F77BCF86CD799439011"],
    "uri": ["/a/b", "*", "http://a.b/c", "urn:x:y"],
    "email": ["a@b", "A <a@b.c>", "g: a@b;", "a@[::1]", '"a b"@c', "a@b (x)", "=?utf-8?q?x?= <a@b>"],
    "k8s-short-name": ["a-1"],
    "k8s-long-name": ["a.b-c"],
}
REFUSED = {
    "hostname": ["a.b", "a.b.c", "A.B", "a.b.cd.", "my-host", "a_b", "-a.com", "a" * 64],
    "ipv4": ["1.2.3", "256.1.1.1", "::1"],
    "ipv6": ["1.2.3.4", "fe80::1%eth0", "::ffff:01.2.3.4", ":::"],
    "cidr": ["10.0.0.0", "10.0.0.0/33", "::/129", "1.2.3.4/+1"],
    "mac": ["00:00:5e-00-53-01", "0:0:5e:0:53:1"],
    "uuid": ["123e4567-e89b-5"],
    "uuid4": ["123e4567-e89b-42d3-7456-426614174000"],
    "isbn": ["080442957x", "9780321751042"],
    "creditcard": ["4111 1111 1111 1112"],
    "ssn": ["123456789", "123-456789"],
    "hexcolor": ["ffff", "#fff\n"],
    "rgbcolor": ["RGB(1,2,3)", "rgb(256,0,0)", "rgb(1,2,3) "],
    "byte": ["", "YQ", "====", "_-__"],
    "date": ["2020-02-30", "2020-1-1", "1900-02-29"],
    "date-time": ["2020-01-01T24:00:00Z", "2020-01-01T00:00:00", "2020-01-01 00:00:00Z"],
    "duration": ["", "1", "1x", "9223372036854775808s"],
    "bsonobjectid": ["507f1f77bcf86cd79943901"],
    "uri": ["", "a/b", "http://a b"],
    "email": ["a@", "a@b.", "a..b@c", "g: a@b, c@d;", "a@b (x", "=?foo?q?x?= <a@b>", '""@c'],
    "k8s-short-name": ["A1", "a1-", "a" * 64],
    "k8s-long-name": ["a..b", "a" * 254],
}


@each_case(("name", "text"), [(name, text) for name, texts in ACCEPTED.items() for text in texts])
def test_format_accepts_a_text(name: str, text: str) -> None:
    check = formats.of(name)
    assert check is not None
    assert check(text)


@each_case(("name", "text"), [(name, text) for name, texts in REFUSED.items() for text in texts])
def test_format_refuses_a_text(name: str, text: str) -> None:
    check = formats.of(name)
    assert check is not None
    assert not check(text)


@each_case(("name", "character"), itertools.product(ACCEPTED, ["1", " ", "a", "(", '"', ":", ".", "=", "1:", "\\"]))
def test_formats_read_long_texts(name: str, character: str) -> None:
    check = formats.of(name)
    assert check is not None
    check(character * 300_000)


@pytest.mark.parametrize(
    ("name", "types", "applied"),
    [
        ("int32", ("integer",), "int32"),
        ("int32", ("string",), ""),
        ("date", ("integer",), ""),
        ("date", ("integer", "string"), "date"),
        ("date-time", (), "date-time"),
        ("float", ("number",), "float"),
        ("uint8", ("integer",), ""),
        ("date", ("object",), ""),
    ],
)
def test_formats_apply_to_their_types(name: str, types: tuple[str, ...], applied: str) -> None:
    assert formats.applied(name, types) == applied
