"""A spool after crashes and on bad disks: what was synced is there, or its loss is an error."""

import shutil
from pathlib import Path

import pytest
from pyspark_nsq.channel import spool as spool_module
from pyspark_nsq.channel.spool import Spool, read_spans
from pyspark_nsq.channel.spool_format import RECORD_BYTES, SEGMENT_BYTES
from pyspark_nsq.errors import SpoolError

from tests.spark.spans import bodies_of
from tests.spark.test_spool import NOW, append, bodies, segments


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


@pytest.fixture
def segment(path: str) -> Path:
    """Of a spool with the rows 1, 2 and 3 in a record each."""
    spool = Spool.open(path)
    for number in (1, 2, 3):
        append(spool, number)
    spool.close()
    return Path(path) / segments(path)[0]


def record_bytes(segment: Path) -> int:
    """Of each of the three."""
    return (segment.stat().st_size - SEGMENT_BYTES) // 3


def flip(segment: Path, place: int) -> None:
    data = bytearray(segment.read_bytes())
    data[place] ^= 1
    segment.write_bytes(data)


def test_a_torn_end_is_cut_off_wherever_it_is_torn(segment: Path, path: str, tmp_path: Path) -> None:
    whole, size = segment.read_bytes(), record_bytes(segment)
    for length in range(SEGMENT_BYTES + 2 * size, len(whole)):
        segment.write_bytes(whole[:length])
        torn = Spool.open(path)
        assert (torn.end, bodies(torn)) == (2, [b"body 1", b"body 2"])
        assert append(torn, 1, 2, 3) == 1, "only the row that was cut off is new"
        assert bodies(torn) == [b"body 1", b"body 2", b"body 3"]
        torn.close()


@pytest.mark.parametrize("at", [0, RECORD_BYTES + 1])
def test_a_bad_end_that_was_not_synced_is_cut_off(segment: Path, path: str, at: int) -> None:
    place = SEGMENT_BYTES + 2 * record_bytes(segment)
    flip(segment, place + at)
    assert bodies(Spool.open(path)) == [b"body 1", b"body 2"]
    assert place == segment.stat().st_size


@pytest.mark.parametrize("at", [0, 12, RECORD_BYTES + 1, RECORD_BYTES + 30])
def test_damage_before_the_end_is_an_error_and_never_other_rows(segment: Path, path: str, at: int) -> None:
    uuid = Spool.open(path).uuid
    flip(segment, SEGMENT_BYTES + record_bytes(segment) + at)
    with pytest.raises(SpoolError, match=r'is damaged|damaged file.*at byte .*"failOnDataLoss" to "false"'):
        Spool.open(path)
    with pytest.raises(SpoolError, match="damaged file"):
        list(read_spans(path, uuid, 0, 3))
    assert bodies_of(read_spans(path, uuid, 0, 3, skips_damage=True)) == [b"body 1", b"body 3"]
    tolerant = Spool.open(path, skips_damage=True)
    assert (tolerant.end, bodies(tolerant)) == (3, [b"body 1", b"body 3"])
    assert append(tolerant, 4) == 1
    assert bodies(tolerant) == [b"body 1", b"body 3", b"body 4"]


def test_damage_in_the_head_of_a_segment(segment: Path, path: str) -> None:
    flip(segment, 20)
    with pytest.raises(SpoolError, match="is damaged, or of a later version"):
        Spool.open(path)


def test_damage_of_a_full_segment(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "_SEGMENT_ROWS", 2)
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    append(spool, 4)
    spool.close()
    flip(Path(path) / segments(path)[0], SEGMENT_BYTES + RECORD_BYTES + 50)
    strict = Spool.open(path)
    with pytest.raises(SpoolError, match="damaged file"):
        bodies(strict)
    strict.close()
    assert bodies(Spool.open(path, skips_damage=True)) == [b"body 4"]


@pytest.mark.parametrize("has_next", [False, True])
def test_a_crash_between_two_segments(path: str, monkeypatch: pytest.MonkeyPatch, has_next: bool) -> None:
    monkeypatch.setattr(spool_module, "_SEGMENT_ROWS", 2)
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    spool.close()
    first, second = (Path(path) / one for one in segments(path))
    first.with_suffix(".ids").unlink()
    if not has_next:
        second.rename(second.with_suffix(".new"))
    again = Spool.open(path)
    assert bodies(again) == [b"body 1", b"body 2", b"body 3"]
    assert append(again, 1, 2, 3, 4) == 1
    again.forget(4, before=NOW)
    again.close()
    assert append(Spool.open(path), 1, 2, 3, 4, 5) == 1


def test_the_last_file_is_missing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "_SEGMENT_ROWS", 2)
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    append(spool, 4)
    spool.close()
    (Path(path) / segments(path)[-1]).unlink()
    with pytest.raises(SpoolError, match=r"lacks the file behind .*00001.segment"):
        Spool.open(path)
    assert bodies(Spool.open(path, skips_damage=True)) == [b"body 1", b"body 2", b"body 3"]


def test_a_record_at_another_place_is_damage(segment: Path, path: str) -> None:
    """A disk that wrote a block to the wrong place: the CRC is right."""
    data, size = segment.read_bytes(), record_bytes(segment)
    first, rest = data[SEGMENT_BYTES : SEGMENT_BYTES + size], data[SEGMENT_BYTES + 2 * size :]
    segment.write_bytes(data[:SEGMENT_BYTES] + first + first + rest)
    with pytest.raises(SpoolError, match="damaged file"):
        Spool.open(path)
    assert bodies(Spool.open(path, skips_damage=True)) == [b"body 1", b"body 3"]


def test_damaged_ids_of_a_segment_that_is_gone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "_SEGMENT_ROWS", 2)
    spool = Spool.open(path)
    append(spool, 1, 2, 3)
    spool.forget(3, before=NOW)
    spool.close()
    [ids] = Path(path).glob("*.ids")
    flip(ids, 6)
    with pytest.raises(SpoolError, match=r"damaged file, .*\.ids"):
        Spool.open(path)
    assert append(Spool.open(path, skips_damage=True), 1, 4) == 2


def test_files_from_another_spool(path: str, tmp_path: Path) -> None:
    other = Spool.open(str(tmp_path / "other"))
    append(other, 1)
    other.close()
    Spool.open(path).close()
    shutil.copy(tmp_path / "other" / segments(other.path)[0], Path(path) / "00000000000000000009.segment")
    with pytest.raises(SpoolError, match="files of two spools"):
        Spool.open(path)
