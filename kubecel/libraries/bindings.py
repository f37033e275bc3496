"""`cel.bind(name, value, expression)`. No environment of Kubernetes has it; cel-go's own tools do.

Upstream: google/cel-go `ext/bindings.go`.
"""

from __future__ import annotations

from kubecel.check.declarations import Library
from kubecel.parse import macros

LIBRARY = Library(name="cel.lib.ext.cel.bindings", macros=macros.BINDINGS)
