"""Check objects against the rules of their schema (`x-kubernetes-validations`).

Only the parts of a schema that hold rules are walked. Programs are compiled once, when they are first needed.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/validation.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.apimachinery.releases import Release
from apiserver.schema.structural import Rule, Structural
from apiserver.structural import rule_programs
from apiserver.structural.correlation import Correlated, KeyedItems
from apiserver.structural.holders import Holders
from apiserver.structural.rule_programs import OLD, Compiled
from kubecel.kubernetes import schemas
from kubecel.kubernetes.schemas import Reader
from kubecel.libraries.strings import SPACE
from kubecel.plan.program import Program
from kubecel.values.errors import CostExceeded, EvaluationError
from kubecel.values.values import Lazy, Optional, Unsupported, Value
from kubetext import printing

BUDGET = 10_000_000
"""The cost limit of all rules for one object (kubernetes/apiserver `pkg/apis/cel/config.go` RuntimeCELCostBudget)."""
MESSAGE_BYTES = 5 << 10
"""The greatest length of the result of a message expression (MaxEvaluatedMessageExpressionSizeBytes)."""

_NO_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_NO_MESSAGE_BUDGET = (
    "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
)


def _unsaid(text: str) -> None:
    return None


def _go_on() -> None:
    return None


def compiled(schema: Structural, *, release: Release) -> Rules | None:
    """Return the rules of a custom resource's schema, None without any."""
    root = _node(schema, release, resource=True)
    return None if root is None else Rules(root)


class Rules:
    """The rules of one schema. Safe in any number of threads."""

    def __init__(self, root: _Node) -> None:
        self._root = root
        self._prepared = False

    def prepare(self) -> None:
        """Compile every program, unless that was done. Takes milliseconds for each rule, so it belongs into a thread."""
        if not self._prepared:
            for node in self._root.below():
                node.programs  # noqa: B018 - the property compiles
            self._prepared = True

    def errors(
        self,
        new: Mapping[str, Any],
        old: Mapping[str, Any] | None,
        *,
        api_version: str,
        kind: str,
        path: Path = ROOT,
        warn: Callable[[str], None] = _unsaid,
        checkpoint: Callable[[], None] = _go_on,
    ) -> Iterator[FieldError]:
        """Yield the errors of an object without `apiVersion` and `kind`. `old` is the stored one, None on create.

        `warn` gets a rule that fails where nothing changed, unless it compares with the old value. `checkpoint` is called
        between steps of long evaluations: it may raise to end them. Call again then, from the beginning.
        """
        named = {"apiVersion": api_version, "kind": kind}
        document = {**new, **named}
        at = _At(path, document)
        if old is not None:
            former = {**old, **named}
            at = _At(path, document, former, _Unchanged(Correlated(self._root.schema, document, former)))
        yield from _Run(warn, checkpoint).check(self._root, at)


def value_errors(
    schema: Structural,
    value: Any,
    *,
    path: Path,
    resource: bool,
    release: Release,
    budget: int,
    checkpoint: Callable[[], None] = _go_on,
) -> tuple[Sequence[FieldError], int]:
    """Return the errors of a default, which must obey the rules of its schema, and the rest of the cost budget, -1 if it is used up.

    It must obey as a new value and as an unchanged one. Upstream: `pkg/apiserver/schema/defaulting/validation.go`.
    """
    root = _node(schema, release, resource=resource)
    if root is None:
        return (), budget
    run = _Run(_unsaid, checkpoint, budget)
    errors = list(run.check(root, _At(path, value, value)))
    if errors:
        return errors, run.left
    again = _Run(_unsaid, checkpoint, budget)
    return list(again.check(root, _At(path, value))), min(run.left, again.left)


# Nodes


def _fail(reason: str) -> Value:
    raise EvaluationError(reason)


@dataclass(slots=True, eq=False)
class _Node:
    """A node with rules, or with rules below it. Its programs, and `read`, which reads its values, are made when they are first needed."""

    schema: Structural
    release: Release
    resource: bool
    members: Mapping[str, _Node]
    additional: _Node | None
    items: _Node | None
    failure: str = ""
    read: Reader = _fail
    _programs: Sequence[Compiled] | None = None

    @property
    def programs(self) -> Sequence[Compiled]:
        """The compiled rules. None can be used if `failure` says why."""
        if self._programs is None:
            self._programs = self._compiled()
        return self._programs

    def _compiled(self) -> Sequence[Compiled]:
        if not self.schema.rules:
            return ()
        self.read = schemas.reader(self.schema.source, resource=self.resource, release=self.release)
        declared = rule_programs.declared(self.schema, resource=self.resource, release=self.release)
        if declared is None:
            self.failure = "failed to convert to declType for CEL validation rules"
            return ()
        return rule_programs.compiled(self.schema, declared, release=self.release, stored=True)

    def below(self) -> Iterator[_Node]:
        """Yield this node and all below it."""
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += node.members.values()
            left += [inner for inner in (node.additional, node.items) if inner is not None]


def _node(schema: Structural, release: Release, *, resource: bool) -> _Node | None:
    return _ruled(schema, Holders(schema, lambda node: bool(node.rules)), release, resource=resource)


def _ruled(node: Structural | None, ruled: Holders, release: Release, *, resource: bool) -> _Node | None:
    if node is None or not (node.rules or node in ruled):
        return None
    members = {
        name: inner
        for name, its in node.properties.items()
        if (inner := _ruled(its, ruled, release, resource=its.embedded)) is not None
    }
    additional, items = (
        None if its is None else _ruled(its, ruled, release, resource=its.embedded)
        for its in (node.additional, node.items)
    )
    return _Node(node, release, resource, members, additional, items)


# Ratcheting


class _Unchanged(NamedTuple):
    """Says whether a value is unchanged: `node`, or the closest correlated value around it if it has no counterpart (ratchetingOptions)."""

    node: Correlated | None = None
    around: Correlated | None = None

    def __call__(self) -> bool:
        node = self.around if self.node is None else self.node
        return node is not None and node.unchanged

    def member(self, name: str) -> _Unchanged:
        if self.node is None:
            return self
        if self.around is None and name in ("apiVersion", "kind"):
            return _NEVER
        return _Unchanged(self.node.member(name), self.node)

    def item(self, index: int) -> _Unchanged:
        return self if self.node is None else _Unchanged(self.node.item(index), self.node)


_NEVER = _Unchanged()


class _At(NamedTuple):
    """A value on the walk: where it is, the old value at the same place, and whether it is unchanged."""

    path: Path
    new: Any
    old: Any = None
    unchanged: _Unchanged = _NEVER


# Evaluation


class _OutOfBudget(Exception):
    """No further rule is checked."""


class _MessageFailed(Exception):
    """The message expression has no usable result."""


class _Run:
    """One check of one object. `left` is the rest of its cost budget, negative once it is used up."""

    def __init__(self, warn: Callable[[str], None], checkpoint: Callable[[], None], budget: int = BUDGET) -> None:
        self.left = budget
        self._warn = warn
        self._checkpoint = checkpoint

    def _cancelled(self) -> bool:
        self._checkpoint()
        return False

    def check(self, node: _Node, at: _At) -> Iterator[FieldError]:
        """Yield the errors of a value and of everything below it."""
        if at.new is None:
            return
        if node.schema.rules:
            yield from self._rules(node, at)
        if type(at.new) is dict:
            below = _members(node, at)
        elif type(at.new) is list and node.items is not None:
            below = _items(node.items, node.schema, at)
        else:
            return
        for inner, place in below:
            if self.left < 0:
                return
            yield from self.check(inner, place)

    def _rules(self, node: _Node, at: _At) -> Iterator[FieldError]:
        self._checkpoint()
        programs, path, shown = node.programs, at.path, node.schema.type
        if node.failure:
            yield _invalid(path, shown, f"rule compiler initialization error: {node.failure}")
            return
        if self.left <= 0:
            self.left = -1
            yield _invalid(path, shown, _NO_BUDGET)
            return
        variables: dict[str, Value] = {"self": _typed(at.new, node.read)}
        for compiled in programs:
            rule, expression = compiled.rule, compiled.expression
            if expression is None:
                continue
            if expression.program is None:
                yield _invalid(path, shown, f"rule compile error: {expression.error}")
                continue
            if expression.uses_old:
                if at.old is None and not rule.optional_old_self:
                    continue
                convert = _optional if rule.optional_old_self else _typed
                variables[OLD] = convert(at.old, node.read)
            held, failure, cost = self._evaluated(expression.program, variables)
            if cost > self.left:
                self.left = -1
                yield _invalid(path, shown, _NO_BUDGET)
                return
            self.left -= cost
            if failure is not None:
                yield _invalid(path, shown, _failed(failure, rule))
                if isinstance(failure, CostExceeded):
                    self.left = -1
                    return
            elif held is not True:
                error = self._error(node, compiled, variables, at)
                if not compiled.uses_old and at.unchanged():
                    self._warn(str(error))
                else:
                    yield error
                if self.left < 0:
                    return

    def _evaluated(
        self, program: Program, variables: Mapping[str, Value]
    ) -> tuple[Value, EvaluationError | CostExceeded | None, int]:
        """Return the result of a program, or why it has none, and its cost."""
        try:
            value, cost = program.evaluate(variables, cancelled=self._cancelled)
        except (EvaluationError, CostExceeded) as e:
            return None, e, e.cost
        return value, None, cost

    def _error(self, node: _Node, compiled: Compiled, variables: Mapping[str, Value], at: _At) -> FieldError:
        """Return the error of a rule that does not hold."""
        rule, shown = compiled.rule, node.schema.type
        path = at.path.child(compiled.field_path) if compiled.field_path else at.path
        detail = _message(rule)
        if compiled.message is not None and compiled.message.program is not None:
            try:
                detail = self._message(compiled.message.program, rule.message_expression, variables)
            except _OutOfBudget as e:
                return _invalid(path, shown, str(e))
            except _MessageFailed:
                pass
        return _reported(path, None if shown in ("object", "array") else _Value(at.new), detail, rule.reason)

    def _message(self, program: Program, text: str, variables: Mapping[str, Value]) -> str:
        """Return the result of a message expression. Raises _MessageFailed, or _OutOfBudget when nothing is left."""
        result, failure, cost = self._evaluated(program, variables)
        if cost > self.left:
            self.left = -1
            raise _OutOfBudget(_NO_MESSAGE_BUDGET)
        if isinstance(failure, CostExceeded):
            self.left = -1
            raise _OutOfBudget(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: "
                f"{fieldpath.show(text)}"
            )
        self.left -= cost
        message = result.strip(SPACE) if isinstance(result, str) else ""
        if failure is not None or not message or "\n" in message or len(message.encode()) > MESSAGE_BYTES:
            raise _MessageFailed
        return message


def _members(node: _Node, at: _At) -> Iterator[tuple[_Node, _At]]:
    """Yield the members of an object whose schemas hold rules."""
    new, old = at.new, at.old if type(at.old) is dict else {}
    if node.additional is not None:
        for name, value in new.items():
            yield node.additional, _At(at.path.key(name), value, old.get(name), at.unchanged.member(name))
    for name, inner in node.members.items():
        if (value := new.get(name)) is not None:
            yield inner, _At(at.path.child(name), value, old.get(name), at.unchanged.member(name))


def _items(node: _Node, schema: Structural, at: _At) -> Iterator[tuple[_Node, _At]]:
    """Yield the items of a list. Those of list maps correlate by their keys."""
    keyed = KeyedItems(schema, at.old) if type(at.old) is list else None
    for index, value in enumerate(at.new):
        old = None if keyed is None else keyed.get(value)
        yield node, _At(at.path.index(index), value, old, at.unchanged.item(index))


def _typed(document: Any, read: Reader) -> Value:
    """Return a value as expressions see it. One that does not fit the schema is an error where it is read."""
    try:
        return read(document)
    except EvaluationError as e:
        return Lazy(functools.partial(_fail, str(e)))


def _optional(document: Any, read: Reader) -> Optional:
    if document is None:
        return Optional()
    try:
        return Optional(read(document))
    except EvaluationError as e:
        return Optional(Unsupported(str(e)))


# Texts


class _Value(NamedTuple):
    """A value that an error shows."""

    value: Any


def _failed(failure: EvaluationError | CostExceeded, rule: Rule) -> str:
    named = rule.message.strip(SPACE) if rule.message else rule.rule.strip(SPACE)
    text = str(failure)
    if isinstance(failure, CostExceeded):
        return f"'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {named}"
    if text.startswith("no such overload"):
        return f"'{text}': call arguments did not match a supported operator, function or macro signature for rule: {named}"
    return f"{text} evaluating rule: {named}"


def _message(rule: Rule) -> str:
    return rule.message.strip(SPACE) if rule.message else f"failed rule: {rule.rule.strip(SPACE)}"


def _place(path: Path) -> Path | str:
    """Return a path as errors print it: upstream has none for the root."""
    return "<nil>" if path is ROOT else path


def _invalid(path: Path, value: Any, detail: str) -> FieldError:
    return fieldpath.invalid(_place(path), value, detail)


def _reported(path: Path, value: _Value | None, detail: str, reason: str) -> FieldError:
    """Return the error of a rule, with its value if there is one."""
    place = _place(path)
    if reason == fieldpath.FORBIDDEN:
        return fieldpath.forbidden(place, detail)
    if reason == fieldpath.REQUIRED:
        return fieldpath.required(place, detail)
    shown = "" if value is None else f": {_shown(value.value)}"
    if reason == fieldpath.DUPLICATE:
        return FieldError(fieldpath.DUPLICATE, str(place), f"Duplicate value{shown}")
    return FieldError(fieldpath.INVALID, str(place), f"Invalid value{shown}: {detail}")


def _shown(value: Any) -> str:
    return printing.plain(value) if type(value) is float else fieldpath.show(value)
