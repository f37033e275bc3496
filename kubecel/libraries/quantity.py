"""`quantity("1.5Gi")`: Kubernetes quantities, compared and added exactly.

Upstream: kubernetes/apiserver `pkg/cel/library/quantity.go`, `pkg/cel/quantity.go`.
"""

from __future__ import annotations

from kubecel.check.declarations import Function, Library
from kubecel.libraries.costs import NOMINAL, READING, function, member, nominal_estimate
from kubecel.values.errors import EvaluationError
from kubecel.values.types import BOOL, DOUBLE, INT, STRING, struct
from kubecel.values.values import Value
from kubetext import quantity as amounts

QUANTITY = struct("kubernetes.Quantity")


class Quantity:
    """A quantity in an expression. `computed` ones are sums: upstream cannot compare with one on the right of `==`."""

    __slots__ = ("amount", "computed")

    cel_type = QUANTITY
    go_type = "cel.Quantity"
    go_native = "*resource.Quantity"

    def __init__(self, amount: amounts.Quantity, *, computed: bool = False) -> None:
        self.amount = amount
        self.computed = computed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity) or other.computed:
            raise EvaluationError("no such overload")
        return self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)

    def __str__(self) -> str:
        return str(self.amount)


def _quantity(text: str) -> Quantity:
    # A document may have white space around a quantity; a literal may not.
    if text != text.strip():
        raise EvaluationError(amounts.FORMAT_WRONG)
    try:
        return Quantity(amounts.parse(text))
    except amounts.QuantityError as error:
        raise EvaluationError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        _quantity(text)
    except EvaluationError:
        return False
    return True


def _compared(one: Quantity, other: Quantity) -> int:
    if one.amount == other.amount:
        return 0
    return -1 if one.amount < other.amount else 1


def _as_integer(value: Quantity) -> int:
    number = value.amount.as_int64()
    if number is None:
        raise EvaluationError("cannot convert value to integer")
    return number


def _operand(value: Value) -> amounts.Quantity:
    if isinstance(value, Quantity):
        return value.amount
    return amounts.Quantity(int(value), format=amounts.DECIMAL_EXPONENT)


def _sum(one: Quantity, other: Value) -> Quantity:
    try:
        return Quantity(one.amount + _operand(other), computed=True)
    except OverflowError as error:
        raise EvaluationError(str(error)) from None


def _difference(one: Quantity, other: Value) -> Quantity:
    try:
        return Quantity(one.amount - _operand(other), computed=True)
    except OverflowError as error:
        raise EvaluationError(str(error)) from None


_PAIR = (QUANTITY, QUANTITY)

LIBRARY = Library(
    name="kubernetes.quantity",
    types=(QUANTITY,),
    equality={QUANTITY: nominal_estimate},
    functions=(
        Function("quantity", (function("string_to_quantity", (STRING,), QUANTITY, _quantity, cost=READING),)),
        Function("isQuantity", (function("is_quantity_string", (STRING,), BOOL, _is_quantity, cost=READING),)),
        Function("sign", (function("quantity_sign", (QUANTITY,), INT, lambda q: q.amount.sign(), cost=NOMINAL),)),
        Function(
            "isGreaterThan",
            (member("quantity_is_greater_than", _PAIR, BOOL, lambda a, b: _compared(a, b) == 1, cost=NOMINAL),),
        ),
        Function(
            "isLessThan",
            (member("quantity_is_less_than", _PAIR, BOOL, lambda a, b: _compared(a, b) == -1, cost=NOMINAL),),
        ),
        Function("compareTo", (member("quantity_compare_to", _PAIR, INT, _compared, cost=NOMINAL),)),
        Function(
            "asApproximateFloat",
            (member("quantity_get_float", (QUANTITY,), DOUBLE, lambda q: q.amount.approximate(), cost=NOMINAL),),
        ),
        Function("asInteger", (member("quantity_get_int", (QUANTITY,), INT, _as_integer, cost=NOMINAL),)),
        Function(
            "isInteger",
            (
                member(
                    "quantity_is_integer",
                    (QUANTITY,),
                    BOOL,
                    lambda q: q.amount.as_int64() is not None,
                    cost=NOMINAL,
                ),
            ),
        ),
        Function(
            "add",
            (
                member("quantity_add", _PAIR, QUANTITY, _sum, cost=NOMINAL),
                member("quantity_add_int", (QUANTITY, INT), QUANTITY, _sum, cost=NOMINAL),
            ),
        ),
        Function(
            "sub",
            (
                member("quantity_sub", _PAIR, QUANTITY, _difference, cost=NOMINAL),
                member("quantity_sub_int", (QUANTITY, INT), QUANTITY, _difference, cost=NOMINAL),
            ),
        ),
    ),
)
