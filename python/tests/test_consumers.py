"""Libraries that read and write `pot://` without knowing of it. Those that are not installed are skipped."""

import os
import subprocess
import sys
import uuid

import fsspec
import pytest


@pytest.fixture
def url(pool):
    place = f"pot://test/{uuid.uuid4().hex}"
    pool.make_dir(place)
    yield place
    pool.remove(place, True)


@pytest.fixture
def frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"a": range(1000), "b": [f"row {number}" for number in range(1000)]})


@pytest.mark.parametrize("form", ["csv", "csv.gz", "json", "pickle"])
def test_pandas_text(url, frame, form):
    import pandas

    name = form.removesuffix(".gz")
    getattr(frame, f"to_{name}")(
        f"{url}/table.{form}", **({"index": False} if name == "csv" else {})
    )
    assert getattr(pandas, f"read_{name}")(f"{url}/table.{form}").equals(frame)


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_pandas_by_pyarrow(url, frame, form):
    pytest.importorskip("pyarrow")
    import pandas

    getattr(frame, f"to_{form}")(f"{url}/table")
    assert getattr(pandas, f"read_{form}")(f"{url}/table").equals(frame)


def test_pandas_partitions(url, frame):
    pytest.importorskip("pyarrow")
    import pandas

    frame["part"] = frame["a"] % 3
    frame.to_parquet(f"{url}/parts", partition_cols=["part"])
    assert len(pandas.read_parquet(f"{url}/parts")) == 1000


def test_pandas_refuses_a_mistyped_option(url, frame):
    with pytest.raises(TypeError, match="storage option"):
        frame.to_csv(f"{url}/a.csv", storage_options={"pol": "lab"})


def test_pyarrow_dataset(url):
    dataset = pytest.importorskip("pyarrow.dataset")
    import pyarrow

    fs = fsspec.filesystem("pot")
    table = pyarrow.table({"a": list(range(100)), "part": [0, 1] * 50})
    base = url.removeprefix("pot://") + "/data"
    dataset.write_dataset(table, base, filesystem=fs, format="parquet", partitioning=["part"])
    assert dataset.dataset(base, filesystem=fs, partitioning=["part"]).count_rows() == 100


def test_pyarrow_filesystem(url):
    arrow_fs = pytest.importorskip("pyarrow.fs")
    fs = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(fsspec.filesystem("pot")))
    base = url.removeprefix("pot://")
    with fs.open_output_stream(f"{base}/a") as out:
        out.write(b"0123456789")
    with fs.open_input_file(f"{base}/a") as file:
        assert (file.size(), file.read_at(3, 2)) == (10, b"234")
    fs.move(f"{base}/a", f"{base}/b")
    (found,) = fs.get_file_info(arrow_fs.FileSelector(base))
    assert (found.base_name, found.size) == ("b", 10)
    fs.copy_file(f"{base}/b", f"{base}/c")
    fs.delete_file(f"{base}/b")
    assert [one.base_name for one in fs.get_file_info(arrow_fs.FileSelector(base))] == ["c"]


@pytest.fixture
def weather():
    xarray = pytest.importorskip("xarray")
    import numpy

    return xarray.Dataset({"t": (("x", "y"), numpy.random.rand(200, 300))})


def test_xarray_and_zarr(url, weather):
    pytest.importorskip("zarr")
    import xarray

    weather.to_zarr(f"{url}/t.zarr", mode="w")
    assert xarray.open_zarr(f"{url}/t.zarr", chunks=None).equals(weather)
    weather.to_zarr(f"{url}/t.zarr", mode="a")
    assert xarray.open_zarr(f"{url}/t.zarr", chunks=None).load().equals(weather)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr(url, zarr_format):
    zarr = pytest.importorskip("zarr")
    import numpy

    data = numpy.random.rand(100, 100)
    array = zarr.create_array(
        f"{url}/a.zarr", shape=data.shape, chunks=(10, 100), dtype="f8", zarr_format=zarr_format
    )
    array[:] = data
    assert (zarr.open_array(f"{url}/a.zarr", mode="r")[5:42] == data[5:42]).all()


@pytest.mark.parametrize("cache", [{}, {"cache_type": "blockcache", "block_size": 1 << 20}])
def test_xarray_and_netcdf(url, weather, cache, tmp_path):
    pytest.importorskip("h5netcdf")
    import xarray

    weather.to_netcdf(tmp_path / "t.nc", engine="h5netcdf")
    fs = fsspec.filesystem("pot")
    fs.put(str(tmp_path / "t.nc"), f"{url}/t.nc")
    with fs.open(f"{url}/t.nc", **cache) as file:
        assert xarray.open_dataset(file, engine="h5netcdf").load().equals(weather)


def test_h5py(url):
    h5py = pytest.importorskip("h5py")
    import numpy

    data, fs = numpy.random.rand(100_000), fsspec.filesystem("pot")
    with fs.open(f"{url}/a.h5", "w+b") as file, h5py.File(file, "w") as h5:
        h5["u"] = data
    with fs.open(f"{url}/a.h5") as file, h5py.File(file) as h5:
        assert (h5["u"][:] == data).all()
    with fs.open(f"{url}/a.h5", "r+b") as file, h5py.File(file, "r+") as h5:
        h5["v"] = data[:10]
    with fs.open(f"{url}/a.h5") as file, h5py.File(file) as h5:
        assert set(h5) == {"u", "v"}


def test_dask_dataframe(url, frame):
    dataframe = pytest.importorskip("dask.dataframe")
    pytest.importorskip("pyarrow")
    dataframe.from_pandas(frame, npartitions=3).to_parquet(f"{url}/parts")
    assert len(dataframe.read_parquet(f"{url}/parts")) == 1000


def test_dask_bag(url):
    bag = pytest.importorskip("dask.bag")
    bag.from_sequence(["one", "two", "three"], npartitions=3).to_textfiles(f"{url}/*.txt")
    assert sorted(bag.read_text(f"{url}/*.txt").map(str.strip).compute()) == ["one", "three", "two"]


def test_dask_array(url):
    array = pytest.importorskip("dask.array")
    pytest.importorskip("zarr")
    array.ones((100, 100), chunks=(50, 50)).to_zarr(f"{url}/ones.zarr")
    assert array.from_zarr(f"{url}/ones.zarr").sum().compute() == 10_000


def test_duckdb(url, frame):
    duckdb = pytest.importorskip("duckdb")
    frame.to_csv(f"{url}/table.csv", index=False)
    with duckdb.connect() as db:
        db.register_filesystem(fsspec.filesystem("pot"))
        counted = db.execute(f"select count(*) from read_csv('{url}/table.csv')").fetchall()
        assert counted == [(1000,)]
        db.execute(f"copy (select 42 as a) to '{url}/out.parquet' (format parquet)")
        assert db.execute(f"select a from '{url}/out.parquet'").fetchall() == [(42,)]


def test_polars(url, frame):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"a": range(100)})
    with fsspec.open(f"{url}/a.parquet", "wb") as file:
        table.write_parquet(file)
    with fsspec.open(f"{url}/a.parquet") as file:
        assert polars.read_parquet(file).equals(table)


def test_numpy(url):
    numpy = pytest.importorskip("numpy")
    data = numpy.random.rand(1000, 100)
    with fsspec.open(f"{url}/a.npy", "wb") as file:
        numpy.save(file, data)
    with fsspec.open(f"{url}/a.npy") as file:
        assert (numpy.load(file) == data).all()


def test_kerchunk(url, tmp_path):
    hdf = pytest.importorskip("kerchunk.hdf")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as h5:
        h5["u"] = list(range(1000))
    fs = fsspec.filesystem("pot")
    fs.put(str(tmp_path / "a.h5"), f"{url}/a.h5")
    with fs.open(f"{url}/a.h5") as file:
        assert hdf.SingleHdf5ToZarr(file, f"{url}/a.h5").translate()["refs"]


def test_torch(url):
    torch = pytest.importorskip("torch")
    with fsspec.open(f"{url}/a.pt", "wb") as file:
        torch.save({"w": torch.ones(10_000)}, file)
    with fsspec.open(f"{url}/a.pt") as file:
        assert torch.load(file)["w"].sum() == 10_000


def test_torch_distributed_checkpoint(url):
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    import torch

    state = {"w": torch.ones(10_000)}
    checkpoint.save(state, checkpoint_id=f"{url}/step-1")
    state = {"w": torch.zeros(10_000)}
    checkpoint.load(state, checkpoint_id=f"{url}/step-1")
    assert state["w"].sum() == 10_000


def test_torch_checkpoint_is_committed_at_once(url):
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    import torch

    from potluck.torch import StorageWriter

    class Watched(StorageWriter):
        def finish(self, metadata, results):
            assert not fsspec.filesystem("pot").exists(f"{url}/step-1")
            super().finish(metadata, results)

    writer = Watched(f"{url}/step-1", reserve="10MiB", keep_last=2)
    checkpoint.save({"w": torch.ones(10_000)}, storage_writer=writer)
    assert len(fsspec.filesystem("pot").ls(f"{url}/step-1")) == 2
    state = {"w": torch.zeros(10_000)}
    checkpoint.load(state, checkpoint_id=f"{url}/step-1")
    assert state["w"].sum() == 10_000


def _save_as_a_rank(rank, url, meeting):
    import torch
    from torch.distributed import checkpoint

    from potluck.torch import StorageWriter

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    state = {f"w{rank}": torch.full((1000,), rank + 1.0)}
    checkpoint.save(state, storage_writer=StorageWriter(f"{url}/step-1"))
    torch.distributed.destroy_process_group()


def test_torch_ranks_commit_one_checkpoint(url, tmp_path):
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    import torch

    given = (url, str(tmp_path / "meeting"))
    torch.multiprocessing.spawn(_save_as_a_rank, given, nprocs=2)
    state = {"w0": torch.zeros(1000), "w1": torch.zeros(1000)}
    checkpoint.load(state, checkpoint_id=f"{url}/step-1")
    assert (state["w0"].sum(), state["w1"].sum()) == (1000, 2000)


def _read_in_a_worker(url):
    import torch

    class Files(torch.utils.data.Dataset):
        fs = fsspec.filesystem("pot")

        def __len__(self):
            return 8

        def __getitem__(self, index):
            return len(self.fs.cat_file(f"{url}/{index}"))

    return Files()


def test_torch_data_loader_forks(url):
    torch = pytest.importorskip("torch")
    fs = fsspec.filesystem("pot")
    for index in range(8):
        fs.pipe(f"{url}/{index}", bytes(index))
    loader = torch.utils.data.DataLoader(
        _read_in_a_worker(url), num_workers=2, multiprocessing_context="fork"
    )
    assert [int(size) for size in loader] == list(range(8))


def test_tqdm(url, tmp_path):
    tqdm = pytest.importorskip("tqdm")
    from fsspec.callbacks import TqdmCallback

    (tmp_path / "a").write_bytes(bytes(1000))
    callback = TqdmCallback(tqdm_kwargs={"disable": True}, tqdm_cls=tqdm.tqdm)
    fsspec.filesystem("pot").put(str(tmp_path / "a"), f"{url}/a", callback=callback)


@pytest.mark.parametrize("chained", ["simplecache::", "filecache::", "blockcache::"])
def test_fsspec_caches(url, chained, tmp_path):
    fsspec.filesystem("pot").pipe(f"{url}/a", b"cached")
    options = {chained.removesuffix("::"): {"cache_storage": str(tmp_path)}}
    with fsspec.open(f"{chained}{url}/a", **options) as file:
        assert file.read() == b"cached"


def test_fsspec_zip(url):
    fs = fsspec.filesystem("pot")
    import zipfile

    with fs.open(f"{url}/a.zip", "w+b") as file, zipfile.ZipFile(file, "w") as packed:
        packed.writestr("inside", b"zipped")
    with fsspec.open(f"zip://inside::{url}/a.zip") as file:
        assert file.read() == b"zipped"


def test_module_starts_no_thread_before_its_use(home):
    code = "import potluck, potluck.filesystem, threading; print(len(threading.enumerate()))"
    task = "import os; print(len(os.listdir('/proc/self/task')))"
    said = subprocess.check_output([sys.executable, "-c", f"{code}; {task}"], text=True)
    assert said.split() == ["1", "1"], os.environ["HOME"]
