"""The file with the secret of an nsqd and an nsqlookupd."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.errors import OptionError
from nsqtw.options.files import exposures, read_secret

FLAG = "--peer-secret-file"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "secret"


def test_space_around_it_does_not_count(file: Path) -> None:
    file.write_bytes(b"  s3 cret \n")
    assert read_secret(str(file), FLAG) == "s3 cret"


def test_without_a_file_there_is_none() -> None:
    assert read_secret("", FLAG) == ""


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"x" * 4097, b"two\nlines"])
def test_what_can_be_no_secret_is_refused_and_not_shown(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(OptionError) as caught:
        read_secret(str(file), FLAG)
    text = "must hold a secret: 1 to 4096 printable characters of ASCII on one line"
    assert str(caught.value) == f"{FLAG} cannot be used - {file} {text}"


def test_a_file_that_every_user_can_read_is_said(file: Path) -> None:
    file.write_text("s3cret")
    file.chmod(0o600)
    assert exposures({FLAG: str(file), "--none": "", "--gone": "/no/file"}) == []
    file.chmod(0o640)
    assert exposures({FLAG: str(file)}) == []
    file.chmod(0o604)
    assert exposures({FLAG: str(file)}) == [f"{FLAG}: every user of this machine can read {file}: chmod 600 {file}"]


def test_a_file_that_is_not_there_is_said_to_be_so() -> None:
    with pytest.raises(OptionError, match=f"^{FLAG} cannot be used - open nowhere: no such file or directory$"):
        read_secret("nowhere", FLAG)
