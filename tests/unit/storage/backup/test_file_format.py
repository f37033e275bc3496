"""A backup that was cut off, changed or invented is refused, in bounded memory; every whole one is read as it was written."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
from collections.abc import Callable

import pytest

from apiserver.runtime.progress import Silent
from apiserver.storage.backup import file_format
from apiserver.storage.backup.file_format import BadBackup, Content, Kept, Reader, Writer, verify

VERSION = (1000 << 12) + 9
VALUES = [
    b'{"metadata":{"name":"a","uid":"u"},"n":1.0}',
    b'{"a":"\xc3\xa4\\ud800"}',
    b'{"a":1}\n{"a": 1 }\n',
    b'{"a" : 1e400}',
    b"no JSON",
    b'{"a":1',
    b'{"a":"\xff"}',
    b'{"a":1}\r',
    b'{"a":1},"key":"another"',
    b"\x00\n\n",
    b'{"a":' * 100_000,
]


def made(*values: bytes, resource: str = "g/things") -> bytes:
    out = io.BytesIO()
    writer = Writer(out, sluice="1.2.3", created="2026-11-27T00:00:00Z", resources=[resource])
    writer.begin(Content(resource, VERSION, 1000, "2", len(values), sum(map(len, values))))
    for at, value in enumerate(values):
        writer.add(Kept(f"default/{at}", VERSION - at, "uid", value))
    writer.end()
    writer.finish()
    return out.getvalue()


def read(data: bytes) -> list[Content | Kept]:
    return list(Reader(io.BytesIO(data)).parts())


def refusal(data: bytes) -> str:
    with pytest.raises(BadBackup) as raised:
        verify(io.BytesIO(data), Silent())
    return str(raised.value)


def test_every_value_is_read_as_it_was_written() -> None:
    content, *objects = read(made(*VALUES))
    assert isinstance(content, Content)
    assert content.objects == len(VALUES)
    assert [each.value for each in objects if isinstance(each, Kept)] == VALUES


def test_random_bytes_are_read_as_they_were_written() -> None:
    rng = random.Random(3)
    values = [bytes(rng.choices(b'{}[]",:\\\n\r a1\xff', k=rng.randint(1, 30))) for _ in range(2000)]
    values += [b"{" + value for value in values]
    assert [each.value for each in read(made(*values))[1:] if isinstance(each, Kept)] == values


def test_other_programs_read_a_backup_as_json_lines() -> None:
    lines = [json.loads(line) for line in gzip.decompress(made(VALUES[0])).splitlines()]
    assert [line.get("format") or line.get("resource") or line.get("key") or line.get("end") for line in lines] == [
        "sluice-backup", "g/things", "default/0", "g/things", "backup",
    ]  # fmt: skip
    assert lines[2]["value"] == json.loads(VALUES[0])


def test_every_truncated_backup_is_refused() -> None:
    data = made(*VALUES[:3])
    for length in range(len(data)):
        assert refusal(data[:length])
    assert verify(io.BytesIO(data), Silent()).objects == 3


def test_every_changed_byte_is_noticed() -> None:
    text = bytearray(gzip.decompress(made(*VALUES[:3])))
    for at in range(len(text)):
        changed = bytearray(text)
        changed[at] ^= 1
        assert refusal(gzip.compress(bytes(changed))), at
    assert verify(io.BytesIO(gzip.compress(bytes(text))), Silent()).objects == 3


def test_every_missing_or_repeated_line_is_noticed() -> None:
    lines = gzip.decompress(made(*VALUES[:3])).splitlines(keepends=True)
    for at in range(len(lines)):
        assert refusal(gzip.compress(b"".join(lines[:at] + lines[at + 1 :])))
        assert refusal(gzip.compress(b"".join(lines[: at + 1] + lines[at:])))


def test_data_behind_the_end_are_refused() -> None:
    data = made(b"{}")
    for more in (b"x", data, gzip.compress(b"")):
        assert "follows the end" in refusal(data + more)
    assert "follows the end" in refusal(gzip.compress(gzip.decompress(data) + b"{}\n"))


@pytest.mark.parametrize("data", [b"", b"plain text", b"{}\n", b"PK\x03\x04", b"\x1f\x8b", b"\x1f\x8b\x08" + bytes(50)])
def test_file_that_is_no_backup_is_refused(data: bytes) -> None:
    assert refusal(data)


def forged(change: Callable[[list[dict[str, object]]], None]) -> bytes:
    """A backup with right checksums, as somebody writes it who knows the format."""
    lines = [json.loads(line) for line in gzip.decompress(made(b'{"a":1}', b'{"a":2}')).splitlines()]
    change(lines)
    out, part = b"", b""
    for line in lines:
        if "sha256" in line:
            line["sha256"] = hashlib.sha256(out if line["end"] == "backup" else part).hexdigest()
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        out += text
        part = text if "resource" in line else part + text
    return gzip.compress(out)


def setting(line: int, name: str, to: object) -> Callable[[list[dict[str, object]]], None]:
    def change(lines: list[dict[str, object]]) -> None:
        lines[line][name] = to

    return change


def test_forged_backup_with_right_checksums_is_read() -> None:
    """The tests below prove something."""
    assert len(read(forged(lambda lines: None))) == 3


def test_unknown_members_of_later_versions_are_ignored() -> None:
    assert len(read(forged(setting(2, "later", {"a": 1})))) == 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (setting(0, "formatVersion", 2), "use the version of Sluice that made it ('1.2.3')"),
        (setting(0, "format", "other"), "not a backup"),
        (setting(0, "resources", ["g/things", "g/things"]), "twice"),
        (setting(1, "resource", "{sl:x}:o"), "does not begin the resource"),
        (setting(1, "objects", -1), "counts objects"),
        (setting(1, "objects", 10**15), "counts objects"),
        (setting(1, "objects", 3), "not an object"),
        (setting(1, "bytes", 3), "bytes of values"),
        (setting(1, "version", "x"), "no version"),
        (setting(1, "version", "9" * 30), "no version"),
        (setting(1, "epoch", 1), "epoch"),
        (setting(2, "version", str(VERSION + 1)), "above that of g/things"),
        (setting(2, "key", "default/1"), "repeats the key default/1"),
        (setting(2, "key", ""), "not an object"),
        (setting(2, "key", "k" * 5000), "not an object"),
        (setting(2, "key", 7), "no line of a backup"),
        (setting(2, "base64", "*"), "not base64"),
        (setting(4, "objects", 1), "not the end of g/things"),
        (setting(5, "objects", 1), "counts other"),
        (setting(5, "resources", 2), "counts other"),
    ],
)
def test_forged_backup_is_refused_although_its_checksums_are_right(
    change: Callable[[list[dict[str, object]]], None], told: str
) -> None:
    assert told in refusal(forged(change))


def test_hostile_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_format, "LINE_BYTES", 1 << 20)
    assert "a line has more than 1 MiB" in refusal(gzip.compress(bytes(1 << 26)))


def test_hostile_nesting_is_refused() -> None:
    assert refusal(gzip.compress(b'{"value":' + b"[" * 1_000_000 + b"\n"))
