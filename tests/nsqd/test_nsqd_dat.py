"""nsqd.dat: its bytes, what is understood and what is refused, and what a failure or a crash leaves."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.errors import BackendError, BackendFull, MetadataError
from nsqtw.names import EPHEMERAL
from nsqtw.nsqd.nsqd_dat import NamedChannel, NamedTopic, read, write
from nsqtw.testing.files import FaultyFiles

NAMES = st.from_regex(r"[.a-zA-Z0-9_-]{1,54}(#ephemeral)?", fullmatch=True)
CHANNELS = st.lists(st.builds(NamedChannel, NAMES, st.booleans()), max_size=5, unique_by=lambda channel: channel.name)
TOPICS = st.lists(
    st.builds(NamedTopic, NAMES, st.booleans(), CHANNELS.map(tuple)), max_size=5, unique_by=lambda topic: topic.name
)

A = NamedTopic("a", channels=(NamedChannel("c", paused=True),))
B = NamedTopic("b", paused=True)


def no_line(level: str, text: str) -> None:
    raise AssertionError((level, text))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "nsqd.dat")


def read_text(path: str, text: str) -> list[NamedTopic] | None:
    """What a file with this text names, without a warning."""
    Path(path).write_text(text)
    return read(path, no_line)


# -- the format


def test_the_bytes_are_those_of_nsqd(path: str) -> None:
    write(path, [A, B])
    assert Path(path).read_bytes() == (
        b'{"topics":[{"name":"a","paused":false,"channels":[{"name":"c","paused":true}]},'
        b'{"name":"b","paused":true,"channels":null}],"version":"1.3.0"}'
    )


def test_nothing_is_null_and_not_an_empty_list(path: str) -> None:
    write(path, [])
    assert Path(path).read_bytes() == b'{"topics":null,"version":"1.3.0"}'


def test_only_the_owner_may_read_it(path: str) -> None:
    write(path, [A])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


@settings(max_examples=100, deadline=None)
@given(topics=TOPICS)
def test_whatever_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, topics: list[NamedTopic]) -> None:
    path = str(tmp_path_factory.mktemp("data") / "nsqd.dat")
    write(path, topics)
    assert read(path, no_line) == topics
    listed = [
        {
            "name": topic.name,
            "paused": topic.paused,
            "channels": [{"name": channel.name, "paused": channel.paused} for channel in topic.channels] or None,
        }
        for topic in topics
    ]
    compact = json.dumps({"topics": listed or None, "version": "1.3.0"}, separators=(",", ":"))
    assert Path(path).read_bytes() == compact.encode()


# -- reading


def test_no_file_is_a_fresh_start(path: str) -> None:
    assert read(path, no_line) is None


def test_what_is_not_said_is_absent(path: str) -> None:
    assert read_text(path, '{"topics":[{"name":"a","channels":[{"name":"c"}]},{"name":"b"}]}') == [
        NamedTopic("a", channels=(NamedChannel("c"),)),
        NamedTopic("b"),
    ]


@pytest.mark.parametrize("text", ["null", "{}", '{"topics":null}', '{"topics":[],"version":null,"more":1.5}\n'])
def test_nothing_can_be_said_in_many_ways(path: str, text: str) -> None:
    assert read_text(path, text) == []


def test_keys_are_known_in_any_case(path: str) -> None:
    text = '{"Topics":[{"NAME":"a","Paused":true,"channelS":[{"name":"c"}]}]}'
    assert read_text(path, text) == [NamedTopic("a", True, (NamedChannel("c"),))]


def test_what_is_named_twice_is_one(path: str) -> None:
    first = '{"name":"a","paused":true,"channels":[{"name":"c","paused":true},{"name":"c"},{"name":"d"}]}'
    second = '{"name":"a","channels":[{"name":"d","paused":true},{"name":"e"}]}'
    channels = (NamedChannel("c", True), NamedChannel("d", True), NamedChannel("e"))
    assert read_text(path, f'{{"topics":[{first},{second}]}}') == [NamedTopic("a", True, channels)]


def test_ephemeral_ones_are_read_as_they_stand_there(path: str) -> None:
    topic = NamedTopic(f"t{EPHEMERAL}", channels=(NamedChannel(f"c{EPHEMERAL}"),))
    write(path, [topic])
    assert read(path, no_line) == [topic]


def test_invalid_names_are_skipped_with_a_warning(path: str) -> None:
    lines: list[tuple[str, str]] = []
    text = '{"topics":[{"name":"bad!","channels":[{"name":"x y"}]},{"name":"a","channels":[{"name":"c/d"},{}]},null]}'
    Path(path).write_text(text)
    assert read(path, lambda *line: lines.append(line)) == [NamedTopic("a")]
    assert lines == [
        ("warn", "skipping creation of invalid topic bad!"),
        ("warn", "skipping creation of invalid channel c/d"),
        ("warn", "skipping creation of invalid channel "),
        ("warn", "skipping creation of invalid topic "),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unexpected end of JSON input"),
        ('{"topics":[', "unexpected end of JSON input"),
        ("x", "Expecting value: line 1 column 1 (char 0)"),
        ('{"topics":null}\nx', "Extra data: line 2 column 1 (char 16)"),
        ('{"version":NaN}', "NaN is no JSON value"),
        ("[]", "the document is no JSON object"),
        ('{"version":7}', "version is no JSON string"),
        ('{"topics":{}}', "topics is no JSON array"),
        ('{"topics":["a"]}', "a topic is no JSON object"),
        ('{"topics":[{"name":1}]}', "the name of a topic is no JSON string"),
        ('{"topics":[{"name":"a","paused":"no"}]}', "paused of topic a is no JSON boolean"),
        ('{"topics":[{"name":"a","channels":{}}]}', "channels of topic a is no JSON array"),
        ('{"topics":[{"name":"a","channels":[5]}]}', "a channel is no JSON object"),
        ('{"topics":[{"name":"a","channels":[{"name":"c","paused":1}]}]}', "paused of channel c is no JSON boolean"),
    ],
)
def test_what_is_no_such_json_is_refused(path: str, text: str, why: str) -> None:
    with pytest.raises(MetadataError) as refused:
        read_text(path, text)
    assert str(refused.value) == f"failed to parse metadata in {path} - {why}"


def test_too_deep_a_document_is_refused(path: str) -> None:
    with pytest.raises(MetadataError, match="failed to parse metadata"):
        read_text(path, "[" * 100_000)


def test_a_file_that_cannot_be_read_is_refused(path: str) -> None:
    os.mkdir(path)
    with pytest.raises(MetadataError) as refused:
        read(path, no_line)
    assert str(refused.value) == f"failed to read metadata from {path} - is a directory"


# -- failures and crashes


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
def test_a_failed_write_leaves_the_file_as_it_was_and_nothing_beside_it(path: str, operation: str) -> None:
    write(path, [A])
    files = FaultyFiles(os.path.dirname(path))
    files.fail(operation, errno.EIO)
    with pytest.raises(BackendError) as failed:
        write(path, [B], files)
    assert str(failed.value) == "write nsqd.dat: input/output error"
    assert read(path, no_line) == [A]
    assert os.listdir(os.path.dirname(path)) == ["nsqd.dat"]
    write(path, [B], files)
    assert read(path, no_line) == [B]


def test_a_failed_write_that_cannot_clean_up_is_the_same_failure(path: str) -> None:
    files = FaultyFiles(os.path.dirname(path))
    files.fail("sync", errno.EIO)
    files.fail("unlink", errno.EIO)
    with pytest.raises(BackendError, match=r"write nsqd.dat: input/output error"):
        write(path, [B], files)
    assert read(path, no_line) is None


def test_a_full_disk_is_told_from_other_failures(path: str) -> None:
    files = FaultyFiles(os.path.dirname(path))
    files.space = 10
    with pytest.raises(BackendFull, match=r"write nsqd.dat: no space left on device"):
        write(path, [A, B], files)


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_leaves_the_old_file_or_the_new_one(tmp_path: Path, power_loss: bool) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    path = str(watched / "nsqd.dat")
    write(path, [A])
    files = FaultyFiles(str(watched))
    write(path, [A, B], files)
    found = []
    for step in range(len(files.trace) + 1):
        crashed = tmp_path / f"after{step}"
        files.crash(str(crashed), step, power_loss=power_loss)
        found.append(read(str(crashed / "nsqd.dat"), no_line))
    # The directory is not synced, as in nsqd: a power loss can take the rename back.
    assert found == [[A]] * len(files.trace) + [[A] if power_loss else [A, B]]
