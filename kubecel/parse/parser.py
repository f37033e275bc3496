"""Parse expressions.

This module parses valid texts of moderate depth in one pass, by precedence. All other texts go to `syntax`, which
reports errors in cel-go's words and handles any depth. Upstream: google/cel-go `parser/{parser,helper}.go`,
`parser/gen/CEL.g4`.
"""

from __future__ import annotations

from kubecel.parse import syntax
from kubecel.parse.ast import Ast, Call, Entry, Expr, FieldEntry, Ident, ListExpr, Literal, MapExpr, Select, StructExpr
from kubecel.parse.language import CONSTANTS, LITERALS, MAX_DEPTH, MAX_SIZE, OPERATORS, RESERVED, SIGNED, balanced
from kubecel.parse.lexer import END, IDENTIFIER, Tokens, tokenize
from kubecel.parse.literals import LiteralError
from kubecel.parse.macros import Ids, MacroError, Macros, TooManyNodes
from kubecel.parse.source import CompileError, Issue, Source

# Limit of nested brackets and conditionals here. Each level takes a few frames of Python's stack.
_MAX_NESTING = 24

# Stands for "no operator".
_NONE = (0, "")


def parse(source: Source, *, macros: Macros, optional_syntax: bool = True, escaped_fields: bool = False) -> Ast:
    """Return the tree of an expression, with its macros expanded.

    `optional_syntax` allows `a.?b`, `a[?b]`, `[?a]` and `{?a: b}`, and `escaped_fields` names of fields in backticks.
    Raises CompileError.
    """
    tree = well_written(source, macros=macros, optional_syntax=optional_syntax)
    return tree or syntax.parse(source, macros=macros, optional_syntax=optional_syntax, escaped_fields=escaped_fields)


def well_written(source: Source, *, macros: Macros, optional_syntax: bool = True) -> Ast | None:
    """Return the tree of a valid expression of moderate depth, else None.

    It refuses a text in a hundredth of the time that `parse` takes. Raises CompileError for an expression that is too
    large.
    """
    size = len(source.text)
    if size > MAX_SIZE:
        issue = Issue(None, f"expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}", 1)
        raise CompileError(source, (issue,))
    tokens = tokenize(source.text)
    if tokens is None:
        return None
    reader = _Reader(tokens, size, macros, optional_syntax=optional_syntax)
    try:
        return Ast(reader.read(), source, reader.positions)
    except (_NotSimple, LiteralError, MacroError):
        return None
    except TooManyNodes as error:
        raise CompileError(source, (Issue(None, str(error)),)) from None


class _NotSimple(Exception):
    """The text is invalid or too deep, and `syntax` must read it."""


class _Reader:
    """Reads the tokens of an expression from left to right.

    Ids are in cel-go's order. An operator gets its id after its left side, a bracket before its content, `&&` and `||`
    after their right side.
    """

    __slots__ = (
        "_at",
        "_expand",
        "_height",
        "_ids",
        "_kinds",
        "_macros",
        "_nesting",
        "_new",
        "_offsets",
        "_optional",
        "_texts",
    )

    def __init__(self, tokens: Tokens, size: int, macros: Macros, *, optional_syntax: bool) -> None:
        self._kinds, self._texts, self._offsets = tokens
        self._at = 0
        self._ids = Ids(size)
        self._new = self._ids.new
        self._macros = macros.names
        self._expand = macros.expand
        self._optional = optional_syntax
        self._nesting = 0
        # The depth of the last expression, as MAX_DEPTH counts it.
        self._height = 0

    @property
    def positions(self) -> dict[int, int]:
        """Return the positions of the nodes."""
        return self._ids.positions

    def read(self) -> Expr:
        """Parse the whole expression."""
        expr = self._expression()
        if self._kinds[self._at] != END or self._height > MAX_DEPTH:
            raise _NotSimple
        return expr

    def _expect(self, kind: str) -> int:
        """Consume the next token, which must be of a kind, and return its offset."""
        at = self._at
        if self._kinds[at] != kind:
            raise _NotSimple
        self._at = at + 1
        return self._offsets[at]

    def _expression(self) -> Expr:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise _NotSimple
        expr = self._logical("||")
        if self._kinds[self._at] == "?":
            height = self._height
            expression = self._new(self._expect("?"))
            chosen = self._logical("||")
            height = max(height, self._height)
            self._expect(":")
            expr = Call(expression, "_?_:_", None, [expr, chosen, self._expression()])
            self._height = max(height, self._height) + 1
        self._nesting -= 1
        return expr

    def _logical(self, sign: str) -> Expr:
        either = sign == "||"
        expr = self._logical("&&") if either else self._binary(0)
        if self._kinds[self._at] != sign:
            return expr
        terms, signs = [expr], []
        height = self._height
        while self._kinds[self._at] == sign:
            offset = self._offsets[self._at]
            self._at += 1
            terms.append(self._logical("&&") if either else self._binary(0))
            signs.append(self._new(offset))
            height = max(height, self._height)
        self._height = height
        return balanced(f"_{sign}_", terms, signs)

    def _binary(self, above: int) -> Expr:
        """Parse relations, sums and products that bind more tightly than `above`."""
        expr = self._unary()
        while True:
            precedence, function = OPERATORS.get(self._kinds[self._at], _NONE)
            if precedence <= above:
                return expr
            height = self._height
            expression = self._new(self._offsets[self._at])
            self._at += 1
            expr = Call(expression, function, None, [expr, self._binary(precedence)])
            self._height = max(height, self._height) + 1

    def _unary(self) -> Expr:
        start = self._at
        kinds = self._kinds
        sign = kinds[start]
        if sign != "!" and (sign != "-" or kinds[start + 1] in SIGNED):
            return self._member()
        at = start + 1
        while kinds[at] == sign:
            at += 1
        self._at = at
        if (at - start) % 2 == 0:
            return self._member()
        expression = self._new(self._offsets[start])
        return Call(expression, f"{sign}_", None, [self._member()])

    def _member(self) -> Expr:
        expr = self._primary()
        kinds = self._kinds
        while True:
            kind = kinds[self._at]
            if kind == ".":
                expr = self._selected(expr)
            elif kind == "[":
                expr = self._indexed(expr)
            else:
                return expr

    def _selected(self, operand: Expr) -> Expr:
        """Parse `.field`, `.?field` or `.function(arguments)` after an operand."""
        kinds = self._kinds
        at = self._at
        offset = self._offsets[at]
        optional = kinds[at + 1] == "?"
        at += 2 if optional else 1
        if kinds[at] != IDENTIFIER:
            raise _NotSimple
        self._at = at + 1
        name = self._texts[at]
        if optional:
            if not self._optional:
                raise _NotSimple
            field = Literal(self._new(self._offsets[at]), name)
            self._height += 1
            return Call(self._new(offset), "_?._", None, [operand, field])
        if kinds[at + 1] != "(":
            self._height += 1
            return Select(self._new(offset), operand, name)
        height = self._height
        expr = self._call(name, operand)
        self._height = max(height, self._height) + 1
        return expr

    def _call(self, name: str, target: Expr | None) -> Expr:
        """Parse a call from its opening parenthesis on."""
        expression = self._new(self._offsets[self._at])
        self._at += 1
        call = Call(expression, name, target, self._arguments())
        return (name in self._macros and self._expand(self._ids, call)) or call

    def _arguments(self) -> list[Expr]:
        """Parse the arguments of a call up to the closing parenthesis."""
        arguments: list[Expr] = []
        height = 0
        if self._kinds[self._at] != ")":
            arguments.append(self._expression())
            height = self._height
            while self._kinds[self._at] == ",":
                self._at += 1
                arguments.append(self._expression())
                height = max(height, self._height)
        self._expect(")")
        self._height = height
        return arguments

    def _indexed(self, operand: Expr) -> Expr:
        """Parse `[index]` or `[?index]` after an operand."""
        height = self._height
        expression = self._new(self._expect("["))
        function = "_[?_]" if self._question() else "_[_]"
        index = self._expression()
        self._expect("]")
        self._height = max(height, self._height) + 1
        return Call(expression, function, None, [operand, index])

    def _question(self) -> bool:
        """Consume the question mark of an optional part, and return whether there was one."""
        if self._kinds[self._at] != "?":
            return False
        if not self._optional:
            raise _NotSimple
        self._at += 1
        return True

    def _primary(self) -> Expr:
        self._height = 0
        at = self._at
        kind = self._kinds[at]
        if kind in (IDENTIFIER, "."):
            return self._named()
        self._at = at + 1
        offset = self._offsets[at]
        if kind in LITERALS:
            return Literal(self._new(offset), LITERALS[kind](self._texts[at]))
        if kind == "(":
            expr = self._expression()
            self._expect(")")
            return expr
        if kind in CONSTANTS:
            return Literal(self._new(offset), CONSTANTS[kind])
        if kind == "[":
            return self._list(self._new(offset))
        if kind == "{":
            return MapExpr(self._new(offset), self._entries())
        if kind == "-" and self._kinds[at + 1] in SIGNED:
            self._at = at + 2
            value = SIGNED[self._kinds[at + 1]](f"-{self._texts[at + 1]}")
            return Literal(self._new(offset), value)
        raise _NotSimple

    def _named(self) -> Expr:
        """Parse a variable, the call of a function, or a structure. An absolute name begins with a dot."""
        kinds, texts = self._kinds, self._texts
        dot = "." if kinds[self._at] == "." else ""
        at = self._at + len(dot)
        if kinds[at] != IDENTIFIER:
            raise _NotSimple
        last = at
        while kinds[last + 1] == "." and kinds[last + 2] == IDENTIFIER:
            last += 2
        if kinds[last + 1] == "{":
            self._at = last + 2
            type_name = dot + ".".join(texts[at : last + 1 : 2])
            return StructExpr(self._new(self._offsets[last + 1]), type_name, self._fields())
        name = texts[at]
        if name in RESERVED:
            raise _NotSimple
        self._at = at + 1
        if kinds[at + 1] == "(":
            return self._call(dot + name, None)
        return Ident(self._new(self._offsets[at]), dot + name)

    def _list(self, expression: int) -> Expr:
        elements: list[Expr] = []
        optional: list[int] = []
        height = 0
        while self._more("]", begun=bool(elements)):
            if self._question():
                optional.append(len(elements))
            elements.append(self._expression())
            height = max(height, self._height)
        self._height = height
        return ListExpr(expression, elements, frozenset(optional))

    def _more(self, end: str, *, begun: bool) -> bool:
        """Return whether another element of a list or map follows; else consume its end.

        One comma may precede the end.
        """
        comma = self._kinds[self._at] == ","
        if comma:
            self._at += 1
        if self._kinds[self._at] == end:
            self._at += 1
            return False
        if comma != begun:
            raise _NotSimple
        return True

    def _entries(self) -> list[Entry]:
        entries: list[Entry] = []
        height = 0
        while self._more("}", begun=bool(entries)):
            expression = self._new(0)
            optional = self._question()
            key = self._expression()
            height = max(height, self._height)
            self.positions[expression] = self._expect(":")
            entries.append(Entry(expression, key, self._expression(), optional))
            height = max(height, self._height)
        self._height = height
        return entries

    def _fields(self) -> list[FieldEntry]:
        fields: list[FieldEntry] = []
        height = 0
        while self._more("}", begun=bool(fields)):
            optional = self._question()
            name = self._texts[self._at]
            self._expect(IDENTIFIER)
            expression = self._new(self._expect(":"))
            fields.append(FieldEntry(expression, name, self._expression(), optional))
            height = max(height, self._height)
        self._height = height
        return fields
