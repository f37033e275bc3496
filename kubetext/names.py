"""Check names, labels and identifiers, with upstream's error messages.

Every check returns a list of errors, which is empty for a legal text. Lengths are bytes of UTF-8.
Upstream: kubernetes/apimachinery `pkg/util/validation/validation.go`, `pkg/api/validate/content/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import re2

LABEL_BYTES, SUBDOMAIN_BYTES, LABEL_KEY_BYTES, LABEL_VALUE_BYTES = 63, 253, 63, 63
GENERATED_BASE_BYTES, GENERATED_SUFFIX = 58, 5
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Has no vowels and no digits that look like letters, so no generated name spells a word."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_OLD_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"

_is_label = re.compile(_LABEL).fullmatch
_is_old_label = re.compile(_OLD_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_caseless_subdomain = re.compile(_SUBDOMAIN, re.ASCII | re.IGNORECASE).fullmatch
_is_key = re.compile(_KEY).fullmatch
_is_value = re.compile(_VALUE).fullmatch
_is_identifier = re.compile(_IDENTIFIER).fullmatch


def _pattern_text(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{e}', " for e in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


NOT_LABEL = _pattern_text(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
NOT_OLD_LABEL = _pattern_text(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _OLD_LABEL,
    "my-name",
    "abc-123",
)
NOT_SUBDOMAIN = _pattern_text(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
NOT_CASELESS_SUBDOMAIN = _pattern_text(
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "Example.com",
)
NOT_KEY = _pattern_text(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _KEY,
    "MyName",
    "my.name",
    "123-abc",
)
NOT_VALUE = _pattern_text(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)
NOT_IDENTIFIER = _pattern_text(
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'",
    _IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)


def _too_long(text: str, limit: int, unit: str) -> list[str]:
    over = len(text) > limit or (not text.isascii() and byte_length(text) > limit)
    return [f"must be no more than {limit} {unit}"] if over else []


def byte_length(text: str) -> int:
    """Return the length in UTF-8, which upstream counts. Bytes that were not UTF-8 count one each."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def lower(text: str) -> str:
    """Return `strings.ToLower(text)`: one character for `İ`, where Python returns two."""
    return text.lower() if text.isascii() else text.replace("İ", "i").lower()


def dns_label(text: str, *, unit: str = "characters") -> list[str]:
    """Check a DNS-1123 label. `unit` as for `dns_subdomain`."""
    errors = _too_long(text, LABEL_BYTES, unit)
    if not _is_label(text):
        errors.append("must not contain dots" if _is_subdomain(text) else NOT_LABEL)
    return errors


def old_dns_label(text: str) -> list[str]:
    """Check a DNS-1035 label, which starts with a letter."""
    errors = _too_long(text, LABEL_BYTES, "characters")
    if not _is_old_label(text):
        errors.append(NOT_OLD_LABEL)
    return errors


def dns_subdomain(text: str, *, unit: str = "characters") -> list[str]:
    """Check a DNS-1123 subdomain.

    Upstream's newer checks say "bytes" and the older ones "characters" (`unit`); both count bytes.
    """
    if len(text) <= SUBDOMAIN_BYTES and _is_subdomain(text):
        return []
    errors = _too_long(text, SUBDOMAIN_BYTES, unit)
    if not _is_subdomain(text):
        errors.append(NOT_SUBDOMAIN)
    return errors


def caseless_dns_subdomain(text: str) -> list[str]:
    """Check a DNS-1123 subdomain that may have upper case letters. Upstream's error shows the pattern of lower case all the same."""
    errors = _too_long(text, SUBDOMAIN_BYTES, "bytes")
    if not _is_caseless_subdomain(text):
        errors.append(NOT_CASELESS_SUBDOMAIN)
    return errors


_FEW, _CHUNK = 16, 500
"""Up to `_FEW` texts are quicker to check one by one. One match of a pattern checks `_CHUNK` texts."""
_PART = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SHORT = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
_BYTES.never_capture = True
_are_keys = re2.compile(rf"(?:(?:{_PART}(?:\.{_PART})*/)?{_SHORT}\n)*".encode(), _BYTES).fullmatch
_are_values = re2.compile(rf"(?:(?:{_SHORT})?\n)*".encode(), _BYTES).fullmatch


def doubtful_keys(texts: Iterable[str]) -> Iterator[str]:
    """Yield, in order, the texts that may be wrong as label keys. Much faster than calling `label_key` for each."""
    return _doubtful(texts, _are_keys, _fits)


def are_annotation_keys(texts: Iterable[str]) -> bool:
    """Return whether all texts are certainly valid annotation keys, which may contain capitals anywhere."""
    return next(_doubtful(texts, lambda lines: _are_keys(lines.lower()), _fits), None) is None


def are_label_values(texts: Iterable[str]) -> bool:
    """Return whether all texts are certainly valid label values."""
    return next(_doubtful(texts, _are_values, lambda _: False), None) is None


def _fits(key: str) -> bool:
    """Return whether the prefix and the name of an ASCII key are short enough."""
    slash = key.rfind("/")
    return slash <= SUBDOMAIN_BYTES and len(key) - slash - 1 <= LABEL_KEY_BYTES


def _doubtful(texts: Iterable[str], right: Callable[[bytes], object], fits: Callable[[str], bool]) -> Iterator[str]:
    """Yield the chunks that fail a check. `right` checks one line for each text, `fits` texts longer than a label may
    be.
    """
    left = iter(texts)
    chunk = list(islice(left, _CHUNK))
    if len(chunk) <= _FEW:
        yield from chunk
        return
    while chunk:
        lines = "\n".join([*chunk, ""])
        if (
            lines.count("\n") != len(chunk)
            or not right(lines.encode("ascii", "replace"))
            or (
                max(map(len, chunk)) > LABEL_BYTES and not all(len(text) <= LABEL_BYTES or fits(text) for text in chunk)
            )
        ):
            yield from chunk
        chunk = list(islice(left, _CHUNK))


def label_key(text: str) -> list[str]:
    """Check `[prefix/]name`: keys of labels and annotations, finalizers, condition types."""
    prefix, slash, name = text.partition("/")
    if not slash:
        if len(text) <= LABEL_KEY_BYTES and _is_key(text):
            return []
        errors, name = [], prefix
    elif "/" in name:
        return [
            f"a valid label key {NOT_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    elif not prefix:
        errors = ["prefix part must be non-empty"]
    else:
        errors = [f"prefix part {e}" for e in dns_subdomain(prefix, unit="bytes")]
    if not name:
        errors.append("name part must be non-empty")
    errors += [f"name part {e}" for e in _too_long(name, LABEL_KEY_BYTES, "bytes")]
    if not _is_key(name):
        errors.append(f"name part {NOT_KEY}")
    return errors


def label_value(text: str) -> list[str]:
    """Check the value of a label; empty is legal."""
    if len(text) <= LABEL_VALUE_BYTES and _is_value(text):
        return []
    errors = _too_long(text, LABEL_VALUE_BYTES, "bytes")
    if not _is_value(text):
        errors.append(NOT_VALUE)
    return errors


def c_identifier(text: str) -> list[str]:
    """Check a C identifier. The caller checks its length."""
    return [] if _is_identifier(text) else [NOT_IDENTIFIER]


def path_segment(name: str) -> list[str]:
    """Check that a name can be a segment of a URL path and of a storage key."""
    return [f"may not be '{name}'"] if name in (".", "..") else path_segment_prefix(name)


def path_segment_prefix(name: str) -> list[str]:
    """Check the beginning of a name as `path_segment` does. More may follow, so `.` and `..` are legal."""
    if "/" not in name and "%" not in name:  # the common case, on every request
        return []
    return [f"may not contain '{c}'" for c in ("/", "%") if c in name]


def mask_generate_name(text: str) -> str:
    """Return a `generateName` in the form that the name rule checks: a suffix will follow its trailing dash.

    The last *two* bytes are replaced, as upstream does (kubernetes/apimachinery `pkg/api/validation/generic.go`
    maskTrailingDash).
    """
    return f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") and text.isascii() else text


def generate_name(base: str, choose: Callable[[str], str]) -> str:
    """Return `base`, cut to 58 bytes, with five characters that `choose` picks from its argument, the alphabet."""
    cut = (
        base
        if byte_length(base) <= GENERATED_BASE_BYTES
        else base.encode()[:GENERATED_BASE_BYTES].decode(errors="ignore")
    )
    return cut + "".join(choose(SUFFIX_ALPHABET) for _ in range(GENERATED_SUFFIX))


def subdomain_name(name: str, prefix: bool) -> list[str]:  # noqa: FBT001 - the signature of a kind's name rule
    """Check the name of an object of most kinds; `prefix` marks a generateName."""
    return dns_subdomain(mask_generate_name(name) if prefix else name)


def path_segment_name(name: str, prefix: bool) -> list[str]:  # noqa: FBT001 - the signature of a kind's name rule
    """Check the rule that names of every kind must satisfy."""
    return path_segment_prefix(name) if prefix else path_segment(name)
