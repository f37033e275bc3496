"""What the two users of the store may do. Serving never needs the administrator's; `store init` never runs inside a server.

A function runs with its caller's rights (valkey-io/valkey `src/script.c` scriptVerifyACL), so whoever serves must hold the commands
that `functions.lua` calls, on our keys. It holds no other command that writes, none that loads code, and none that administers.
"""

from __future__ import annotations

SERVING_USER = "sluice"
_SERVING_COMMANDS = (
    "fcall", "fcall_ro", "xread", "function|list", "info", "time", "ping", "auth", "hello", "select",
    "client|id", "client|kill", "client|setname",
    # Called by the functions alone.
    "xadd", "xrange", "xtrim", "hget", "hmget", "hset", "hdel", "hlen", "hscan", "exists",
)  # fmt: skip
SERVING = " ".join(("resetkeys", "resetchannels", "-@all", "~{sl:*", *(f"+{name}" for name in _SERVING_COMMANDS)))
"""ACL rules (valkey.conf, `user`) of the user that serves. The administrator may do everything."""


def user_line(password: str) -> str:
    """The line of valkey.conf that makes the serving user."""
    return f"user {SERVING_USER} on >{password} {SERVING}"
