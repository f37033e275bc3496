"""The formats of texts that schemas know, and what their validators accept. Some accept or refuse more than their names say.

Upstream: kubernetes/kube-openapi `pkg/validation/strfmt`, `pkg/internal/third_party/govalidator`, kubernetes/utils `net/parse.go`,
kubernetes/apiextensions-apiserver `pkg/apiserver/validation/formats.go`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from apiserver.structural import mail
from kubecel.libraries import formats, ip, urls
from kubecel.values import times

Check = Callable[[str], bool]

_HEX = "[0-9a-fA-F]"
_HOSTNAME_BYTES, _LABEL_BYTES = 255, 63
_SPACE = "[\t\n\f\r ]"
_BYTE = "(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"
_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SHORT_NAME_LENGTH, _LONG_NAME_LENGTH = 63, 253
_MOST_DIGITS = 8
"""Digits of a number in an address that are read: a longer one is too large anyway."""


def of(name: str) -> Check | None:
    """Return the check of a format; None if it is not one of texts. Dashes in names do not count."""
    return FORMATS.get(name.replace("-", ""))


def applied(name: str, types: Sequence[str]) -> str:
    """Return the name of a format, "" if it does not apply to a value of these types."""
    kind = types[0] if len(types) == 1 else ""
    if kind in ("", "string"):
        return name if of(name) is not None else ""
    known = {"integer": ("int32", "int64"), "number": ("float", "double")}.get(kind, ())
    return name if name in known else ""


def _whole(pattern: str) -> Check:
    """Return whether a whole text matches."""
    found = re.compile(pattern).fullmatch
    return lambda text: found(text) is not None


def _named(name: str) -> Check:
    validate = formats.FORMATS[name].validate
    return lambda text: not validate(text)


def _is_uri(text: str) -> bool:
    return urls.request_uri(text) is None


def _class(character: str) -> str:
    """Return what a character is in a host name: `l` is a letter, `x` a digit or a symbol."""
    if character in "-.":
        return character
    category = unicodedata.category(character)
    return "l" if category[0] == "L" else "x" if category[0] == "S" or character in "0123456789" else "?"


_is_host_written = _whole(r"[lx]-?[lx]{0,62}|([lx]([lx-]{0,61}[lx])?\.)+l{2,63}")


def _is_hostname(text: str) -> bool:
    """Return whether a text is a host name. The last of several labels is a word of two letters or more: `a.b.c` is refused. A dash in a
    single label must be its second character: `my-host` is refused."""
    encoded = text.encode(errors="surrogatepass")
    if len(encoded) > _HOSTNAME_BYTES or any(len(label) > _LABEL_BYTES for label in encoded.split(b".")):
        return False
    return _is_host_written("".join(map(_class, text)))


def _number(text: str) -> int | None:
    """Return a number of ASCII digits. Zeros at the front do not count."""
    if not text or not text.isascii() or not text.isdigit():
        return None
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= _MOST_DIGITS else None


def _is_four(text: str) -> bool:
    """Return whether a text is an IPv4 address. Zeros at the front are allowed."""
    parts = [_number(part) for part in text.split(".", 4)]
    return len(parts) == 4 and all(part is not None and part <= 0xFF for part in parts)


_GROUP = re.compile(f"0*{_HEX}{{1,4}}").fullmatch


def _is_six(text: str) -> bool:
    """Return whether a text is an IPv6 address. Groups may have zeros at the front, and an IPv4 address may stand at the end."""
    head, gap, tail = text.partition("::")
    if "::" in tail or tail.startswith(":"):
        return False
    groups = [group for part in (head, tail) if part for group in part.split(":", 9)]
    wanted = 8
    if groups and "." in groups[-1] and (tail or not gap):
        if not _is_four(groups.pop()):
            return False
        wanted = 6
    if not all(map(_GROUP, groups)):
        return False
    return len(groups) < wanted if gap else len(groups) == wanted


def _is_old_address(text: str) -> bool:
    mark = re.search("[.:]", text)
    return mark is not None and (_is_four(text) if mark[0] == "." else _is_six(text))


def _is_ipv4(text: str) -> bool:
    """Return whether a text is an address with a dot in it: `::ffff:1.2.3.4` is one."""
    return "." in text and _is_old_address(text)


def _is_ipv6(text: str) -> bool:
    """Return whether a text is an address with a colon in it."""
    if ":" not in text:
        return False
    try:
        _, zone = ip.parse(text)
    except ip.AddressError:
        return False
    return not zone


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    length = _number(bits)
    if not slash or length is None:
        return False
    return length <= 32 if _is_four(address) else _is_six(address) and length <= 128


def _uuid(third: str = "", fourth: str = "") -> Check:
    groups = [
        f"{_HEX}{{8}}",
        f"{_HEX}{{4}}",
        third + f"{_HEX}{{{4 - bool(third)}}}",
        fourth + f"{_HEX}{{{4 - bool(fourth)}}}",
        f"{_HEX}{{12}}",
    ]
    return _whole("-?".join(groups))


def _mac() -> Check:
    pair, four = f"{_HEX}{{2}}", f"{_HEX}{{4}}"
    with_marks = [f"{pair}({mark}{pair}){{{n - 1}}}" for mark in ":-" for n in (6, 8, 20)]
    with_dots = [rf"{four}(\.{four}){{{n - 1}}}" for n in (3, 4, 10)]
    alone = [f"({pair}){{{n}}}" for n in (6, 8, 20)]
    return _whole("|".join([*with_marks, *with_dots, *alone]))


_ignored = re.compile(f"(?:{_SPACE}|-)+")
_is_isbn10_written = _whole("[0-9]{9}[0-9X]")
_is_isbn13_written = _whole("[0-9]{13}")


def _is_isbn10(text: str) -> bool:
    digits = _ignored.sub("", text)
    if not _is_isbn10_written(digits):
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(place * value for place, value in enumerate(values, 1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = _ignored.sub("", text)
    if not _is_isbn13_written(digits):
        return False
    return sum(int(digit) * (1, 3)[place % 2] for place, digit in enumerate(digits)) % 10 == 0


_other_than_digits = re.compile("[^0-9]+")
_is_card_number = _whole(
    "4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)


def _is_credit_card(text: str) -> bool:
    digits = _other_than_digits.sub("", text)
    if not _is_card_number(digits):
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


# A number is read from its first digit on: the search would be quadratic in it otherwise.
_amount = re.compile(f"(?<![0-9])([0-9]+){_SPACE}*([A-Za-zµ]+)").finditer
_UNITS = frozenset(("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"))
_LONG_UNITS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def _is_duration(text: str) -> bool:
    """Return whether a text is one of Go's durations, or contains a number with a unit: `2 weeks`."""
    if times.parse_duration(text) is not None:
        return True
    found = False
    for number, unit in (match.groups() for match in _amount(text)):
        digits = number.lstrip("0")
        if len(digits) > 19 or int(digits or "0") >= 1 << 63:
            return False
        name = unit.lower()
        found = found or name in _UNITS or name.startswith(_LONG_UNITS)
    return found


_is_label = _whole(_SHORT_NAME)
_is_labels = _whole(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*")


FORMATS: dict[str, Check] = {
    "bsonobjectid": _whole(f"{_HEX}{{24}}"),
    "uri": _is_uri,
    "email": mail.is_address,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": _mac(),
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _whole("[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}"),
    "hexcolor": _whole(f"#?({_HEX}{{3}}|{_HEX}{{6}})"),
    "rgbcolor": _whole(rf"rgb\({_SPACE}*" + f"{_SPACE}*,{_SPACE}*".join([_BYTE] * 3) + rf"{_SPACE}*\)"),
    "byte": _named("byte"),
    "password": lambda _text: True,
    "date": _named("date"),
    "duration": _is_duration,
    "datetime": _named("datetime"),
    "k8sshortname": lambda text: len(text) <= _SHORT_NAME_LENGTH and _is_label(text),
    "k8slongname": lambda text: len(text) <= _LONG_NAME_LENGTH and _is_labels(text),
}
"""The formats of texts, by their names without dashes."""
