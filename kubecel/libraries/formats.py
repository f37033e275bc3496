"""`format.dns1123Label().validate(name)`: check texts against named formats.

Upstream: kubernetes/apiserver `pkg/cel/library/format.go`, `pkg/cel/format.go`; kubernetes/kube-openapi `pkg/validation/strfmt`.
"""

from __future__ import annotations

import math
import re
from calendar import monthrange
from collections.abc import Callable, Sequence

from kubecel.check.declarations import CallEstimate, Estimator, Function, Library, Node, Range
from kubecel.libraries.costs import DEFAULT, NOMINAL, REGEX, TRAVERSAL, Cost, function, member
from kubecel.libraries.urls import request_uri
from kubecel.values.errors import EvaluationError
from kubecel.values.types import STRING, list_of, optional_of, struct
from kubecel.values.values import NONE, Optional, Value, size
from kubetext import names

FORMAT = struct("kubernetes.NamedFormat")

# The longest name of a format, and the pattern length that estimates assume.
_NAME = 64
_PATTERN = 128

_UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
_is_uuid = re.compile("[0-9a-fA-F]{8}" + "-?[0-9a-fA-F]{4}" * 3 + "-?[0-9a-fA-F]{12}").fullmatch
_base64 = re.compile("[A-Za-z0-9+/]*").fullmatch
_date = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch
_time = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})").fullmatch


class Format:
    """A format of texts. `pattern` is the length of an equivalent regular expression, for costs."""

    __slots__ = ("name", "pattern", "validate")

    cel_type = FORMAT
    go_type = "cel.Format"

    def __init__(self, name: str, validate: Callable[[str], list[str]], pattern: int) -> None:
        self.name = name
        self.validate = validate
        self.pattern = pattern

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Format):
            raise EvaluationError("no such overload")
        return self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


def _prefix(validate: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the same check for a `generateName`, whose last dash is followed by a suffix."""
    return lambda text: validate(names.mask_generate_name(text))


def _uri(text: str) -> list[str]:
    problem = request_uri(text)
    return [] if problem is None else [problem]


def _uuid(text: str) -> list[str]:
    return [] if _is_uuid(text) else ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    digits = text.removesuffix("==") if text.endswith("==") else text.removesuffix("=")
    return [] if text and len(text) % 4 == 0 and _base64(digits) else ["invalid base64"]


def _is_date(text: str) -> bool:
    match = _date(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    # The calendar repeats every 400 years, and year 0 exists.
    return 1 <= month <= 12 and 1 <= day <= monthrange(year % 400 + 400, month)[1]


def _date_format(text: str) -> list[str]:
    return [] if _is_date(text) else ["invalid date"]


def _datetime(text: str) -> list[str]:
    date, mark, rest = text.lower().partition("t")
    match = _time(rest.partition("t")[0]) if mark and _is_date(date) else None
    right = match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"
    return [] if right else ["invalid datetime"]


FORMATS = {
    "dns1123Label": Format("DNS1123Label", names.dns_label, 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", names.dns_subdomain, 60),
    "dns1035Label": Format("DNS1035Label", names.old_dns_label, 30),
    "qualifiedName": Format("QualifiedName", names.label_key, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _prefix(names.dns_label), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _prefix(names.dns_subdomain), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _prefix(names.old_dns_label), 30),
    "labelValue": Format("LabelValue", names.label_value, 40),
    "uri": Format("URI", _uri, 1103),
    "uuid": Format("uuid", _uuid, len(_UUID)),
    "byte": Format("byte", _byte, 84),
    "date": Format("date", _date_format, len(_TIME)),
    "datetime": Format("datetime", _datetime, len(_TIME)),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(form: Format, text: str) -> Optional:
    problems = form.validate(text)
    return Optional(problems) if problems else NONE


# Costs


def _validating_estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(estimator.size(arguments[0]).scaled(TRAVERSAL).scaled(_PATTERN * REGEX))


def _validating_charge(values: Sequence[Value], _result: Value) -> int | None:
    form, text = values
    if not isinstance(form, Format):
        return None
    return math.ceil((1.0 + size(text)) * TRAVERSAL) * math.ceil(form.pattern * REGEX)


def _equality_estimate(_estimator: Estimator, _target: Node | None, _arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(Range(1, _NAME).scaled(TRAVERSAL))


_VALIDATING = Cost(_validating_estimate, _validating_charge)


def _constant(name: str, form: Format) -> Function:
    return Function(f"format.{name}", (function(f"format.{name}", (), FORMAT, lambda: form, cost=DEFAULT),))


LIBRARY = Library(
    name="kubernetes.format",
    types=(FORMAT,),
    equality={FORMAT: _equality_estimate},
    functions=(
        Function(
            "validate",
            (
                member(
                    "format-validate",
                    (FORMAT, STRING),
                    optional_of(list_of(STRING)),
                    _validate,
                    cost=_VALIDATING,
                ),
            ),
        ),
        Function("format.named", (function("format-named", (STRING,), optional_of(FORMAT), _named, cost=NOMINAL),)),
        *(_constant(name, form) for name, form in FORMATS.items()),
    ),
)
