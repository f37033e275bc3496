"""Names and their messages, word for word."""

import itertools

import pytest

from kubetext import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' "
    "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)


@pytest.mark.parametrize("text", ["a", "0", "a-b", "a--b", "1" * 63])
def test_a_dns_label_is_accepted(text: str) -> None:
    assert names.dns_label(text) == []


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("", [LABEL]),
        ("A", [LABEL]),
        ("-a", [LABEL]),
        ("a-", [LABEL]),
        ("a\n", [LABEL]),
        ("ä", [LABEL]),
        ("٣", [LABEL]),
        ("a.b", ["must not contain dots"]),
        ("a" * 64, ["must be no more than 63 characters"]),
        ("ä" * 40, ["must be no more than 63 characters", LABEL]),
        ("a." * 40 + "b", ["must be no more than 63 characters", "must not contain dots"]),
    ],
)
def test_invalid_dns_label_is_explained(text: str, errors: list[str]) -> None:
    assert names.dns_label(text) == errors


@pytest.mark.parametrize("text", ["a", "a.b", "a-1.b-2", "1.2", "a" * 253])
def test_a_subdomain_is_accepted(text: str) -> None:
    assert names.dns_subdomain(text) == []


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "A", "a_b", "a.\n", "a-.b"])
def test_invalid_subdomain_is_explained(text: str) -> None:
    assert names.dns_subdomain(text) == [SUBDOMAIN]


def test_the_unit_of_a_subdomains_limit_depends_on_the_check() -> None:
    assert names.dns_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert names.dns_subdomain("a" * 254, unit="bytes") == ["must be no more than 253 bytes"]


@pytest.mark.parametrize("text", ["a", "A_b.c-d", "example.com/x", "1/2", "k" * 63, "p" * 253 + "/" + "n" * 63])
def test_a_label_key_is_accepted(text: str) -> None:
    assert names.label_key(text) == []


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("", ["name part must be non-empty", f"name part {KEY}"]),
        ("-x", [f"name part {KEY}"]),
        ("x\n", [f"name part {KEY}"]),
        ("/", ["prefix part must be non-empty", "name part must be non-empty", f"name part {KEY}"]),
        ("/x", ["prefix part must be non-empty"]),
        ("a/", ["name part must be non-empty", f"name part {KEY}"]),
        ("A/x", [f"prefix part {SUBDOMAIN}"]),
        ("p" * 254 + "/x", ["prefix part must be no more than 253 bytes"]),
        ("k" * 64, ["name part must be no more than 63 bytes"]),
        ("é" * 40, ["name part must be no more than 63 bytes", f"name part {KEY}"]),
        (
            "a/b/c",
            [f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"],
        ),
    ],
)
def test_invalid_label_key_is_explained(text: str, errors: list[str]) -> None:
    assert names.label_key(text) == errors


@pytest.mark.parametrize("text", ["", "a", "A.b_c-d", "v" * 63])
def test_a_label_value_is_accepted(text: str) -> None:
    assert names.label_value(text) == []


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("-1", [VALUE]),
        ("a b", [VALUE]),
        ("a\n", [VALUE]),
        ("v" * 64, ["must be no more than 63 bytes"]),
        ("ü", [VALUE]),
    ],
)
def test_invalid_label_value_is_explained(text: str, errors: list[str]) -> None:
    assert names.label_value(text) == errors


def test_an_identifier_of_c_is_checked_for_its_characters_only() -> None:
    assert names.c_identifier("_a1") == []
    assert names.c_identifier("a" * 100) == []
    for text in ("", "1a", "a-b", "a\n", "é"):
        assert names.c_identifier(text) == [IDENTIFIER]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("a", []),
        ("", []),
        ("...", []),
        (".", ["may not be '.'"]),
        ("..", ["may not be '..'"]),
        ("a%b", ["may not contain '%'"]),
        ("a/b%c", ["may not contain '/'", "may not contain '%'"]),
    ],
)
def test_a_path_segment_may_be_almost_anything(text: str, errors: list[str]) -> None:
    assert names.path_segment(text) == errors


def test_the_front_of_a_path_segment_may_be_dots() -> None:
    assert names.path_segment_name("..", True) == []
    assert names.path_segment_name("..", False) == ["may not be '..'"]
    assert names.path_segment_name("a/", True) == ["may not contain '/'"]


@pytest.mark.parametrize(
    ("text", "masked"),
    [("web-", "wea"), ("a-", "a"), ("a", "a"), ("-", "-"), ("a.-", "aa"), ("Ab-", "Aa"), ("aé-", "aé-")],
)
def test_a_trailing_dash_is_masked_together_with_the_byte_before_it(text: str, masked: str) -> None:
    assert names.mask_generate_name(text) == masked


def test_the_rule_of_most_kinds_lets_a_generate_name_end_with_a_dash() -> None:
    assert names.subdomain_name("web-", True) == []
    assert names.subdomain_name("web-", False) == [SUBDOMAIN]
    assert names.subdomain_name("web.", True) == [SUBDOMAIN]


def test_a_generated_name_is_the_base_and_five_characters() -> None:
    letters = itertools.cycle("bcdfg")
    assert names.generate_name("web-", lambda alphabet: next(letters)) == "web-bcdfg"


def test_a_generated_name_is_never_longer_than_63_bytes() -> None:
    assert names.generate_name("a" * 70, lambda alphabet: alphabet[0]) == "a" * 58 + "bbbbb"
    assert len(names.generate_name("é" * 40, lambda alphabet: alphabet[-1]).encode()) == 63


def test_suffixes_come_from_the_alphabet_of_upstream() -> None:
    seen: list[str] = []

    def choose(alphabet: str) -> str:
        seen.append(alphabet)
        return "b"

    names.generate_name("", choose)
    assert seen == ["bcdfghjklmnpqrstvwxz2456789"] * 5
