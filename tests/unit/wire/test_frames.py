from __future__ import annotations

from apiserver.wire import frames


def test_an_event_is_a_line_of_json() -> None:
    assert frames.event("ADDED", b'{"a":1}') == b'{"type":"ADDED","object":{"a":1}}\n'


def test_a_chunk_states_its_length_in_hexadecimal() -> None:
    assert frames.chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
