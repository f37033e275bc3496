"""`semver("1.2.3-rc.1")`: versions with semantic order.

Upstream: kubernetes/apiserver `pkg/cel/library/semverlib.go`, `pkg/cel/semver.go`; blang/semver v4.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kubecel.check.declarations import Function, Library
from kubecel.libraries.costs import NOMINAL, READING, function, member, nominal_estimate
from kubecel.values.errors import EvaluationError
from kubecel.values.quoting import quoted
from kubecel.values.types import BOOL, INT, STRING, struct

SEMVER = struct("kubernetes.Semver")

_MAX_UINT64 = (1 << 64) - 1
_DIGITS = re.compile(r"[0-9]*")
_ALPHANUMERIC = re.compile(r"[0-9A-Za-z-]*")


class Semver:
    """A version. The part after a `+` is ignored in comparisons."""

    __slots__ = ("build", "core", "prerelease")

    cel_type = SEMVER
    go_type = "cel.Semver"
    go_native = "semver.Version"

    def __init__(self, core: tuple[int, int, int], prerelease: tuple[int | str, ...], build: tuple[str, ...]) -> None:
        self.core = core
        self.prerelease = prerelease
        self.build = build

    def compared(self, other: Semver) -> int:
        """Return -1, 0 or 1.

        A version comes after its prereleases, a number before a word, and more elements after fewer.
        """
        mine, theirs = self._key(), other._key()
        return 0 if mine == theirs else -1 if mine < theirs else 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Semver):
            raise EvaluationError("no such overload")
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        text = ".".join(map(str, self.core))
        if self.prerelease:
            text += "-" + ".".join(map(str, self.prerelease))
        return f"{text}+{'.'.join(self.build)}" if self.build else text

    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        elements = tuple((False, e, "") if isinstance(e, int) else (True, 0, e) for e in self.prerelease)
        return self.core, not elements, elements


def parse(text: str) -> Semver:
    """Parse a version. Raises EvaluationError with the message of blang/semver."""
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major = _number(parts[0], "Major", "major")
    minor = _number(parts[1], "Minor", "minor")
    rest, plus, build = parts[2].partition("+")
    rest, dash, prerelease = rest.partition("-")
    patch = _number(rest, "Patch", "patch")
    return Semver(
        (major, minor, patch),
        tuple(map(_prerelease, prerelease.split("."))) if dash else (),
        tuple(map(_build, build.split("."))) if plus else (),
    )


def normalized(text: str) -> str:
    """Return a text in normal form: `v01.2` becomes `1.2.0`.

    Raises EvaluationError for a short version with more than numbers.
    """
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _without_zeros(part: str) -> str:
    if len(part.encode(errors="surrogatepass")) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in set("123456789") else "0" + stripped


def _number(text: str, name: str, part: str) -> int:
    if _DIGITS.fullmatch(text) is None:
        raise EvaluationError(f"Invalid character(s) found in {part} number {quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f"{name} number must not contain leading zeroes {quoted(text)}")
    return _uint64(text)


def _uint64(digits: str) -> int:
    if not digits:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    number = int(digits) if len(digits) <= 20 else _MAX_UINT64 + 1
    if number > _MAX_UINT64:
        raise EvaluationError(f"strconv.ParseUint: parsing {quoted(digits)}: value out of range")
    return number


def _prerelease(text: str) -> int | str:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(f"Numeric PreRelease version must not contain leading zeroes {quoted(text)}")
        return _uint64(text)
    if _ALPHANUMERIC.fullmatch(text) is None:
        raise EvaluationError(f"Invalid character(s) found in prerelease {quoted(text)}")
    return text


def _build(text: str) -> str:
    if not text:
        raise EvaluationError("Build meta data is empty")
    if _ALPHANUMERIC.fullmatch(text) is None:
        raise EvaluationError(f"Invalid character(s) found in build meta data {quoted(text)}")
    return text


def _semver(text: str, normalize: bool = False) -> Semver:  # noqa: FBT001, FBT002 - arguments of the expression
    return parse(normalized(text) if normalize else text)


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002
    try:
        _semver(text, normalize)
    except EvaluationError:
        return False
    return True


def _part(index: int) -> Callable[[Semver], int]:
    def part(version: Semver) -> int:
        # An int64 in expressions, although the version has a uint64.
        number = version.core[index]
        return number - (1 << 64) if number >= 1 << 63 else number

    return part


_PAIR = (SEMVER, SEMVER)
_OPTION = (STRING, BOOL)

LIBRARY = Library(
    name="kubernetes.Semver",
    types=(SEMVER,),
    equality={SEMVER: nominal_estimate},
    functions=(
        Function(
            "semver",
            (
                function("string_to_semver", (STRING,), SEMVER, _semver, cost=READING),
                function("string_bool_to_semver", _OPTION, SEMVER, _semver, cost=READING),
            ),
        ),
        Function(
            "isSemver",
            (
                function("is_semver_string", (STRING,), BOOL, _is_semver, cost=READING),
                function("is_semver_string_bool", _OPTION, BOOL, _is_semver, cost=READING),
            ),
        ),
        Function(
            "isGreaterThan",
            (member("semver_is_greater_than", _PAIR, BOOL, lambda a, b: a.compared(b) == 1, cost=NOMINAL),),
        ),
        Function(
            "isLessThan",
            (member("semver_is_less_than", _PAIR, BOOL, lambda a, b: a.compared(b) == -1, cost=NOMINAL),),
        ),
        Function("compareTo", (member("semver_compare_to", _PAIR, INT, lambda a, b: a.compared(b), cost=NOMINAL),)),
        Function("major", (member("semver_major", (SEMVER,), INT, _part(0), cost=NOMINAL),)),
        Function("minor", (member("semver_minor", (SEMVER,), INT, _part(1), cost=NOMINAL),)),
        Function("patch", (member("semver_patch", (SEMVER,), INT, _part(2), cost=NOMINAL),)),
    ),
)
