"""`cel.bind(name, value, expression)`. Kubernetes has it in no environment; cel-go's own tools do.

Upstream: google/cel-go `ext/bindings.go`.
"""

from __future__ import annotations

from apiserver.cel import macros
from apiserver.cel.declarations import Library

LIBRARY = Library(name="cel.lib.ext.cel.bindings", macros=macros.BINDINGS)
