"""The lowest supported version of Twisted, with the tests of what uses its private names."""

from __future__ import annotations

from pathlib import Path

from tests import twisted_versions


def test_the_lowest_version_of_the_range_works(tmp_path: Path) -> None:
    lowest, _ = twisted_versions.supported()
    directory = tmp_path / "lowest"
    version = twisted_versions.install(lowest, directory)
    assert version.startswith(lowest.removeprefix("twisted==").removesuffix("*"))
    words = ["-q", "--hypothesis-profile=same", *twisted_versions.NEAR_PRIVATE_NAMES]
    assert twisted_versions.run_tests(directory, words) == 0


def test_a_version_that_fails_its_tests_is_reported(tmp_path: Path) -> None:
    directory = tmp_path / "twisted"
    directory.mkdir()
    (directory / "__init__.py").write_text("__version__ = '0'\n")
    assert twisted_versions.run_tests(tmp_path, ["-q", "tests/net/test_listen.py"]) != 0
