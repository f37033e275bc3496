"""Compile and evaluate expressions of the Common Expression Language (CEL) as Kubernetes configures it.

The names below are the public ones; `README.md` has an example and the order in which to read the folders. Values are those that `json`
makes of a document, so no object is copied before an expression reads it. The package knows no kind, no HTTP and no store, and imports
nothing of `apiserver`.
Upstream: google/cel-go v0.26 and v0.29, kubernetes/apiserver `pkg/cel`.
"""

from kubecel.check.cost import estimate
from kubecel.check.declarations import CallEstimate, Function, Library, Overload, Range, Shape, Variable
from kubecel.check.environment import Environment
from kubecel.kubernetes.environments import COST_LIMIT, environment
from kubecel.parse.source import CompileError, Issue
from kubecel.plan.program import Outcome, Program
from kubecel.values import types
from kubecel.values.errors import Cancelled, CostExceeded, EvaluationError, ProgramError
from kubecel.values.times import Duration, Timestamp
from kubecel.values.values import Lazy, Optional, UInt, Value

__all__ = [
    "COST_LIMIT",
    "CallEstimate",
    "Cancelled",
    "CompileError",
    "CostExceeded",
    "Duration",
    "Environment",
    "EvaluationError",
    "Function",
    "Issue",
    "Lazy",
    "Library",
    "Optional",
    "Outcome",
    "Overload",
    "Program",
    "ProgramError",
    "Range",
    "Shape",
    "Timestamp",
    "UInt",
    "Value",
    "Variable",
    "environment",
    "estimate",
    "types",
]
