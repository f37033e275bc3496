"""What is wrong with a text, as ANTLR and cel-go word it."""

from __future__ import annotations

from apiserver.cel.ast import Ast
from apiserver.cel.macros import Macros
from apiserver.cel.source import CompileError, Issue, Source


def parse(source: Source, *, macros: Macros, optional_syntax: bool = True) -> Ast:
    """The tree of an expression; raises CompileError with all that is wrong."""
    raise CompileError(source, (Issue(0, "Syntax error"),))
