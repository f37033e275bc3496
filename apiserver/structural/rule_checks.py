"""Check the rules of a definition: their texts, their expressions, and what they may cost.

Upstream: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/{validation,cel_validation}.go`.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.releases import Release
from apiserver.schema import structural
from apiserver.schema.structural import Rule, Source, Structural
from apiserver.structural import rule_paths, rule_programs
from apiserver.structural.holders import Holders
from apiserver.structural.rule_programs import Compiled
from kubecel.check.declarations import UNLIMITED
from kubecel.libraries.strings import SPACE

EXPRESSION_COST = 10_000_000
"""The greatest estimated cost of one expression (StaticEstimatedCostLimit)."""
DEFINITION_COST = 100_000_000
"""The greatest estimated cost of all expressions of a schema (StaticEstimatedCRDCostLimit)."""

_RULES = "x-kubernetes-validations"
_REASONS = (fieldpath.DUPLICATE, fieldpath.FORBIDDEN, fieldpath.INVALID, fieldpath.REQUIRED)
_LINE_BREAK = re.compile(r"[\n\r]")
_REMEDY = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
_DEAREST = 4
"""Expressions that are named when all together cost too much (TotalCost.MostExpensive)."""


def _no_errors(source: Source) -> bool:
    return False


def _go_on() -> None:
    return None


def _has_rules(node: Structural) -> bool:
    return bool(node.rules)


def text_problems(source: Source, path: Path) -> Iterator[FieldError]:
    """Yield what is wrong with the rules of one node, without a look at their expressions. `path` is the node's.

    The node may be part of a junctor. Its JSON has the types that a JSONSchemaProps has.
    """
    schema = None
    for index, rule in enumerate(source.get(_RULES) or ()):
        at = path.child(_RULES).index(index)
        yield from _text_problems(rule, at)
        if field_path := rule.get("fieldPath") or "":
            schema = structural.of(source) if schema is None else schema
            try:
                rule_paths.resolve(field_path, schema)
            except rule_paths.PathError:
                yield fieldpath.invalid(at.child("fieldPath"), field_path, "must be a valid path")


def _text_problems(rule: Source, at: Path) -> Iterator[FieldError]:
    text, message, expression, field_path = (
        rule.get(name) or "" for name in ("rule", "message", "messageExpression", "fieldPath")
    )
    shown = message.strip(SPACE)
    if not text.strip(SPACE):
        yield fieldpath.required(at.child("rule"), "rule is not specified")
    elif message and not shown:
        yield fieldpath.invalid(at.child("message"), message, "must be non-empty if specified")
    elif _LINE_BREAK.search(shown):
        yield fieldpath.invalid(at.child("message"), message, "must not contain line breaks")
    elif _LINE_BREAK.search(text.strip(SPACE)) and not shown:
        yield fieldpath.required(at.child("message"), "message must be specified if rule contains line breaks")
    if expression and not expression.strip(SPACE):
        yield fieldpath.required(at.child("messageExpression"), "messageExpression must be non-empty if specified")
    if (reason := rule.get("reason")) is not None and reason not in _REASONS:
        yield fieldpath.not_supported(at.child("reason"), reason, _REASONS)
    if field_path and not field_path.strip(SPACE):
        yield fieldpath.invalid(at.child("fieldPath"), field_path, "must be non-empty if specified")
    if _LINE_BREAK.search(field_path):
        yield fieldpath.invalid(at.child("fieldPath"), field_path, "must not contain line breaks")


def problems(
    schema: Structural,
    path: Path,
    *,
    release: Release,
    flawed: Callable[[Source], bool] = _no_errors,
    checkpoint: Callable[[], None] = _go_on,
) -> Iterator[FieldError]:
    """Yield what is wrong with the expressions of all rules of a version's schema, and the cost of all together. `path` is the schema's.

    They need types, so upstream looks at them only where it found no other error:

    * call it only if the schema is structural, and its defaults are valid.
    * `flawed` says of a node's JSON whether an error was found at the node or below it. The rules of such a node are left out.

    Yields errors in the order of the schema, those of members before their object's, and those of the whole last. A check takes
    milliseconds for each rule, so it belongs into a thread. `checkpoint` is called between rules: it may raise to end the check.
    """
    total = _Total()
    ruled = Holders(schema, _has_rules)
    yield from _Check(release, flawed, checkpoint, total=total, ruled=ruled).node(schema, _Scope(path, root=True))
    if total.cost > DEFINITION_COST:
        for at in total.dearest():
            yield fieldpath.forbidden(
                at, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            )
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield fieldpath.forbidden(path, _too_dear(what, total.cost, DEFINITION_COST))


class _Scope(NamedTuple):
    """The context of a node, from the nodes around it (CELSchemaContext).

    * `most`: how many of its values one object can hold, None if their parents have no limit.
    * `inside`: a node around it has rules. `hidden`: expressions of that node cannot see its parent.
    * `uncorrelated`: the path of the outermost list around it whose items have no old values.
    """

    path: Path
    root: bool = False
    most: int | None = 1
    inside: bool = False
    hidden: bool = False
    uncorrelated: Path | None = None


class _Check:
    """One check of one schema."""

    def __init__(
        self,
        release: Release,
        flawed: Callable[[Source], bool],
        checkpoint: Callable[[], None],
        *,
        total: _Total,
        ruled: Holders,
    ) -> None:
        self._ruled = ruled
        self._release = release
        self._flawed = flawed
        self._checkpoint = checkpoint
        self._total = total

    def node(self, schema: Structural, scope: _Scope) -> Iterator[FieldError]:
        if not schema.rules and schema not in self._ruled:
            return
        inside = scope.inside or bool(schema.rules)
        hidden = scope.hidden or (inside and not _visible(schema))
        most = _product(scope.most, _factor(schema))
        inner = scope._replace(root=False, most=most, inside=inside, hidden=hidden)
        if schema.additional is not None:
            yield from self.node(schema.additional, inner._replace(path=scope.path.child("additionalProperties")))
        for name, its in schema.properties.items():
            yield from self.node(its, inner._replace(path=scope.path.child("properties").key(name)))
        if schema.items is not None:
            inner = inner._replace(path=scope.path.child("items"))
            if schema.list_type != "map" and inner.uncorrelated is None:
                inner = inner._replace(uncorrelated=scope.path)
            yield from self.node(schema.items, inner)
        if schema.rules and not self._flawed(schema.source):
            yield from self._rules(schema, scope, hidden=hidden)

    def _rules(self, schema: Structural, scope: _Scope, *, hidden: bool) -> Iterator[FieldError]:
        self._checkpoint()
        at = scope.path.child(_RULES)
        resource = scope.root or schema.embedded
        declared = rule_programs.declared(schema, resource=resource, release=self._release)
        if hidden or declared is None:
            yield fieldpath.internal(
                at,
                "internal error: failed to construct type information for x-kubernetes-validations rules: "
                "unable to convert structural schema to CEL declarations",
            )
            return
        most = declared.most if scope.most is None else scope.most
        compiled = rule_programs.compiled(schema, declared, release=self._release, stored=False, estimated=True)
        for index, rule in enumerate(compiled):
            yield from self._rule(rule, scope, at.index(index), most)

    def _rule(self, compiled: Compiled, scope: _Scope, at: Path, most: int) -> Iterator[FieldError]:
        rule, expression, message = compiled.rule, compiled.expression, compiled.message
        if expression is None:
            return
        cost = min(expression.cost * most, UNLIMITED)
        if cost > EXPRESSION_COST:
            yield fieldpath.forbidden(at.child("rule"), _too_dear("estimated rule cost", cost, EXPRESSION_COST))
        self._total.add(at.child("rule"), cost)
        if expression.error:
            yield fieldpath.invalid(at.child("rule"), _as_go(rule), expression.error)
        if message is not None and message.error:
            yield fieldpath.invalid(at.child("messageExpression"), _as_go(rule), message.error)
        elif message is not None:
            if message.cost > EXPRESSION_COST:
                what = "estimated messageExpression cost"
                yield fieldpath.forbidden(at.child("messageExpression"), _too_dear(what, message.cost, EXPRESSION_COST))
            self._total.add(at.child("messageExpression"), message.cost)
        if expression.uses_old:
            if scope.uncorrelated is not None:
                detail = (
                    f"oldSelf cannot be used on the uncorrelatable portion of the schema within {scope.uncorrelated}"
                )
                yield fieldpath.invalid(at.child("rule"), rule.rule, detail)
        elif rule.optional_old_self is not None:
            detail = "may not be set if oldSelf is not used in rule"
            yield fieldpath.invalid(at.child("optionalOldSelf"), rule.optional_old_self, detail)


def _visible(schema: Structural) -> bool:
    """Return whether expressions can see values of this node."""
    while not schema.int_or_string:
        if schema.type == "array" and schema.items is not None:
            schema = schema.items
        elif schema.type == "object" and schema.additional is not None:
            schema = schema.additional
        else:
            return schema.type in ("boolean", "integer", "number", "object", "string")
    return True


def _factor(schema: Structural) -> int | None:
    """Return how many values of a member or item one value of this node can hold, None without a limit (extractMaxElements)."""
    if schema.type == "array":
        limit = schema.source.get("maxItems")
    elif schema.type == "object" and schema.source.get("additionalProperties") is not None:
        limit = schema.source.get("maxProperties")
    else:
        return 1
    return None if limit is None else max(int(limit), 0)


def _product(most: int | None, factor: int | None) -> int | None:
    return None if most is None or factor is None else min(most * factor, UNLIMITED)


class _Total:
    """The cost of all expressions of a schema."""

    def __init__(self) -> None:
        self.cost = 0
        self._dear: list[tuple[int, Path]] = []

    def add(self, at: Path, cost: int) -> None:
        self.cost = min(self.cost + cost, UNLIMITED)
        if cost >= DEFINITION_COST // 100:
            self._dear.append((cost, at))

    def dearest(self) -> list[Path]:
        """Return the places of the dearest expressions, the dearest first."""
        return [at for _, at in heapq.nlargest(_DEAREST, self._dear, key=lambda each: each[0])]


def _too_dear(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        times = "more than 100x"
    elif factor < 1.5:
        times = f"{factor:f}x"
    else:
        times = f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {times} {_REMEDY}"


def _as_go(rule: Rule) -> dict[str, Any]:
    """Return a rule as upstream's errors show it, which is the JSON of an internal type."""
    return {
        "Rule": rule.rule,
        "Message": rule.message,
        "MessageExpression": rule.message_expression,
        "Reason": rule.reason or None,
        "FieldPath": rule.field_path,
        "OptionalOldSelf": rule.optional_old_self,
    }
