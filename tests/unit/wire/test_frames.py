from __future__ import annotations

from apiserver.wire import frames


def test_a_chunk_states_its_length_in_hexadecimal() -> None:
    assert frames.chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
