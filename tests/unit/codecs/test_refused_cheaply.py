"""The work of refusing a body: what the server builds before the refusal, and that quick checks agree with the slow ones."""

import functools
import gc
import json
import random
import re
import sys
from collections.abc import Callable

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import json_syntax
from apiserver.codecs.yaml import as_yaml, yaml_scalars
from kubetext import names, utf8

MANY = 70_000


@pytest.mark.parametrize(
    "text",
    [
        "x: [" + "a," * MANY + "a]",
        "x: {" + ",".join(f"k{n}: v" for n in range(MANY)) + "}",
        "".join(f"k{n}: v\n" for n in range(MANY)),
        "x:\n" + "- a\n" * MANY,
        "same: 1\n" * MANY,
    ],
)
def test_yaml_of_too_many_values_is_refused_before_a_value_is_made(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(as_yaml._Builder, "take", lambda _, event: made.append(event))
    with pytest.raises(StatusError) as refused:
        as_yaml.read(text.encode())
    assert refused.value.code == 413
    assert not made


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: *x\n" + "k: v\n" * MANY, "unknown anchor 'x' referenced"),
        ("%YAML 1.2\n---\n" + "k: v\n" * MANY, "found incompatible YAML document"),
        ("a: 'x\n" + "- a\n" * MANY, "found unexpected end of stream"),
        ('a: "\\/"\n' + "k: v\n" * MANY, "found unknown escape character"),
    ],
)
def test_yaml_error_before_the_value_limit_is_reported(text: str, told: str) -> None:
    with pytest.raises(as_yaml.YAMLProblem, match=re.escape(told)):
        as_yaml.read(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "x: [" + "a, " * 50_000 + "}",
        "k: [" + "a, " * 50_000,
        "- a\n" * 50_000 + "`",
        "- a\n" * 50_000 + "- *b",
        "- a\n" * 50_000 + "  b: c: d",
    ],
)
def test_yaml_that_ends_wrong_is_refused_before_a_value_is_made(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(as_yaml, "_check_count", lambda _: None)
        with pytest.raises(as_yaml.YAMLProblem) as told:
            as_yaml.read(text.encode())
    made: list[object] = []
    monkeypatch.setattr(as_yaml._Builder, "take", lambda _, event: made.append(event))
    with pytest.raises(as_yaml.YAMLProblem, match=re.escape(str(told.value))):
        as_yaml.read(text.encode())
    assert not made


def test_members_that_yaml_merges_count_as_values() -> None:
    members = "\n".join(f"  k{n}: v" for n in range(1000))
    few, many = (f"base: &b\n{members}\nx:\n" + "- {<<: *b}\n" * count for count in (10, 100))
    assert len(as_yaml.read(few.encode()).value["x"]) == 10
    with pytest.raises(StatusError) as refused:
        as_yaml.read(many.encode())
    assert refused.value.code == 413


def test_only_the_first_wrong_key_of_yaml_is_worded(monkeypatch: pytest.MonkeyPatch) -> None:
    worded: list[object] = []

    def go_syntax(value: object) -> str:
        worded.append(value)
        return "X"

    monkeypatch.setattr(yaml_scalars, "go_syntax", go_syntax)
    with pytest.raises(as_yaml.YAMLProblem, match="invalid map key: X"):
        as_yaml.read(b"? [a, b]\n: 1\n" * 100)
    assert worded.count(["a", "b"]) == 1


def test_number_of_escapes_does_not_change_the_calls_for_slashes() -> None:
    def read(escapes: int) -> None:
        with pytest.raises(as_yaml.YAMLProblem, match="line 3: found unknown escape character"):
            as_yaml.read(b'x: "a\n\n' + b"\\t\\\\" * escapes + b'\\/"')

    read(1)
    assert _calls(functools.partial(read, 10_000)) <= _calls(functools.partial(read, 100))


@pytest.mark.parametrize("at_once", [2, 3, 7, 64, 1000])
def test_values_in_strings_weigh_nothing_wherever_a_text_is_divided(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_syntax, "_AT_ONCE", at_once)
    draw = random.Random(31)
    pieces = ("{", "}", "[", ",", ":", "a", '\\"', "\\\\", "\\n", "é")
    for _ in range(20):
        strings = ["".join(draw.choices(pieces, k=draw.randint(0, 200))) for _ in range(draw.randint(10, 40))]
        raw = ('["' + '","'.join(strings) + '"]').encode()
        outside = b"".join(json_syntax._outside_strings(raw))
        assert outside.count(b",") == len(strings) - 1
        assert not set(b"{:") & set(outside)


def test_document_with_brackets_in_strings_weighs_only_their_count() -> None:
    raw = json.dumps(["{[,:" * 1000] * 700).encode()
    assert len(raw) > json_syntax.SMALL
    assert json_syntax.memory_estimate(raw) < json_syntax.MOST_MEMORY


def test_bytes_that_are_no_utf8_are_each_replaced_as_by_go() -> None:
    draw = random.Random(31)
    for _ in range(5000):
        raw = bytes(
            draw.choices(
                b"a?\0q\xff\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\xc3\xa9\xf4\x90\xc0\xbf\xe0", k=draw.randint(0, 9)
            )
        )
        meant = re.sub("[\ud800-\udfff]", "\ufffd", raw.decode("utf-8", "surrogateescape"))
        assert utf8.decoded(raw) == meant, raw


def test_halves_of_characters_are_each_replaced() -> None:
    draw = random.Random(31)
    for _ in range(5000):
        text = "".join(draw.choices("a?\0nqé\ud800\udbff\udc00\udfff😀\ufffd", k=draw.randint(0, 9)))
        assert utf8.whole(text) == re.sub("[\ud800-\udfff]", "\ufffd", text), ascii(text)


@pytest.mark.parametrize("piece", [b"\xff", b"\xe2\x82", b"\xf0\x9f\x98", b"\xffa", b"?\0\xff", b"\xed\xa0\x80"])
def test_number_of_invalid_bytes_does_not_change_the_calls_for_them(piece: bytes) -> None:
    calls = {count: _calls(functools.partial(utf8.decoded, piece * count)) for count in (100, 10_000)}
    assert calls[10_000] <= calls[100]


def _calls(work: Callable[[], object]) -> int:
    """Return the number of functions that `work` calls, those written in C included."""
    found = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal found
        found += event.endswith("call")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # a collection calls its callbacks, whenever it comes
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return found


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\ud800", r"\ufffd"),
        (r"\udc00", r"\ufffd"),
        (r"\ud83d\ude00", r"\ud83d\ude00"),
        (r"\ud800\ud83d\ude00\ude00", r"\ufffd\ud83d\ude00\ufffd"),
        (r"\\ud800", r"\\ud800"),
        (r"\\\ud800\\", r"\\\ufffd\\"),
    ],
)
def test_escapes_of_half_a_character_are_replaced(written: str, meant: str) -> None:
    assert json_syntax.mended(f'"{written}"'.encode()) == f'"{meant}"'


def test_keys_and_values_that_are_not_doubtful_are_right() -> None:
    draw = random.Random(31)
    pieces = ("a", "B", "-", "_", ".", "/", "\n", "é", "a" * 62, "b" * 252)
    texts = ["".join(draw.choices(pieces, k=draw.randint(0, 4))) for _ in range(5000)]
    for text in texts:
        many = [text, *"a" * 100]
        assert bool(list(names.doubtful_keys(many))) == bool(names.label_key(text)), text
        assert not names.are_annotation_keys(many) or not names.label_key(names.lower(text)), text
        assert names.are_label_values(many) == (not names.label_value(text)), text
        assert [text] == list(names.doubtful_keys([text])), "a few are left to label_key"
    wrong = [text for text in texts if names.label_key(text)]
    assert [text for text in names.doubtful_keys(texts) if names.label_key(text)] == wrong
