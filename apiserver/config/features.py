"""The feature gates of the server itself; those of a kind stand beside it.

Upstream: kubernetes/apiserver `pkg/features/kube_features.go`.
"""

from __future__ import annotations

from apiserver.schema.featuregate import Gate, Stage

SHARDED_LIST_AND_WATCH = Gate("ShardedListAndWatch", default=False, stage=Stage.ALPHA)
"""Lists and watches of a part of the objects, by a hash of their uid or namespace (`shardSelector`)."""
ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION = Gate("AllowUnsafeMalformedObjectDeletion", default=False, stage=Stage.ALPHA)
"""Deletion of objects that cannot be read any more (`ignoreStoreReadErrorWithClusterBreakingPotential`)."""
CONSTRAINED_IMPERSONATION = Gate("ConstrainedImpersonation", default=True, stage=Stage.BETA)
"""Who acts as somebody else may be bound to what is done meanwhile (`filters/acting.py`)."""

GATES = (SHARDED_LIST_AND_WATCH, ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION, CONSTRAINED_IMPERSONATION)
