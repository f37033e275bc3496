"""Parse, compare, add and print resource quantities.

Arithmetic is exact, on `mantissa * 10**exponent`, never on floating point. Upstream keeps a quantity either as a scaled
int64 or as a big decimal. A few results differ between the two (`value` of huge ones), so `big` keeps which one it is.
Upstream: kubernetes/apimachinery `pkg/api/resource/{quantity,amount,math,suffix,scale_int}.go`.
"""

from __future__ import annotations

import math
import re
from functools import total_ordering
from types import MappingProxyType

from kubetext.strconv import MAX_INT64, MIN_INT64, json_float, parse_int

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_NUMBER = "unable to parse numeric part of quantity"
BAD_SUFFIX = "unable to parse quantity's suffix"

DECIMAL_SI, BINARY_SI, DECIMAL_EXPONENT = "DecimalSI", "BinarySI", "DecimalExponent"

NANO, ONE_IN_NANOS = -9, 10**9
MAX_FAST_DIGITS = 18
MAX_DIGITS = 4096
"""Digits of a number. Upstream has no limit but the size of the request."""
MAX_SPREAD = 4096
"""Largest difference of the powers of ten of two operands: 1e2000000000 + 1 must not be written out."""

_GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_SCAN = re.compile(r"([+-]?)(0*)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_CANONICAL = re.compile(
    r"0|-?[1-9][0-9]{0,17}(?<!000)[numkMGTPE]?|-?[1-9][0-9]{0,2}[KMGTP]i|-?[1-9][0-9]{0,9}[13579]Ki|-?[1-9][0-9]{0,3}[13579][MG]i"
)
"""Texts that upstream returns unchanged: no trailing thousands; below 1000, or an odd number of a binary unit."""

_DECIMAL = MappingProxyType({"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18})
_BINARY = MappingProxyType({"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60})
_DECIMAL_SUFFIX = MappingProxyType({exponent: suffix for suffix, exponent in _DECIMAL.items()})
_BINARY_SUFFIX = MappingProxyType({bits // 10: suffix for suffix, bits in _BINARY.items()} | {0: ""})
_ONE_STEP = frozenset((0, 1, 2, 3, 6, 9))
"""Powers of ten that upstream multiplies in one step. It keeps the low 64 bits on overflow."""
_FAST_BINARY_DIGITS = MappingProxyType({10: 11, 20: 8, 30: 5, 40: 2})
"""The greatest number of digits before a binary suffix for which upstream calculates in int64."""


class QuantityError(ValueError):
    """The text is not a quantity. The message is upstream's."""


@total_ordering
class Quantity:
    """An exact amount and its notation. Immutable.

    Where upstream keeps the original text, it is kept as well.
    """

    __slots__ = ("_exponent", "_in_nanos", "_mantissa", "_text", "big", "format")

    def __init__(
        self,
        mantissa: int,
        exponent: int = 0,
        *,
        format: str = DECIMAL_SI,  # noqa: A002 - upstream's name
        big: bool = False,
        in_nanos: bool = False,
        text: str = "",
    ) -> None:
        self._mantissa = mantissa
        self._exponent = exponent
        self.format = format
        self.big = big
        # Upstream writes such a big decimal out in nanos. Only `approximate` shows the difference.
        self._in_nanos = in_nanos
        self._text = text

    def canonical(self) -> str:
        """Return the text that is stored and sent: no fraction digits, and the largest unit of its notation that fits."""
        return self._text or _print(self)

    __str__ = canonical

    def __repr__(self) -> str:
        return f"Quantity({self.canonical()!r})"

    def value(self) -> int:
        """Return `Value()`: the amount as int64, rounded up. Overflow has upstream's results (0, wrapped)."""
        return _big_value(self._mantissa, self._exponent) if self.big else _small_value(self._mantissa, self._exponent)

    def as_int64(self) -> int | None:
        """Return `AsInt64()`: the amount if upstream keeps it as an int64 of units or more, else None.

        Upstream answers None for some whole numbers too.
        """
        if self.big or self._exponent < 0:
            return None
        if self._exponent > MAX_FAST_DIGITS:
            return None if self._mantissa else 0
        value = self._mantissa * _ten_to(self._exponent)
        return value if MIN_INT64 <= value <= MAX_INT64 else None

    def is_whole(self) -> bool:
        """Return whether the amount has no fraction."""
        mantissa, exponent = self._key()
        return not mantissa or exponent >= 0

    def milli(self) -> int | None:
        """Return the amount in thousandths if they are a whole number of 64 bits, else None."""
        mantissa, exponent = self._key()
        if not mantissa:
            return 0
        if not -3 <= exponent <= MAX_FAST_DIGITS:
            return None
        value: int = mantissa * _ten_to(exponent + 3)
        return value if MIN_INT64 <= value <= MAX_INT64 else None

    def decimal(self) -> str:
        """Return the amount with the fraction digits that it was written with (upstream: `AsDec().String()`). Amounts of thousands of
        digits have their canonical text instead."""
        if self._exponent >= 0:
            return self.canonical() if self._exponent > MAX_SPREAD else str(self._mantissa * _ten_to(self._exponent))
        digits = str(abs(self._mantissa)).rjust(1 - self._exponent, "0")
        return f"{'-' if self._mantissa < 0 else ''}{digits[: self._exponent]}.{digits[self._exponent :]}"

    def approximate(self) -> float:
        """Return `AsApproximateFloat64()`: the amount in double precision, rounded twice."""
        mantissa, exponent = self._mantissa, self._exponent
        if self._in_nanos and exponent > NANO:
            # The largest double is below 1e309.
            mantissa, exponent = mantissa * _ten_to(min(exponent, 309) - NANO), NANO
        try:
            base = float(mantissa)
        except OverflowError:
            base = math.inf if mantissa > 0 else -math.inf
        return base * _pow10(exponent) if exponent else base

    def sign(self) -> int:
        return (self._mantissa > 0) - (self._mantissa < 0)

    def __bool__(self) -> bool:
        return self._mantissa != 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._mantissa == other._mantissa if self._exponent == other._exponent else self._key() == other._key()

    def __lt__(self, other: Quantity) -> bool:
        return _less(self, other)

    def __hash__(self) -> int:
        return hash(self._key())

    def __neg__(self) -> Quantity:
        return Quantity(-self._mantissa, self._exponent, format=self.format, big=self.big, in_nanos=self._in_nanos)

    def __add__(self, other: Quantity) -> Quantity:
        mine, theirs, exponent = _aligned(self, other)
        total = mine + theirs
        fits = all(MIN_INT64 <= number <= MAX_INT64 for number in (mine, theirs, total))
        notation = self.format if self else other.format
        big = self.big or other.big or not fits
        return Quantity(total, exponent, format=notation, big=big, in_nanos=self._in_nanos or other._in_nanos)

    def __sub__(self, other: Quantity) -> Quantity:
        if other._mantissa == MIN_INT64 and not self.big and not other.big:
            # -MIN_INT64 overflows to MIN_INT64, and upstream returns the sum when it fits.
            total = self + other
            if not total.big:
                return total
        return self + -other

    def __mod__(self, other: Quantity) -> Quantity:
        """Return the remainder with the sign of self, as Go's `%`. Raises ZeroDivisionError."""
        mine, theirs, exponent = _aligned(self, other)
        rest = abs(mine) % abs(theirs)
        return Quantity(-rest if mine < 0 else rest, exponent, format=self.format, big=self.big or other.big)

    def _key(self) -> tuple[int, int]:
        """Return the normal form, which all equal quantities share."""
        if not self._mantissa:
            return 0, 0
        mantissa, zeros = _strip(self._mantissa, 10)
        return mantissa, self._exponent + zeros


def parse(text: str | float) -> Quantity:
    """Parse a quantity from the text or number of a client. Raises QuantityError."""
    source = _source(text)
    if not source:
        raise QuantityError(FORMAT_WRONG)
    match = _SCAN.fullmatch(source)
    if match is None:
        raise QuantityError(FORMAT_WRONG)
    sign, zeros, digits, fraction, suffix = match.groups("")
    notation, power = _interpret(suffix)
    small = _small(source, sign=sign, digits=digits or "0", fraction=fraction, notation=notation, power=power)
    if small is not None:
        return small
    if not (zeros or digits or fraction) or len(digits) + len(fraction) > MAX_DIGITS:
        raise QuantityError(BAD_NUMBER)
    mantissa = int(digits + fraction or "0")
    return _large(-mantissa if sign == "-" else mantissa, places=len(fraction), notation=notation, power=power)


class Respelled(str):
    """The canonical text of a quantity that a client `sent` in another spelling.

    Upstream keeps a quantity as it was parsed: comparing whole lists (reflect.DeepEqual) tells `0.5` from `500m`.
    """

    __slots__ = ("sent",)
    sent: str

    def __new__(cls, text: str, sent: str) -> Respelled:
        self = super().__new__(cls, text)
        self.sent = sent
        return self

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.sent


def canonical(text: str | float) -> str:
    """Return the canonical text of a quantity; a Respelled if the client sent another spelling.

    A number stands for the text that Go's encoder writes for it. Upstream reads that text where the original spelling
    is lost, as in YAML and in merged objects. Raises QuantityError.
    """
    if isinstance(text, str) and _CANONICAL.fullmatch(text):
        return text
    found, source = parse(text).canonical(), _source(text)
    return found if found == source else Respelled(found, source)


def as_sent(text: str) -> Quantity:
    """Parse a canonical text as the client sent it. Beyond E the canonical text has lost its unit, and with it the
    amount.
    """
    return parse(text.sent if isinstance(text, Respelled) else text)


def _source(text: str | float) -> str:
    """Return the text to parse."""
    return text.strip(_GO_SPACE) if isinstance(text, str) else json_float(text)


def _interpret(suffix: str) -> tuple[str, int]:
    """Return notation and power of a suffix: a power of two in BinarySI, of ten otherwise."""
    if suffix in _DECIMAL:
        return DECIMAL_SI, _DECIMAL[suffix]
    if suffix in _BINARY:
        return BINARY_SI, _BINARY[suffix]
    if len(suffix) > 1 and suffix[0] in "eE":
        try:
            power = parse_int(suffix[1:])
        except ValueError:
            raise QuantityError(BAD_SUFFIX) from None
        # Upstream converts to int32 without a check.
        return DECIMAL_EXPONENT, (power + (1 << 31)) % (1 << 32) - (1 << 31)
    raise QuantityError(BAD_SUFFIX)


def _small(source: str, *, sign: str, digits: str, fraction: str, notation: str, power: int) -> Quantity | None:
    """Return the quantity if upstream keeps it as a scaled int64, else None."""
    if notation == BINARY_SI:
        if fraction or len(digits) > _FAST_BINARY_DIGITS.get(power, -1):
            return None
        number = int(digits)
        # With a remainder of eighths the unit cannot grow, so the text is canonical.
        text = source if number & 7 else ""
        amount = number << power
        return Quantity(-amount if sign == "-" else amount, format=notation, text=text)
    exponent = power - len(fraction)
    if len(digits) + len(fraction) > MAX_FAST_DIGITS or exponent < NANO:
        return None
    shifted = digits + fraction
    number = int(shifted)
    text = source if exponent % 3 == 0 and shifted[0] != "0" and not shifted.endswith("000") else ""
    return Quantity(-number if sign == "-" else number, exponent, format=notation, text=text)


def _large(mantissa: int, *, places: int, notation: str, power: int) -> Quantity:
    """Return the quantity as a big decimal, rounded away from zero to whole nanos. Binary quantities are capped."""
    exponent = -places
    if notation == BINARY_SI:
        mantissa <<= power
    else:
        exponent += power
    if exponent < NANO:
        mantissa, exponent = _round_to_nano(mantissa, exponent), NANO
    if notation == BINARY_SI:
        one = _ten_to(-exponent)
        if abs(mantissa) > MAX_INT64 * one:
            return Quantity(MAX_INT64 if mantissa > 0 else -MAX_INT64, format=notation, big=True)
        if 0 < abs(mantissa) < one:
            notation = DECIMAL_SI
    return Quantity(mantissa, exponent, format=notation, big=True, in_nanos=mantissa != 0)


def _round_to_nano(mantissa: int, exponent: int) -> int:
    if not mantissa:
        return 0
    drop = NANO - exponent
    # With fewer digits than are dropped the result is one nano; 10**drop need not be computed.
    magnitude = 1 if drop > len(str(abs(mantissa))) else -(-abs(mantissa) // _ten_to(drop))
    return magnitude if mantissa > 0 else -magnitude


def _strip(mantissa: int, factor: int) -> tuple[int, int]:
    """Divide by all powers of `factor`. The mantissa must not be 0."""
    times = 0
    while True:
        quotient, rest = divmod(mantissa, factor)
        if rest:
            return mantissa, times
        mantissa, times = quotient, times + 1


def _print(q: Quantity) -> str:
    if not q._mantissa:
        return "0"
    if q.format == BINARY_SI and not q._exponent and not -1024 < q._mantissa < 1024:
        number, times = _strip(q._mantissa, 1024)
        return f"{number}{_BINARY_SUFFIX.get(times, '')}"
    mantissa, exponent = q._key()
    if q.format == BINARY_SI and exponent >= 0:
        amount = mantissa * _ten_to(exponent)
        if not -1024 < amount < 1024:
            number, times = _strip(amount, 1024)
            return f"{number}{_BINARY_SUFFIX.get(times, '')}"
    up = exponent % 3
    number, power = mantissa * _ten_to(up), exponent - up
    if q.format == DECIMAL_EXPONENT:
        return f"{number}e{power}" if power else str(number)
    # Beyond E upstream has no suffix and prints none.
    return f"{number}{_DECIMAL_SUFFIX.get(power, '')}"


def _aligned(a: Quantity, b: Quantity) -> tuple[int, int, int]:
    """Return both mantissas at one exponent."""
    if not a or not b:
        exponent = b._exponent if b else a._exponent
        return a._mantissa, b._mantissa, exponent
    exponent = min(a._exponent, b._exponent)
    if max(a._exponent, b._exponent) - exponent > MAX_SPREAD:
        raise OverflowError(f"quantities {a} and {b} lie too far apart")
    return a._mantissa * _ten_to(a._exponent - exponent), b._mantissa * _ten_to(b._exponent - exponent), exponent


def _less(a: Quantity, b: Quantity) -> bool:
    """Return whether a < b without computing huge powers: the position of the first digit decides before the digits."""
    if a.sign() != b.sign() or not a:
        return a.sign() < b.sign()
    (mine, e), (theirs, f) = a._key(), b._key()
    high, other = len(str(abs(mine))) + e, len(str(abs(theirs))) + f
    if high != other:
        return (high < other) == (a.sign() > 0)
    low = min(e, f)
    return mine * _ten_to(e - low) < theirs * _ten_to(f - low)


def _ten_to(power: int) -> int:
    result: int = 10**power
    return result


def _pow10(power: int) -> float:
    """Return `math.Pow10`: a product or quotient of two powers that are exact to the last bit."""
    if power > 308:
        return math.inf
    if power >= 0:
        return float(f"1e{power // 32 * 32}") * float(f"1e{power % 32}")
    return float(f"1e-{-power // 32 * 32}") / float(f"1e{-power % 32}") if power >= -323 else 0.0


def _small_value(mantissa: int, exponent: int) -> int:
    """Return upstream's positiveScaleInt64 and negativeScaleInt64."""
    if exponent < 0:
        quotient = -(-abs(mantissa) // _ten_to(-exponent))
        return quotient if mantissa > 0 else -quotient
    if exponent in _ONE_STEP:
        return wrapped(mantissa * _ten_to(exponent))
    value = mantissa * _ten_to(exponent) if exponent < 20 else 0
    return value if MIN_INT64 <= value <= MAX_INT64 else 0


def _big_value(mantissa: int, exponent: int) -> int:
    """Return upstream's scaledValue, which counts nanos.

    Positive amounts are rounded up. For negative ones it takes the low 64 bits before the division, rounds a fraction
    towards zero, and adds one.
    """
    if mantissa > 0 and exponent >= 0:
        return wrapped(mantissa * pow(10, exponent, 1 << 64))
    nanos = mantissa * pow(10, exponent - NANO, 1 << 64) if mantissa < 0 else mantissa * _ten_to(exponent - NANO)
    if nanos >= MAX_INT64:
        return wrapped(-(-nanos // ONE_IN_NANOS))
    number = wrapped(nanos)
    whole, rest = divmod(abs(number), ONE_IN_NANOS)
    return (whole if number >= 0 else -whole) + (rest != 0)


def wrapped(number: int) -> int:
    """Return the low 64 bits of a number as int64."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
