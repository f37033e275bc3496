"""The feature gates of the server itself; each kind declares its own.

Upstream: kubernetes/apiserver `pkg/features/kube_features.go`, kubernetes/component-base `zpages/features/kube_features.go`.
"""

from __future__ import annotations

from apiserver.apimachinery.releases import V1_36, V1_37
from apiserver.schema.featuregate import Gate, Spec, Stage, versioned

SHARDED_LIST_AND_WATCH = Gate("ShardedListAndWatch", default=False, stage=Stage.ALPHA)
"""Lists and watches of a part of the objects, by a hash of their uid or namespace (`shardSelector`)."""
ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION = versioned(
    "AllowUnsafeMalformedObjectDeletion",
    Spec(V1_36, default=False, stage=Stage.ALPHA),
    Spec(V1_37, default=True, stage=Stage.BETA),
)
"""Deletion of objects that can no longer be read (`ignoreStoreReadErrorWithClusterBreakingPotential`)."""
WATCH_LIST_COMPRESSION = versioned("WatchListCompression", Spec(V1_37, default=True, stage=Stage.BETA))
"""Watches that begin with a list (`sendInitialEvents`) are compressed for clients that accept gzip."""
CONSTRAINED_IMPERSONATION = Gate("ConstrainedImpersonation", default=True, stage=Stage.BETA)
"""Impersonation with permissions that are limited to certain requests (`filters/acting.py`)."""
COMPONENT_STATUSZ = Gate("ComponentStatusz", default=True, stage=Stage.BETA)
"""/statusz: the process, its versions and paths (`serving/debugging/zpages.py`)."""
COMPONENT_FLAGZ = Gate("ComponentFlagz", default=True, stage=Stage.BETA)
"""/flagz: the flags of the process."""
SIZE_BASED_LIST_COST_ESTIMATE = Gate("SizeBasedListCostEstimate", default=True, stage=Stage.BETA)
"""Seats of lists by the bytes of the objects, not by their number (`flowcontrol/estimates.py`)."""

GATES = (
    SHARDED_LIST_AND_WATCH,
    ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION,
    WATCH_LIST_COMPRESSION,
    CONSTRAINED_IMPERSONATION,
    COMPONENT_STATUSZ,
    COMPONENT_FLAGZ,
    SIZE_BASED_LIST_COST_ESTIMATE,
)
