"""Names of topics and channels, and the directories they become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.names import directory_name, is_ephemeral, is_valid_name, name_of_directory
from nsqtw.nsqd.build import POSITIONS_FILE

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
NAMES = st.one_of(
    st.text(LETTERS, min_size=1, max_size=64),
    st.text(LETTERS, min_size=1, max_size=54).map(lambda base: base + "#ephemeral"),
    st.text(".", min_size=1, max_size=64),
)


@pytest.mark.parametrize(
    "name",
    [
        "t",
        "T",
        "0",
        "_",
        "-",
        ".",
        "..",
        "...",
        "a.b-c_d",
        LETTERS[:32],
        LETTERS[32:],
        "x" * 64,
        "t#ephemeral",
        ".#ephemeral",
    ]
    + ["x" * 54 + "#ephemeral"],
)
def test_valid_names(name: str) -> None:
    assert is_valid_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "#ephemeral", "x" * 65, "x" * 55 + "#ephemeral", "t\n", "t#ephemeral\n", "\nt", "t#Ephemeral", "t#EPHEMERAL"]
    + ["t#ephemeral#ephemeral", "t#", "t#other", "#t", "t#ephemeralx", "a b", " t", "t ", "a/b", "a:b", "a%2Eb", "a\\b"]
    + ["a\tb", "a\x00b", "é", "中", "\udcff", "\u0661", "a+b", "a~b", "a@b"],
)
def test_names_that_are_not_valid(name: str) -> None:
    assert not is_valid_name(name)


@given(NAMES)
def test_what_the_rule_allows_is_valid(name: str) -> None:
    assert is_valid_name(name)


@given(st.text())
def test_valid_names_are_ascii_of_1_to_64_bytes(name: str) -> None:
    if is_valid_name(name):
        assert 1 <= len(name.encode("ascii")) <= 64


def test_ephemeral_is_what_ends_with_the_word() -> None:
    assert is_ephemeral("t#ephemeral")
    assert not is_ephemeral("t")
    assert not is_ephemeral("ephemeral")
    assert not is_ephemeral("t#ephemeral.")


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("t", "t"),
        ("a.b", "a%2Eb"),
        (".hidden", "%2Ehidden"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("a#ephemeral", "a%23ephemeral"),
    ],
)
def test_directories(name: str, directory: str) -> None:
    assert directory_name(name) == directory
    assert name_of_directory(directory) == name


@given(NAMES)
def test_a_directory_is_one_entry_of_the_data_path_and_names_its_topic(name: str) -> None:
    directory = directory_name(name)
    assert directory not in ("", ".", "..")
    assert not set(directory) & set("/\\\x00:~")
    assert directory.isascii() and len(directory) <= 255
    assert name_of_directory(directory) == name


@given(NAMES, NAMES)
def test_two_names_have_two_directories(one: str, other: str) -> None:
    assert (directory_name(one) == directory_name(other)) == (one == other)


@given(st.text())
def test_a_directory_of_something_else_is_no_topic(directory: str) -> None:
    name = name_of_directory(directory)
    assert name is None or (is_valid_name(name) and directory_name(name) == directory)


@pytest.mark.parametrize(
    "directory",
    [
        "",
        ".",
        "..",
        "%2e",
        "%2E.",
        "%74",
        "t%",
        "t~deleted.1",
        "lost+found",
        "a b",
        "a%2Fb",
        "a/b",
        "x" * 65,
        "%ff",
        "%00",
    ],
)
def test_directories_no_topic_has(directory: str) -> None:
    assert name_of_directory(directory) is None


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_no_topic_takes_the_place_of_the_brokers_own_files(suffix: str) -> None:
    assert name_of_directory(POSITIONS_FILE + suffix) is None
