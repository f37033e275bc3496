"""The feature gates of the server itself; each kind declares its own.

Upstream: kubernetes/apiserver `pkg/features/kube_features.go`.
"""

from __future__ import annotations

from apiserver.schema.featuregate import Gate, Stage

SHARDED_LIST_AND_WATCH = Gate("ShardedListAndWatch", default=False, stage=Stage.ALPHA)
"""Lists and watches of a part of the objects, by a hash of their uid or namespace (`shardSelector`)."""
ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION = Gate("AllowUnsafeMalformedObjectDeletion", default=False, stage=Stage.ALPHA)
"""Deletion of objects that can no longer be read (`ignoreStoreReadErrorWithClusterBreakingPotential`)."""
CONSTRAINED_IMPERSONATION = Gate("ConstrainedImpersonation", default=True, stage=Stage.BETA)
"""Impersonation with permissions that are limited to certain requests (`filters/acting.py`)."""

GATES = (SHARDED_LIST_AND_WATCH, ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION, CONSTRAINED_IMPERSONATION)
