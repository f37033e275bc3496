"""Errors of reads from memory. The store's own errors (`storage.errors`) have the same base class."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apiserver.watchcache.entry import Key, Revision


class StorageError(Exception):
    """An error of the store or of its copy in memory."""


class Compacted(StorageError):
    def __init__(self, revision: Revision, floor: Revision) -> None:
        super().__init__(f"{revision} is not kept; the oldest kept revision is {floor}")
        self.revision = revision
        self.floor = floor


class Future(StorageError):
    def __init__(self, revision: Revision, current: Revision) -> None:
        super().__init__(f"{revision} is above {current}")
        self.revision = revision
        self.current = current


class Corrupt(StorageError):
    """The value that is stored under this key is no object of its kind."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"{key} cannot be read")
        self.key = key
