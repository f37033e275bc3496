"""Build trees of invalid or deep texts, and collect all their errors.

It turns the result of `recognizer` into a tree as far as possible, because literals, reserved words and macros may be
wrong too. Upstream: google/cel-go `parser/parser.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubecel.parse.ast import Ast, Call, Entry, Expr, FieldEntry, Ident, ListExpr, Literal, MapExpr, Select, StructExpr
from kubecel.parse.language import CONSTANTS, LITERALS, MAX_DEPTH, OPERATORS, RESERVED, balanced
from kubecel.parse.lexer import Word
from kubecel.parse.literals import LiteralError
from kubecel.parse.macros import Ids, MacroError, Macros, TooManyNodes
from kubecel.parse.recognizer import Node, Recognizer, Stopped
from kubecel.parse.source import CompileError, Issue, Source
from kubecel.values.stackless import Task, run

# The position of a node that has none.
_NOWHERE = -1

# Nodes that pass on one of their parts unless they have an operator.
_TRANSPARENT = frozenset(
    (
        *("start", "expr", "conditionalOr", "conditionalAnd", "relation", "calc"),
        *("MemberExpr", "PrimaryExpr", "Nested", "ConstantLiteral"),
    )
)
# Nodes that count for MAX_DEPTH when they have an operator.
_NESTING = frozenset(("expr", "relation", "calc", "Select", "MemberCall", "Index"))


def parse(source: Source, *, macros: Macros, optional_syntax: bool = True, escaped_fields: bool = False) -> Ast:
    """Return the tree of an expression. Raises CompileError with all errors."""
    recognizer = Recognizer(source)
    issues = recognizer.issues
    ids = Ids(len(source.text))
    builder = _Builder(ids, issues, macros, optional_syntax=optional_syntax, escaped_fields=escaped_fields)
    try:
        expr: Expr = run(builder.expression(recognizer.read()))
    except Stopped:
        raise CompileError(source, issues) from None
    except TooManyNodes as error:
        raise CompileError(source, [*issues, Issue(None, str(error))]) from None
    if issues:
        raise CompileError(source, issues)
    return Ast(expr, source, ids.positions)


class _Builder:
    """Builds a tree of nodes, with ids in cel-go's order.

    Null stands for a part that is no expression. Its error has been reported.
    """

    def __init__(
        self, ids: Ids, issues: list[Issue], macros: Macros, *, optional_syntax: bool, escaped_fields: bool
    ) -> None:
        self._ids = ids
        self._issues = issues
        self._macros = macros
        self._optional = optional_syntax
        self._escaped = escaped_fields
        self._depth = 0

    def expression(self, node: Node | None) -> Task:
        """Return the tree of a node."""
        while node and node.name in _TRANSPARENT and "op" not in node.parts and "ops" not in node.parts:
            node = node.node("e")
        if node is None:
            return self._unknown(_NOWHERE)
        make = _MAKERS.get(node.name)
        if make is None:
            return self._leaf(node)
        if node.name not in _NESTING:
            return (yield make(self, node))
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._issues.append(Issue(None, "max recursion depth exceeded"))
            raise Stopped
        expr = yield make(self, node)
        self._depth -= 1
        return expr

    def _id(self, word: Word | None) -> int:
        return self._ids.new(word.offset if word else _NOWHERE)

    def _unknown(self, offset: int) -> Expr:
        return Literal(self._ids.new(offset), None)

    def _wrong(self, offset: int | None, message: str) -> Expr:
        """Report an error, and return the placeholder of the expression."""
        unknown = self._unknown(_NOWHERE if offset is None else offset)
        self._issues.append(Issue(offset, message, unknown.id))
        return unknown

    def _called(self, call: Call) -> Expr:
        try:
            return self._macros.expand(self._ids, call) or call
        except MacroError as error:
            return self._wrong(self._ids.positions.get(error.expression), error.message)

    def _conditional(self, node: Node) -> Task:
        condition = yield self.expression(node.node("e"))
        expression = self._id(node.word("op"))
        chosen = yield self.expression(node.node("e1"))
        other = yield self.expression(node.node("e2"))
        return Call(expression, "_?_:_", None, [condition, chosen, other])

    def _logical(self, node: Node) -> Task:
        terms: list[Expr] = [(yield self.expression(node.node("e")))]
        signs: list[int] = []
        for word, term in zip(node.words("ops"), node.nodes("e1"), strict=True):
            expr = yield self.expression(term)
            terms.append(expr)
            signs.append(self._id(word))
        return balanced("_||_" if node.name == "conditionalOr" else "_&&_", terms, signs)

    def _binary(self, node: Node) -> Task:
        left = yield self.expression(node.node("left"))
        word = node.words("op")[0]
        expression = self._id(word)
        right = yield self.expression(node.node("right"))
        return Call(expression, OPERATORS[word.kind][1], None, [left, right])

    def _negated(self, node: Node) -> Task:
        """Build a negation. An even number of signs cancels out."""
        signs = node.words("ops")
        if len(signs) % 2 == 0:
            return (yield self.expression(node.node("e")))
        expression = self._id(signs[0])
        operand = yield self.expression(node.node("e"))
        return Call(expression, "!_" if node.name == "LogicalNot" else "-_", None, [operand])

    def _selected(self, node: Node) -> Task:
        operand = yield self.expression(node.node("left"))
        identifier, word = node.node("id"), node.word("op")
        if identifier is None or word is None:
            return self._unknown(node.offset)
        name = self._field_name(identifier)
        if name is None:
            name = ""
            self._wrong(identifier.offset, _no_field(identifier))
        if "opt" not in node.parts:
            return Select(self._id(word), operand, name)
        if not self._optional:
            return self._wrong(word.offset, "unsupported syntax '.?'")
        field = Literal(self._ids.new(identifier.offset), name)
        return Call(self._id(word), "_?._", None, [operand, field])

    def _field_name(self, node: Node | None) -> str | None:
        """Return the name of a field that a node spells, None if it spells none."""
        if node is not None and node.name == "SimpleIdentifier":
            return node.words("id")[0].text
        if node is not None and node.name == "EscapedIdentifier" and self._escaped:
            return node.words("id")[0].text[1:-1]
        return None

    def _member_call(self, node: Node) -> Task:
        target = yield self.expression(node.node("left"))
        name = node.word("id")
        if name is None:
            return self._unknown(node.offset)
        expression = self._id(node.word("open"))
        arguments = yield self._arguments(node)
        return self._called(Call(expression, name.text, target, arguments))

    def _arguments(self, node: Node) -> Task:
        listed = node.node("args")
        arguments: list[Expr] = []
        for argument in listed.nodes("e") if listed else []:
            expr = yield self.expression(argument)
            arguments.append(expr)
        return arguments

    def _indexed(self, node: Node) -> Task:
        operand = yield self.expression(node.node("left"))
        word = node.word("op")
        if word is None:
            return self._unknown(node.offset)
        expression = self._id(word)
        index = yield self.expression(node.node("index"))
        optional = "opt" in node.parts
        if optional and not self._optional:
            return self._wrong(word.offset, "unsupported syntax '[?'")
        return Call(expression, "_[?_]" if optional else "_[_]", None, [operand, index])

    def _leaf(self, node: Node) -> Expr:
        if node.name == "Ident":
            return self._named(node) or self._unknown(node.offset)
        if node.name == "unary":
            return Literal(self._ids.new(node.offset), "<<error>>")
        word = node.word("tok")
        if word is None:
            return self._unknown(_NOWHERE)
        if word.kind in CONSTANTS:
            return Literal(self._ids.new(node.offset), CONSTANTS[word.kind])
        return self._literal(node, word)

    def _literal(self, node: Node, word: Word) -> Expr:
        sign = "-" if "sign" in node.parts else ""
        try:
            return Literal(self._ids.new(node.offset), LITERALS[word.kind](sign + word.text))
        except LiteralError as error:
            return self._wrong(node.offset, str(error))

    def _named(self, node: Node) -> Expr | None:
        """Return a name, or None without one."""
        word = node.word("id")
        if word is None:
            return None
        if word.text in RESERVED:
            return self._wrong(node.offset, f"reserved identifier: {word.text}")
        return Ident(self._id(word), ("." if "dot" in node.parts else "") + word.text)

    def _global_call(self, node: Node) -> Task:
        word = node.word("id")
        if word is None:
            return self._unknown(node.offset)
        if word.text in RESERVED:
            return self._wrong(node.offset, f"reserved identifier: {word.text}")
        expression = self._id(node.word("op"))
        arguments = yield self._arguments(node)
        return self._called(Call(expression, ("." if "dot" in node.parts else "") + word.text, None, arguments))

    def _list(self, node: Node) -> Task:
        expression = self._id(node.word("op"))
        listed = node.node("elems")
        elements: list[Expr] = []
        optional: list[int] = []
        for index, element in enumerate(listed.nodes("elems") if listed else []):
            expr = yield self.expression(element.node("e"))
            elements.append(expr)
            mark = element.word("opt")
            if mark and self._optional:
                optional.append(index)
            elif mark:
                self._wrong(mark.offset, "unsupported syntax '?'")
        return ListExpr(expression, elements, frozenset(optional))

    def _allowed(self, node: Node) -> bool:
        """Return whether a key or field may have its question mark."""
        if "opt" not in node.parts or self._optional:
            return True
        self._wrong(node.offset, "unsupported syntax '?'")
        return False

    def _map(self, node: Node) -> Task:
        expression = self._id(node.word("op"))
        listed = node.node("entries")
        entries: list[Entry] = []
        if listed:
            for key, word, value in zip(
                listed.nodes("keys"), listed.words("cols"), listed.nodes("values"), strict=False
            ):
                made = self._id(word)
                if self._allowed(key):
                    first = yield self.expression(key.node("e"))
                    second = yield self.expression(value)
                    entries.append(Entry(made, first, second, "opt" in key.parts))
        return MapExpr(expression, entries)

    def _struct(self, node: Node) -> Task:
        name = ".".join(word.text for word in node.words("ids"))
        expression = self._id(node.word("op"))
        listed = node.node("entries")
        fields: list[FieldEntry] = []
        if listed:
            for field, word, value in zip(
                listed.nodes("fields"), listed.words("cols"), listed.nodes("values"), strict=False
            ):
                made = self._id(word)
                identifier = field.node("id")
                if not self._allowed(field):
                    continue
                name_of_field = self._field_name(identifier)
                if name_of_field is None:
                    self._wrong(listed.offset, _no_field(identifier))
                    continue
                expr = yield self.expression(value)
                fields.append(FieldEntry(made, name_of_field, expr, "opt" in field.parts))
        return StructExpr(expression, ("." if "dot" in node.parts else "") + name, fields)


# Functions, not methods of a builder: one that refers to itself would be freed by the garbage collector only, and with it the tree.
_MAKERS: Mapping[str, Callable[[_Builder, Node], Task]] = {
    "expr": _Builder._conditional,
    "conditionalOr": _Builder._logical,
    "conditionalAnd": _Builder._logical,
    "relation": _Builder._binary,
    "calc": _Builder._binary,
    "LogicalNot": _Builder._negated,
    "Negate": _Builder._negated,
    "Select": _Builder._selected,
    "MemberCall": _Builder._member_call,
    "Index": _Builder._indexed,
    "GlobalCall": _Builder._global_call,
    "CreateList": _Builder._list,
    "CreateStruct": _Builder._map,
    "CreateMessage": _Builder._struct,
}


def _no_field(node: Node | None) -> str:
    """Return the reason why a node is not a field name."""
    return "unsupported syntax: '`'" if node and node.name == "EscapedIdentifier" else "unsupported ident kind"
