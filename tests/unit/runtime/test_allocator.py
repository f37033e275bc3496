"""Memory that is free goes back to the system, whatever stays around it."""

from __future__ import annotations

import subprocess
import sys

_SCATTERED = """
from apiserver.runtime import allocator

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

allocator.give_back()
before = resident()
blocks = [bytearray(6000) for _ in range(20_000)]
blocks = blocks[::10]
left = resident() - before
allocator.trim()
print(left > 60_000_000, resident() - before < left / 2)
"""


def test_free_memory_between_live_objects_is_given_back() -> None:
    ran = subprocess.run([sys.executable, "-c", _SCATTERED], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "True True\n", ran
