"""A pool of one machine for the tests, which ends with them."""

import json
import os
import shutil
import subprocess
import time

import pytest

#: The longest that a pool may take to start, in seconds; a busy machine is slow.
DEADLINE = 120


def is_ready(ready):
    """Whether the pool has written where its manager is; a half of the file is none."""
    try:
        return "address" in json.loads(ready.read_text())
    except (FileNotFoundError, ValueError):
        return False


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory):
    """Run a pool for a user whose home is a directory of the tests."""
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith(("XDG_", "POTLUCK_"))]:
        if name != "POTLUCK_PROGRAM":
            del os.environ[name]
    os.environ["HOME"] = str(home)
    program = os.environ.get("POTLUCK_PROGRAM") or shutil.which("potluck")
    assert program, "the wheel brings the program"
    ready, lent = home / "ready.json", home / "lent"
    command = [program, "up", str(lent), "--listen", "127.0.0.1:0", "--mdns", "false"]
    command += ["--lend-listen", "127.0.0.1:0", "--max", "8GiB", "--keep-free", "1%"]
    command += ["--slowdown", "off", "--ready-file", str(ready)]
    with open(home / "log", "wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + DEADLINE
        while not is_ready(ready):
            assert running.poll() is None, (home / "log").read_text()
            assert time.monotonic() < end, (home / "log").read_text()
            time.sleep(0.05)
        yield home
    finally:
        running.terminate()
        running.wait()


@pytest.fixture(scope="session")
def pool(home):
    import potluck

    pool = potluck.Pool()
    pool.make_dir("pot://test")
    return pool
