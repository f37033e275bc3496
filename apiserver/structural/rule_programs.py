"""Compile the rules of one node of a structural schema.

Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/compilation.go`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from apiserver.apimachinery.releases import Release
from apiserver.schema.structural import Rule, Structural
from apiserver.structural import rule_paths
from kubecel.check import cost
from kubecel.check.checker import Checked
from kubecel.check.environment import Environment
from kubecel.kubernetes import environments, schemas
from kubecel.kubernetes.environments import COST_LIMIT, RuleShapes
from kubecel.kubernetes.schemas import Declared
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values.errors import Panic, ProgramError
from kubecel.values.types import BOOL, STRING, Type

OLD = "oldSelf"

_SELF = f"selfType{random.SystemRandom().randrange(10**9)}"
"""The name of the type of `self`. Upstream chooses one at random, so that no expression can depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression: its `error`, or the program, its greatest cost, and whether it names `oldSelf`."""

    error: str = ""
    program: Program | None = None
    cost: int = 0
    uses_old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled rule.

    * `expression` is None for a rule without text.
    * `message` is the message expression, None without one, and where the rule itself is wrong.
    * `field_path` is what the rule's field path adds to paths of errors, "" without one.
    """

    rule: Rule
    expression: Expression | None = None
    message: Expression | None = None
    field_path: str = ""

    @property
    def uses_old(self) -> bool:
        """Whether this is a transition rule."""
        return self.expression is not None and self.expression.uses_old


def declared(schema: Structural, *, resource: bool, release: Release) -> Declared | None:
    """Return what expressions see of a node as `self`, None if they cannot see it.

    `resource`: the node is the root of a custom resource or of an embedded one.
    """
    return schemas.declared(schema.source, _SELF, resource=resource, release=release)


def compiled(
    schema: Structural, declared: Declared, *, release: Release, stored: bool, estimated: bool = False
) -> Sequence[Compiled]:
    """Compile the rules of a node, not those below it.

    * `stored`: the rules may use everything that the release has; new ones only what the release before had too.
    * `estimated`: work out the greatest cost of each expression. It is 0 otherwise.
    """
    shapes = RuleShapes(declared.shape) if estimated else None
    known: dict[bool, Environment] = {}

    def environment(*, optional: bool) -> Environment:
        if optional not in known:
            known[optional] = environments.rules(declared.shape, release, stored=stored, optional_old=optional)
        return known[optional]

    return [_rule(rule, schema, environment(optional=bool(rule.optional_old_self)), shapes) for rule in schema.rules]


def _rule(rule: Rule, schema: Structural, environment: Environment, shapes: RuleShapes | None) -> Compiled:
    if not rule.rule.strip():
        return Compiled(rule=rule)
    expression = _expression(
        rule.rule,
        environment,
        shapes,
        BOOL,
        uncompiled="compilation failed",
        mistyped="cel expression must evaluate to a bool",
        unplanned="program instantiation failed",
    )
    if expression.error:
        return Compiled(rule=rule, expression=expression)
    message = None
    if rule.message_expression:
        message = _expression(
            rule.message_expression,
            environment,
            shapes,
            STRING,
            uncompiled="messageExpression compilation failed",
            mistyped="messageExpression must evaluate to a string",
            unplanned="messageExpression instantiation failed",
        )
        if message.error:
            return Compiled(rule=rule, expression=expression, message=message)
    field_path = ""
    if rule.field_path:
        try:
            field_path = str(rule_paths.resolve(rule.field_path, schema)[0])
        except rule_paths.PathError:
            pass
    return Compiled(rule=rule, expression=expression, message=message, field_path=field_path)


def _expression(
    text: str,
    environment: Environment,
    shapes: RuleShapes | None,
    result: Type,
    *,
    uncompiled: str,
    mistyped: str,
    unplanned: str,
) -> Expression:
    try:
        checked = environment.compile(text)
    except CompileError as e:
        return Expression(error=f"{uncompiled}: {e}")
    if checked.output != result:
        return Expression(error=mistyped)
    uses_old = _names_old(checked)
    try:
        program = Program(checked, environment, cost_limit=COST_LIMIT)
    except (ProgramError, Panic) as e:
        return Expression(error=f"{unplanned}: {e}", uses_old=uses_old)
    most = 0 if shapes is None else cost.estimate(checked, environment, shapes).most
    return Expression(program=program, cost=most, uses_old=uses_old)


def _names_old(checked: Checked) -> bool:
    return any(reference.name == OLD for reference in checked.references.values())
