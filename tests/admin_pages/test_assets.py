"""Static files: their URLs, types and content."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nsqtw.admin.pages
from nsqtw.admin.pages.assets import HASH_DIGITS, Assets

FOLDER = Path(nsqtw.admin.pages.__file__).parent / "static"
MAX_BYTES = 150_000


@pytest.fixture
def assets() -> Assets:
    return Assets()


def test_a_url_has_the_hash_and_leads_to_the_file(assets: Assets) -> None:
    _, digest, path = assets.url("admin.css").split("/", 2)
    assert re.fullmatch(f"[0-9a-f]{{{HASH_DIGITS}}}", digest)
    found = assets.find(digest, path)
    assert found is not None
    assert (found.content_type, found.content) == (b"text/css; charset=utf-8", (FOLDER / "admin.css").read_bytes())


@pytest.mark.parametrize("path", ["vendor/uplot/uPlot.iife.min.js", "vendor/uplot/uPlot.min.css", "icon.svg"])
def test_files_in_folders_are_found(assets: Assets, path: str) -> None:
    assert assets.find(assets.digest, path) is not None


def test_the_url_of_another_release_leads_nowhere(assets: Assets) -> None:
    assert assets.find("0" * HASH_DIGITS, "admin.css") is None


def test_licences_and_unknown_files_are_not_served(assets: Assets) -> None:
    licences = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*LICENSE*")]
    assert licences
    for path in [*licences, "nothing.js", "../assets.py", ""]:
        assert assets.find(assets.digest, path) is None
    with pytest.raises(KeyError):
        assets.url("nothing.js")


def test_two_processes_have_the_same_urls(assets: Assets) -> None:
    assert Assets().digest == assets.digest


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < MAX_BYTES
