"""The lowest supported version of Twisted, with the tests of what uses its private names."""

from __future__ import annotations

from pathlib import Path

from tests import twisted_versions


def test_the_lowest_version_of_the_range_works(tmp_path: Path) -> None:
    lowest, _ = twisted_versions.supported()
    directory = tmp_path / "lowest"
    version = twisted_versions.install(lowest, directory)
    assert version.startswith(lowest.removeprefix("twisted==").removesuffix("*"))
    # Twisted before 26.4 raises IndexError for an error of OpenSSL without a text, when TLS ends at just that moment.
    over_tls = "--deselect=tests/test_http_clients.py::test_every_request_has_an_answer_over_tls"
    words = ["-q", "--hypothesis-profile=same", over_tls, *twisted_versions.NEAR_PRIVATE_NAMES]
    assert twisted_versions.run_tests(directory, words) == 0


def test_a_version_that_fails_its_tests_is_reported(tmp_path: Path) -> None:
    directory = tmp_path / "twisted"
    directory.mkdir()
    (directory / "__init__.py").write_text("__version__ = '0'\n")
    assert twisted_versions.run_tests(tmp_path, ["-q", "tests/net/test_listen.py"]) != 0
