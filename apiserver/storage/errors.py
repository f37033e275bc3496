"""The errors of storage. `verbs` turns each of them into an answer for clients; nothing here knows HTTP.

StorageError
├─ KeyExists       a create met an existing object
├─ Moved           compare-and-set failed: the object is now `entry` (None: deleted)
├─ Compacted       the state at this revision is no longer kept
├─ Future          the revision is above everything committed
├─ TooBig          the value is larger than one object may be
├─ Unavailable     not executed: the store is unreachable, refuses, or has lost its lineage
│   └─ NoRoom      the store's disk is full
├─ Initializing    this replica's memory is not filled (again) yet
└─ OutcomeUnknown  sent, no answer in time, and the log could not be read: it may have happened
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from apiserver.watchcache.errors import StorageError

if TYPE_CHECKING:
    from apiserver.watchcache.entry import Entry


class KeyExists(StorageError):
    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.key)
        self.entry = entry


class Moved(StorageError):
    def __init__(self, key: str, entry: Entry | None) -> None:
        super().__init__(key)
        self.key = key
        self.entry = entry


class TooBig(StorageError):
    """The value is larger than `config` allows for one object."""


class Unavailable(StorageError):
    """The store executed nothing. The text says why, for logs."""


class NoRoom(Unavailable):
    """The disk of the store is full. The text names the folder and the remedy."""


class Initializing(StorageError):
    """Memory cannot serve reads and watches yet. `seconds` is how long that has lasted."""

    def __init__(self, seconds: float = 0.0, reason: str = "") -> None:
        super().__init__(reason or "storage is (re)initializing")
        self.seconds = seconds
        self.reason = reason


class OutcomeUnknown(StorageError):
    """The write may or may not have been applied."""
