"""What fsspec asks of every file system, by its own tests."""

import pytest
from fsspec.tests import abstract

from potluck import PotluckFileSystem


class PotluckFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, pool):
        return PotluckFileSystem()

    @pytest.fixture
    def fs_path(self, fs):
        path = "test/abstract"
        fs.makedirs(path, exist_ok=True)
        yield path
        fs.rm(path, recursive=True)


class TestCopy(abstract.AbstractCopyTests, PotluckFixtures):
    pass


class TestGet(abstract.AbstractGetTests, PotluckFixtures):
    pass


class TestPut(abstract.AbstractPutTests, PotluckFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, PotluckFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, PotluckFixtures):
    pass
