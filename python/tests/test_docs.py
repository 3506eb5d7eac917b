"""The examples that docs/python.md prints, as they stand."""

import ast
import importlib.util
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs/python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
#: What an example needs beside the packages that it imports.
ALSO = {"to_zarr": "zarr", "to_parquet": "pyarrow", "TqdmCallback": "tqdm"}


def imported(example):
    for statement in ast.walk(ast.parse(example)):
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
    yield from (package for word, package in ALSO.items() if word in example)


def test_the_page_has_six_examples():
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(pool, example, tmp_path, monkeypatch):
    for package in imported(example):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (tmp_path / "results/deep").mkdir(parents=True)
    (tmp_path / "results/deep/a").write_bytes(bytes(1000))
    monkeypatch.chdir(tmp_path)
    pool.make_dir("pot://lab", True)
    exec(compile(example, str(PAGE), "exec"), {})
    pool.remove("pot://lab", True)
