"""What memory can say beside an answer. The store's own errors (`storage.errors`) are of the same family."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apiserver.watchcache.entry import Key, Revision


class StorageError(Exception):
    """Whatever is said instead of an answer, here or by the store."""


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
    """What is stored under this key is no object of its kind."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"{key} cannot be read")
        self.key = key
