"""The settings of the store, with measured defaults. `config` fills them from flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apiserver.storage.errors import Unavailable
from apiserver.watchcache.mvcc import RING_BYTES

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreOptions:
    url: str
    """One of the forms of `config/store_address.py`, with user and password where needed."""
    username: str | None = None
    password: str | None = None
    """Override the URL's user and password."""
    password_file: Path | None = None
    sentinel_username: str | None = None
    sentinel_password_file: Path | None = None
    """Password files are read again for each connection."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    """Files for TLS to the store and its sentinels; read again when they change."""
    fault: Callable[[], Unavailable | None] = lambda: None
    """Why the server does not run, if this process runs it itself."""
    cluster: bool = False
    """The URL of a cluster has led to the servers: each must be a node of one."""
    durability: str = ""
    """The servers that must have a write before it is acknowledged (`durability.py`); empty: `replica` with sentinels and in a cluster,
    else `primary`.
    """
    replicas: Callable[[], int] = lambda: 0
    """How many replicas belong to the server of `url`, working or not. Sentinels and clusters know that."""
    allow_volatile: bool = False
    """Accept a server without append-only file."""

    object_limit: int = 3 * MIB // 2
    """Bytes of one stored value; etcd's limit for a request (etcd-io/etcd `server/embed/config.go` DefaultMaxRequestBytes)."""
    window_bytes: int = RING_BYTES
    """Bytes of events kept in memory, for all resources together. Above it, floors rise early."""
    retention_seconds: float = 300.0
    """For how long a revision can at least be watched from, in seconds of serving."""
    compaction_seconds: float = 300.0
    """Time between two attempts to raise the floor, with a jitter of a tenth."""
    compaction_least_seconds: float = 240.0
    """The store itself refuses to raise the floor more often, whichever replica asks."""
    keep_entries: int = 1000
    """The newest entries of a log always stay (as in kine), unless `window_bytes` is exceeded."""
    check_seconds: float = 300.0
    """Time between two comparisons of memory with the store, with a jitter of a tenth."""
    monitor_seconds: float = 10.0
    """Time between two checks of the server's role, eviction policy, append-only file and memory."""

    connect_seconds: float = 2.0
    barrier_seconds: float = 3.0
    """A consistent read that has waited this long fails."""
    deadline_seconds: float = 2.0
    """The server refuses a write that it has not begun by then, by its own clock."""
    reply_seconds: float = 3.0
    """A connection that owes a reply for this long is closed."""
    outcome_seconds: float = 8.0
    """The outcome of a write is searched for this long, then it is unknown."""
    lag_seconds: float = 1.0
    """A committed write is answered after this long, even if the log has not brought it yet."""
    backoff_seconds: float = 1.0
    """The longest pause between two attempts to connect."""
