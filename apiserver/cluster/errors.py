"""The errors of requests to kube-apiserver. Knows no HTTP library."""

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
    """The server answered with an error code. `retry_after`: the seconds that it asks clients to wait, or None.

    `status`: the Status in its answer, empty for any other body.
    """

    def __init__(
        self, text: str, *, code: int, retry_after: float | None = None, status: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text, transient=code in (429, 500, 504) or retry_after is not None)
        self.code = code
        self.retry_after = retry_after
        self.status = status or {}


class Unreadable(ClusterError):
    """The answer cannot be parsed. The same request would get the same answer."""


class TooLong(ClusterError):
    """The answer is longer than the limit."""


class NoSuchKind(Exception):
    """The cluster does not serve this kind, as far as is known. The text is upstream's."""
