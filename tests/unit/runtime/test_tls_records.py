"""How many TLS records a peer may send that carry no data, however they are cut into pieces."""

from __future__ import annotations

import pytest

from apiserver.runtime.tls_records import HANDSHAKE_BYTES, MOST_IDLE, BadGroup, Flood, NoTLS, Records, Renegotiation
from tests.fixtures import hellos

EMPTY = hellos.record(hellos.APPLICATION_DATA, bytes(17))


def opened() -> Records:
    records = Records()
    records.open = True
    return records


def fed(records: Records, data: bytes, *, useful: bool) -> int:
    """How many bytes were taken before the flood was noticed."""
    at = 0
    while at < len(data):
        at = records.take(data, at)
        try:
            records.judge(data=useful)
        except Flood:
            return at
    return at


@pytest.mark.parametrize("size", [1, 2, 5, 7, 22, 23, 100, 10_000])
def test_seventeenth_record_without_data_is_a_flood_however_it_is_cut(size: int) -> None:
    records = opened()
    stream = EMPTY * MOST_IDLE
    for at in range(0, len(stream), size):
        assert fed(records, stream[at : at + size], useful=False) == len(stream[at : at + size])
    for at in range(0, len(EMPTY) - size, size):
        records.take(EMPTY[at : at + size])
        records.judge(data=False)
    records.take(EMPTY[len(EMPTY) - 1 - (len(EMPTY) - 1) % size :])
    with pytest.raises(Flood, match="too many non-advancing records"):
        records.judge(data=False)


def test_no_more_records_are_taken_at_once_than_may_pass_without_data() -> None:
    records = opened()
    assert records.take(EMPTY * 1000) == len(EMPTY) * (MOST_IDLE + 1)
    with pytest.raises(Flood):
        records.judge(data=False)


def test_data_starts_the_count_anew() -> None:
    records = opened()
    for _ in range(10):
        assert fed(records, EMPTY * MOST_IDLE, useful=False) == len(EMPTY) * MOST_IDLE
        records.judge(data=True)


def test_empty_bodies_count_as_records() -> None:
    records = opened()
    assert fed(records, hellos.record(hellos.APPLICATION_DATA, b"") * 100, useful=False) == 5 * (MOST_IDLE + 1)


@pytest.mark.parametrize("size", [1, 3, 5, 6, 1000])
def test_handshake_record_on_an_open_connection_is_a_renegotiation(size: int) -> None:
    records = opened()
    stream = EMPTY + hellos.record(hellos.HANDSHAKE, bytes(40))

    def give() -> None:
        for at in range(0, len(stream), size):
            piece, end = stream[at : at + size], 0
            while end < len(piece):
                end = records.take(piece, end)
                records.judge(data=True)

    with pytest.raises(Renegotiation):
        give()


def test_handshake_is_taken_record_by_record_up_to_a_number_of_bytes() -> None:
    records, stream = Records(), hellos.record(hellos.HANDSHAKE, bytes(1000)) * 100
    at = 0
    for number in range(1, HANDSHAKE_BYTES // 1005 + 1):
        at = records.take(stream, at)
        assert at == 1005 * number
    with pytest.raises(Flood, match="handshake too long"):
        records.take(stream, at)


@pytest.mark.parametrize("size", [1, 50, 16384])
@pytest.mark.parametrize("retry", [True, False])
def test_server_that_chooses_a_finite_field_is_refused(size: int, retry: bool) -> None:
    def take(group: int) -> None:
        records, at = Records(hello=True), 0
        stream = hellos.records(hellos.HANDSHAKE, hellos.server_hello(group, retry=retry), size)
        while at < len(stream):
            at = records.take(stream, at)

    take(hellos.X25519)
    for group in (hellos.FFDHE2048, hellos.FFDHE8192):
        with pytest.raises(BadGroup):
            take(group)


@pytest.mark.parametrize("length", range(0, 120, 7))
def test_hello_that_is_cut_off_inside_is_left_to_openssl(length: int) -> None:
    whole = hellos.server_hello(hellos.X25519, retry=False)[4:][:length]
    Records(hello=True).take(hellos.record(hellos.HANDSHAKE, b"\x02" + len(whole).to_bytes(3, "big") + whole))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "http: server gave HTTP response to HTTPS client"),
        (b"hello world", "first record does not look like a TLS handshake"),
        (b"\x16\x02\x00\x00\x01\x00", "first record does not look like a TLS handshake"),
    ],
)
@pytest.mark.parametrize("step", [1, 100])
def test_server_that_speaks_no_tls_is_reported_by_its_first_bytes(data: bytes, words: str, step: int) -> None:
    records = Records(hello=True)
    with pytest.raises(NoTLS) as refused:
        [records.take(data[at : at + step]) for at in range(0, len(data), step)]
    assert str(refused.value) == words
