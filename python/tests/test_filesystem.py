"""What programs rely on beyond fsspec's own tests."""

import asyncio
import json
import multiprocessing
import os
import pickle
import signal
import threading
import uuid

import fsspec
import pytest

import potluck
from potluck import PotluckFileSystem


@pytest.fixture
def fs(pool):
    return fsspec.filesystem("pot")


@pytest.fixture
def place(fs):
    place = f"test/{uuid.uuid4().hex}"
    fs.makedirs(place)
    yield place
    fs.rm(place, recursive=True)


def test_protocol_is_found_without_an_import(fs):
    assert type(fs) is PotluckFileSystem
    assert fsspec.core.url_to_fs("pot://test/a")[1] == "test/a"
    assert fs.unstrip_protocol("test/a") == "pot://test/a"


def test_unknown_option_is_refused_with_a_suggestion(pool):
    with pytest.raises(TypeError, match="did you mean 'pool'"):
        fsspec.filesystem("pot", poool="lab")


def test_unknown_pool_is_refused(pool):
    with pytest.raises(OSError, match="no pool that you joined"):
        fsspec.filesystem("pot", pool="nowhere")


def test_file_appears_when_it_is_closed(fs, place):
    file = fs.open(f"{place}/a", "wb")
    file.write(b"half")
    assert not fs.exists(f"{place}/a")
    file.close()
    assert fs.cat(f"{place}/a") == b"half"


@pytest.mark.parametrize("mode", ["wb", "w", "w+b", "ab", "xt"])
def test_exception_leaves_no_half_file(fs, place, mode):
    with pytest.raises(KeyError):
        with fs.open(f"{place}/a", mode) as file:
            file.write(b"half" * 1_000_000 if "b" in mode else "half" * 1_000_000)
            raise KeyError
    assert fs.ls(place) == []


def test_file_that_is_never_closed_is_not_kept(fs, place):
    with pytest.warns(ResourceWarning, match="not closed"):
        fs.open(f"{place}/a", "wb").write(b"half")
    assert fs.ls(place) == []


def test_text_is_read_as_it_was_written(fs, place):
    with fs.open(f"{place}/a", "w", encoding="latin-1", newline="\r\n") as file:
        file.write("grün\n")
    assert fs.cat(f"{place}/a") == b"gr\xfcn\r\n"
    with potluck.open(f"pot://{place}/a", "r", encoding="latin-1") as file:
        assert list(file) == ["grün\n"]
    with pytest.raises(ValueError):
        file.read()


def test_transaction_ends_with_all_files_or_none(fs, place):
    with pytest.raises(KeyError):
        with fs.transaction:
            with fs.open(f"{place}/a", "wb") as file:
                file.write(b"a")
            raise KeyError
    assert fs.ls(place) == []
    with fs.transaction:
        with fs.open(f"{place}/a", "wb") as file:
            file.write(b"a")
        assert not fs.exists(f"{place}/a")
    assert fs.cat(f"{place}/a") == b"a"


def test_exclusive_file_is_refused_at_open(fs, place):
    fs.pipe(f"{place}/a", b"1")
    with pytest.raises(FileExistsError):
        fs.open(f"{place}/a", "xb")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{place}/a", b"2", mode="create")
    assert fs.cat(f"{place}/a") == b"1"


def test_append_keeps_what_is_there(fs, place):
    for part in (b"one ", b"two "):
        with fs.open(f"{place}/a", "ab") as file:
            file.write(part)
    assert fs.cat(f"{place}/a") == b"one two "


def test_file_is_changed_in_place_by_a_spool(fs, place):
    with fs.open(f"{place}/a", "w+b") as file:
        file.write(b"0123456789")
        file.seek(4)
        file.write(b"xy")
        file.truncate(8)
    assert fs.cat(f"{place}/a") == b"0123xy67"
    with fs.open(f"{place}/a", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    assert fs.cat(f"{place}/a") == b"0123xy6!"


def test_large_file_is_read_into_memory_of_the_caller(fs, place):
    content = os.urandom(9_000_001)
    fs.pipe(f"{place}/large", content)
    with fs.open(f"{place}/large") as file:
        memory = bytearray(9_000_001)
        assert file.readinto(memory) == len(memory)
        assert memory == content
        assert file.readinto(memory) == 0
        file.seek(4_000_000)
        assert file.read(10) == content[4_000_000:4_000_010]
    assert fs.cat_file(f"{place}/large", -5, None) == content[-5:]
    ranges = fs.cat_ranges([f"{place}/large"] * 3, [0, 5_000_000, 9_000_000], [3, 5_000_004, None])
    assert ranges == [content[:3], content[5_000_000:5_000_004], content[9_000_000:]]


def test_scattered_reads_fetch_little_and_reads_in_order_much(fs, place):
    content = os.urandom(20_000_000)
    fs.pipe(f"{place}/a", content)
    with fs.open(f"{place}/a") as file:
        for at in (19_000_000, 5_000_000, 12_000_000):
            file.seek(at)
            assert file.read(100) == content[at : at + 100]
        assert file.cache.total_requested_bytes < 1_000_000
        file.seek(0)
        read = bytearray()
        while part := file.read(100_000):
            read += part
        assert read == content
        assert file.cache.miss_count < 15


def test_open_file_stays_the_version_it_was(fs, place):
    fs.pipe(f"{place}/a", b"old" * 10_000)
    with fs.open(f"{place}/a") as file:
        fs.pipe(f"{place}/a", b"new" * 10_000)
        assert file.read() == b"old" * 10_000
    assert fs.cat(f"{place}/a") == b"new" * 10_000


def test_listing_says_all_that_info_says(fs, place):
    fs.pipe(f"{place}/a", b"content")
    (listed,) = fs.ls(place, detail=True)
    assert listed == fs.info(f"{place}/a")
    assert fs.modified(f"{place}/a") == listed["mtime"]
    before = (fs.ukey(f"{place}/a"), fs.checksum(f"{place}/a"))
    fs.pipe(f"{place}/a", b"others!")
    assert before != (fs.ukey(f"{place}/a"), fs.checksum(f"{place}/a"))


def test_tree_is_found_and_moved_in_one_step(fs, place):
    for name in ("a", "b/c", "b/d/e"):
        fs.pipe(f"{place}/x/{name}", b"1")
    found = [f"{place}/x/{name}" for name in ("a", "b/c", "b/d/e")]
    assert fs.find(f"{place}/x") == found
    assert fs.glob(f"{place}/x/**/e") == [found[2]]
    version = fs.info(found[1])["version"]
    fs.mv(f"{place}/x", f"{place}/y", recursive=True)
    assert fs.info(f"{place}/y/b/c")["version"] == version
    assert not fs.exists(f"{place}/x")


def test_what_is_missing_is_not_found(fs, place):
    for call in (fs.info, fs.ls, fs.cat_file, fs.open, fs.rm):
        with pytest.raises(FileNotFoundError):
            call(f"{place}/missing")


def test_missing_space_is_not_made_by_a_slip(fs):
    for call in (fs.mkdir, fs.makedirs):
        with pytest.raises(FileNotFoundError):
            call("tset/deep")
    with pytest.raises(FileNotFoundError):
        fs.pipe("tset/deep/a", b"1")
    assert not fs.exists("tset")


def test_empty_directory_alone_is_removed_by_rmdir(fs, place):
    fs.pipe(f"{place}/d/a", b"1")
    with pytest.raises(OSError):
        fs.rmdir(f"{place}/d")
    fs.rm(f"{place}/d/a")
    fs.rmdir(f"{place}/d")
    assert fs.ls(place) == []


def test_transfer_tells_its_callback(fs, place, tmp_path):
    class Counting(fsspec.callbacks.Callback):
        pass

    (tmp_path / "local").write_bytes(bytes(100_000))
    up, down = Counting(), Counting()
    fs.put_file(str(tmp_path / "local"), f"{place}/a", callback=up)
    fs.get_file(f"{place}/a", str(tmp_path / "back"), callback=down)
    assert (up.size, up.value, down.size, down.value) == (100_000,) * 4
    assert (tmp_path / "back").read_bytes() == bytes(100_000)


def test_coroutines_run_in_a_loop_of_the_program(place):
    async def work():
        fs = PotluckFileSystem(asynchronous=True, skip_instance_cache=True)
        await fs._pipe_file(f"{place}/a", b"0123")
        both = await asyncio.gather(fs._cat_file(f"{place}/a", 1, 3), fs._info(f"{place}/a"))
        return both[0], both[1]["size"]

    assert asyncio.run(work()) == (b"12", 4)


def test_threads_share_one_file(fs, place):
    content = os.urandom(3_000_000)
    fs.pipe(f"{place}/a", content)
    file = potluck.Pool().open(f"pot://{place}/a")
    wrong = []

    def read(at):
        if file.read(at, 100_000) != content[at : at + 100_000]:
            wrong.append(at)

    threads = [threading.Thread(target=read, args=(at,)) for at in range(0, 2_000_000, 100_000)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []


def _read_elsewhere(fs, path, results):
    results.put(fs.cat_file(path))


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_instance_is_used_in_another_process(fs, place, start):
    fs.pipe(f"{place}/a", b"for children")
    context = multiprocessing.get_context(start)
    results = context.Queue()
    child = context.Process(target=_read_elsewhere, args=(fs, f"{place}/a", results))
    child.start()
    assert results.get(timeout=120) == b"for children"
    child.join(timeout=120)
    assert child.exitcode == 0


def test_open_file_goes_on_in_a_forked_process(fs, place):
    content = os.urandom(100_000)
    fs.pipe(f"{place}/a", content)
    with fs.open(f"{place}/a") as file:
        assert file.read(10) == content[:10]
        child = os.fork()
        if child == 0:
            file.seek(0)
            os._exit(0 if file.read() == content and fs.info(f"{place}/a") else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert file.read() == content[10:]


def test_file_is_copied_and_moved_to_another_space(fs, place):
    content, other = os.urandom(200_000), f"s{uuid.uuid4().hex}"
    fs.mkdir(other)
    fs.pipe(f"{place}/a", content)
    fs.cp(f"{place}/a", f"{other}/b")
    fs.mv(f"{place}/a", f"{other}/c")
    assert fs.cat(f"{other}/b") == fs.cat(f"{other}/c") == content
    assert not fs.exists(f"{place}/a") and other in fs.ls("", detail=False)
    fs.rm(other, recursive=True)


def test_directory_of_an_identity_names_the_pool(home, place):
    admin = home / ".local/state/potluck/manager/admin"
    assert PotluckFileSystem(pool=str(admin)).exists(place)


def test_pool_and_file_system_are_pickled(fs, place):
    fs.pipe(f"{place}/a", b"1")
    assert pickle.loads(pickle.dumps(fs)).cat(f"{place}/a") == b"1"
    assert pickle.loads(pickle.dumps(potluck.Pool())).read(f"pot://{place}/a") == b"1"


def test_errors_have_the_classes_of_the_system(pool, place):
    with pytest.raises(IsADirectoryError):
        pool.open(f"pot://{place}")
    with pytest.raises(ValueError, match="pool path"):
        pool.stat("test/a")
    with pytest.raises(FileNotFoundError, match="POT-E011"):
        pool.stat("pot://nowhere")


def test_signal_ends_a_call_that_waits(home, pool, place):
    manager = json.loads((home / "ready.json").read_text())["pid"]
    interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    os.kill(manager, signal.SIGSTOP)
    try:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            pool.stat(f"pot://{place}")
    finally:
        os.kill(manager, signal.SIGCONT)
    assert pool.stat(f"pot://{place}")["type"] == "directory"


def test_checkpoint_appears_whole(fs, place):
    target = f"pot://{place}/step-1"
    with potluck.checkpoint(target, reserve="64MiB", keep_last=3) as ck:
        with ck.open("weights") as file:
            file.write(b"w" * 100_000)
        with open(ck.path("deep/state.bin"), "wb") as local:
            local.write(b"local")
        fs.pipe(ck.url("small"), b"s")
        assert not fs.exists(target)
    assert [name.removeprefix(place) for name in fs.find(target)] == [
        "/step-1/deep/state.bin",
        "/step-1/small",
        "/step-1/weights",
    ]


def test_failed_checkpoint_leaves_nothing(fs, place):
    with pytest.raises(KeyError):
        with potluck.checkpoint(f"pot://{place}/step-1", reserve="1MiB") as ck:
            with ck.open("weights") as file:
                file.write(b"w")
            raise KeyError
    assert fs.ls(place) == []


def test_checkpoint_that_cannot_fit_fails_early(place):
    with pytest.raises(OSError):
        with potluck.checkpoint(f"pot://{place}/step-1", reserve="900TiB"):
            raise AssertionError("the block runs")


def test_size_that_is_none_is_refused(place):
    with pytest.raises(ValueError, match="no size"):
        potluck.checkpoint(f"pot://{place}/step-1", reserve="much")
