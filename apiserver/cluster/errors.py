"""How a question to kube-apiserver can fail. Knows no HTTP library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClusterError(Exception):
    """A request to kube-apiserver could not be made or was refused. The text is for the log and for the 500.

    `transient`: upstream would try again (kubernetes/apiserver `pkg/util/webhook/webhook.go` DefaultShouldRetry).
    """

    def __init__(self, text: str, *, transient: bool = False) -> None:
        super().__init__(text)
        self.transient = transient


class Refused(ClusterError):
    """There was an answer, and it was no. `retry_after` is how many seconds the server wants to be left alone, if it said so; `status` the
    Status that it answered with, empty for anything else."""

    def __init__(
        self, text: str, *, code: int, retry_after: float | None = None, status: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text, transient=code in (429, 500, 504) or retry_after is not None)
        self.code = code
        self.retry_after = retry_after
        self.status = status or {}


class Unreadable(ClusterError):
    """There was an answer that makes no sense: to ask the same again would give the same."""


class TooLong(ClusterError):
    """There was an answer, and more of it than was wanted."""


class NoSuchKind(Exception):
    """A kind that the cluster does not serve, as far as it can be told. The text is upstream's."""
