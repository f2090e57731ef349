"""The versions of an archive's identity."""

import json
from pathlib import Path

import pytest
from pyspark_nsq.archive.identity import Identity, read_identity
from pyspark_nsq.archive.layout import IDENTITY
from pyspark_nsq.errors import ArchiveError

from tests.spark.jobs.local_files import LocalFiles

EARLIER = {"id": "x", "format": "parquet", "subscription": "t"}


def written(folder: Path, text: str) -> LocalFiles:
    files = LocalFiles(None, str(folder))
    files.create(IDENTITY, text)
    return files


@pytest.mark.parametrize("has_headers", [False, True])
def test_a_new_archive_has_attempts(has_headers: bool, tmp_path: Path) -> None:
    new = Identity("x", "parquet", "t", has_headers)
    assert new == read_identity(written(tmp_path, new.to_text()))
    assert new.schema.names[:5] == ["position", "id", "timestamp", "attempts", "due"]
    assert has_headers == ("headers" in new.schema.names)


@pytest.mark.parametrize(("version", "has_headers"), [(1, False), (2, True)])
def test_an_archive_of_an_earlier_version_has_none(version: int, has_headers: bool, tmp_path: Path) -> None:
    found = read_identity(written(tmp_path, json.dumps(EARLIER | {"version": version})))
    assert found == Identity("x", "parquet", "t", has_headers, has_attempts=False)
    assert "attempts" not in found.schema.names


@pytest.mark.parametrize(("version", "said"), [(4, "was written by a later version"), (3, "is damaged")])
def test_documents_that_cannot_be_read(version: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=said):
        read_identity(written(tmp_path, json.dumps(EARLIER | {"version": version})))
