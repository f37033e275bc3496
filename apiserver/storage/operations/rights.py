"""The rights of the store's users. Serving never needs the administrator's; `store init` never runs inside a server.

A function runs with its caller's rights (valkey-io/valkey `src/script.c` scriptVerifyACL). So the serving user needs the commands
that `functions.lua` calls, on Sluice's keys. It has no other command that writes, none that loads code, and none that
administers.
"""

from __future__ import annotations

SERVING_USER = "sluice"
_KEY = "{sl:example}"
SERVING_EXAMPLES = {
    "fcall": f"f 1 {_KEY}", "fcall_ro": f"f 1 {_KEY}", "xread": f"STREAMS {_KEY} 0", "function|list": "", "info": "", "time": "",
    "wait": "1 1000", "ping": "", "auth": "a", "hello": "", "select": "0", "client|id": "", "client|kill": "ID 1", "client|setname": "a",
    "cluster|slots": "", "cluster|shards": "",
    # Called by the functions alone.
    "xadd": f"{_KEY} * a b", "xrange": f"{_KEY} - +", "xtrim": f"{_KEY} MAXLEN 0", "hget": f"{_KEY} a", "hmget": f"{_KEY} a",
    "hset": f"{_KEY} a b", "hdel": f"{_KEY} a", "hlen": _KEY, "hscan": f"{_KEY} 0", "exists": _KEY,
}  # fmt: skip
"""The commands of the serving user, with arguments for ACL DRYRUN."""
SERVING = " ".join(("resetkeys", "resetchannels", "-@all", "~{sl:*", *(f"+{name}" for name in SERVING_EXAMPLES)))
"""ACL rules (valkey.conf, `user`) of the serving user. The administrator may do everything."""


BACKUP_USER = "backup"
BACKUP_EXAMPLES = {
    name: SERVING_EXAMPLES[name]
    for name in (
        "fcall_ro", "info", "time", "ping", "auth", "hello", "select", "client|id", "client|setname", "xrange", "hget", "hmget",
        "hlen", "hscan", "exists",
    )
} | {"scan": "0"}  # fmt: skip
"""The commands of the user who backs the store up. SCAN lists the resources, and tells the names of all keys."""
BACKUP = " ".join(("resetkeys", "resetchannels", "-@all", "%R~{sl:*", *(f"+{name}" for name in BACKUP_EXAMPLES)))


def examples(*, cluster: bool) -> dict[str, str]:
    """Return the commands that serving needs, with arguments. A store that is no cluster needs none of the cluster's."""
    return {name: text for name, text in SERVING_EXAMPLES.items() if cluster or not name.startswith("cluster|")}


def user_line(password: str) -> str:
    """Return the line of valkey.conf that creates the serving user."""
    return f"user {SERVING_USER} on >{password} {SERVING}"


def backup_user_line(password: str) -> str:
    """Return the line of valkey.conf that creates the user for backups."""
    return f"user {BACKUP_USER} on >{password} {BACKUP}"
