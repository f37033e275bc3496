"""Programs that listen on a port: from /proc, as far as the user may look."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from apiserver.serving import ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")
HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_process_that_listens_is_named_with_its_pid(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as sock:
        port = sock.getsockname()[1]
        command = Path("/proc/self/comm").read_text().strip()
        assert ports.holder(port) == f"{command} (pid {os.getpid()})"
    assert ports.holder(port) == ""


def test_a_connection_is_no_listener(tmp_path: Path) -> None:
    row = "   0: 0100007F:1DDB 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(HEADER + row)
    assert ports.holder(0x1DDB, proc=tmp_path) == ""


def test_a_hidden_process_is_named_by_its_user(tmp_path: Path) -> None:
    row = "   0: 0100007F:1DDB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(HEADER + row)
    (tmp_path / "12").mkdir()  # its descriptors cannot be listed
    assert ports.holder(0x1DDB, proc=tmp_path) == "a process of user root"
