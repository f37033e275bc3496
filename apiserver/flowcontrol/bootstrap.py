"""The configuration that kube-apiserver creates in every cluster: the same in all served releases.

It is in force until the cluster's objects are read, and where no cluster is. Upstream: kubernetes/apiserver
`pkg/apis/flowcontrol/bootstrap/default.go`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from apiserver.flowcontrol.types import (
    ANY,
    BY_NAMESPACE,
    BY_USER,
    CATCH_ALL,
    EXEMPT,
    MOST_PRECEDENCE,
    FlowSchema,
    Names,
    PriorityLevel,
    Queuing,
    ResourceRule,
    Rule,
    Subjects,
    path_rule,
)

EVERYBODY = ("system:unauthenticated", "system:authenticated")
MASTERS, NODES, ACCOUNTS = "system:masters", "system:nodes", "system:serviceaccounts"
CONTROLLER_MANAGER, SCHEDULER = "system:kube-controller-manager", "system:kube-scheduler"
SYSTEM_ACCOUNTS = "system:serviceaccount:kube-system:"
PATHS = uuid.UUID("4f6a3c9e-6f0d-5b5e-9a0f-0d8f3f1c2b7a")
"""The namespace of the uids below, drawn once."""


def _uid(kind: str, name: str) -> str:
    """Return a uid that is the same in every process: objects that no cluster holds have none, and clients compare flows by it."""
    return str(uuid.uuid5(PATHS, f"{kind}/{name}"))


def _level(name: str, shares: int, lendable: int, queuing: Queuing | None) -> PriorityLevel:
    uid = _uid("prioritylevelconfigurations", name)
    return PriorityLevel(name=name, uid=uid, shares=shares, lendable=lendable, queuing=queuing)


def _groups(*names: str) -> Subjects:
    return Subjects(groups=frozenset(names))


def _user(name: str) -> Subjects:
    return Subjects(users=frozenset((name,)))


def _resources(
    verbs: Sequence[str] = (ANY,),
    groups: Sequence[str] = (ANY,),
    resources: Sequence[str] = (ANY,),
    *,
    cluster: bool = True,
) -> ResourceRule:
    return ResourceRule(Names.of(verbs), Names.of(groups), Names.of(resources), Names.of((ANY,)), cluster)


def _everything(subjects: Subjects) -> Rule:
    return Rule(subjects, (_resources(),), (path_rule((ANY,), (ANY,)),))


def _schema(name: str, level: str, precedence: int, *rules: Rule, by: str = "") -> FlowSchema:
    uid = _uid("flowschemas", name)
    return FlowSchema(name=name, uid=uid, level=level, precedence=precedence, distinguisher=by, rules=rules)


EXEMPT_LEVEL = PriorityLevel(
    name=EXEMPT, uid=_uid("prioritylevelconfigurations", EXEMPT), exempt=True, shares=0, lendable=0, queuing=None
)
CATCH_ALL_LEVEL = _level(CATCH_ALL, 5, 0, None)
EXEMPT_SCHEMA = _schema(EXEMPT, EXEMPT, 1, _everything(_groups(MASTERS)))
CATCH_ALL_SCHEMA = _schema(CATCH_ALL, CATCH_ALL, MOST_PRECEDENCE, _everything(_groups(*EVERYBODY)), by=BY_USER)
_LEASES = ("coordination.k8s.io",), ("leases",)
_PROBES = path_rule(("get",), ("/healthz", "/readyz", "/livez"))
_LEADERS = Subjects(users=frozenset((CONTROLLER_MANAGER, SCHEDULER)), account_prefixes=(SYSTEM_ACCOUNTS,))
_OF_NODES = _resources((ANY,), ("",), ("nodes", "nodes/status")), _resources((ANY,), *_LEASES, cluster=False)

LEVELS: Sequence[PriorityLevel] = (
    EXEMPT_LEVEL,
    CATCH_ALL_LEVEL,
    _level("system", 30, 33, Queuing(64, 6, 50)),
    _level("node-high", 40, 25, Queuing(64, 6, 50)),
    _level("leader-election", 10, 0, Queuing(16, 4, 50)),
    _level("workload-high", 40, 50, Queuing(128, 6, 50)),
    _level("workload-low", 100, 90, Queuing(128, 6, 50)),
    _level("global-default", 20, 50, Queuing(128, 6, 50)),
)
SCHEMAS: Sequence[FlowSchema] = (
    EXEMPT_SCHEMA,
    _schema("probes", EXEMPT, 2, Rule(_groups(*EVERYBODY), paths=(_PROBES,))),
    _schema(
        "system-leader-election",
        "leader-election",
        100,
        Rule(_LEADERS, (_resources(("get", "create", "update"), *_LEASES, cluster=False),)),
        by=BY_USER,
    ),
    _schema("system-node-high", "node-high", 400, Rule(_groups(NODES), _OF_NODES), by=BY_USER),
    _schema("system-nodes", "system", 500, _everything(_groups(NODES)), by=BY_USER),
    _schema("kube-controller-manager", "workload-high", 800, _everything(_user(CONTROLLER_MANAGER)), by=BY_NAMESPACE),
    _schema("kube-scheduler", "workload-high", 800, _everything(_user(SCHEDULER)), by=BY_NAMESPACE),
    _schema(
        "kube-system-service-accounts",
        "workload-high",
        900,
        _everything(Subjects(account_prefixes=(SYSTEM_ACCOUNTS,))),
        by=BY_NAMESPACE,
    ),
    _schema("service-accounts", "workload-low", 9_000, _everything(_groups(ACCOUNTS)), by=BY_USER),
    _schema("global-default", "global-default", 9_900, _everything(_groups(*EVERYBODY)), by=BY_USER),
    CATCH_ALL_SCHEMA,
)
