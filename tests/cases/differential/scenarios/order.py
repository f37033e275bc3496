"""Which of several errors wins: the order of checks in each handler (contract 1.7)."""
import json
from harness import scenario, MERGE, APPLY, YAML

BAD = "application/json;as=Foo;g=meta.k8s.io;v=v1"            # passes the router, refused by the handler
ONLY = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"






