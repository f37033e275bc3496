"""The Common Expression Language as Kubernetes has it: parse, check, judge the cost, evaluate.

The room knows no kind, no HTTP and no store. Values are what `json` makes of a document (`values` has the rest), so no object is copied
before an expression looks at it. Upstream: google/cel-go, kubernetes/apiserver `pkg/cel`.
"""
