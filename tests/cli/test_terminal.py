"""`nsqtw` on a terminal: questions, tables, the live table."""

from __future__ import annotations

from pathlib import Path

from nsqtw.testing import Broker, broker
from tests.cli.conftest import Nsqtw
from tests.cli.terminal import Terminal


def test_a_question_is_answered_with_no_or_yes(nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path) -> None:
    on_nsqd("topic", "create", topic)
    words = ("--nsqd-http-address", nsqd.http_address, "topic", "delete", topic)
    question = f"Delete topic {topic} with all its channels and messages (0 messages), on all nodes? [y/N] "
    for answer in ("n\n", "\n"):
        with Terminal(*words) as terminal:
            terminal.wait_for(question)
            terminal.type(answer)
            assert terminal.end() == 1
            assert terminal.text.endswith("nsqtw: nothing was done\n")
    assert on_nsqd("topic", "show", topic).code == 0
    with Terminal(*words) as terminal:
        terminal.wait_for(question)
        terminal.type("y\n")
        assert terminal.end() == 0
    assert on_nsqd("topic", "show", topic).code == 3


def test_ctrl_c_at_a_question_is_exit_code_130(nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path) -> None:
    on_nsqd("topic", "create", topic)
    with Terminal("--nsqd-http-address", nsqd.http_address, "topic", "empty", topic) as terminal:
        terminal.wait_for("[y/N] ")
        terminal.interrupt()
        assert terminal.end() == 130
    assert on_nsqd("topic", "show", topic).code == 0


def test_tables_have_colours_unless_no_color_is_set(nsqd: Broker, own_config: Path) -> None:
    words = ("--nsqd-http-address", nsqd.http_address, "nodes")
    with Terminal(*words) as terminal:
        assert terminal.end() == 0
        assert "\x1b[1m" in terminal.raw
        assert "───" in terminal.text
    with Terminal(*words, NO_COLOR="1", TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.raw


def test_the_live_table_moves_until_ctrl_c(nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "c")
    words = ("--nsqd-http-address", nsqd.http_address, "stat", topic, "--interval", "0.1")
    with Terminal(*words) as terminal:
        terminal.wait_for("1 rows")
        on_nsqd("pub", topic, *["x"] * 77)
        terminal.wait_for(" 77 ")
        terminal.interrupt()
        assert terminal.end() == 0


def test_a_live_table_of_so_many_looks_ends_by_itself(nsqd: Broker, own_config: Path) -> None:
    words = ("--nsqd-http-address", nsqd.http_address, "stat", "-n", "2", "--interval", "0.1")
    with Terminal(*words) as terminal:
        assert terminal.end() == 0
        assert "TOPIC" in terminal.text


def test_the_live_table_fits_the_screen(nsqd: Broker, on_nsqd: Nsqtw, own_config: Path) -> None:
    for number in range(30):
        on_nsqd("topic", "create", f"many-{number:02}")
    words = ("--nsqd-http-address", nsqd.http_address, "stat", "--interval", "0.1")
    with Terminal(*words, lines=20) as terminal:
        terminal.wait_for("more; name a topic, or --sort")
        terminal.wait_for("many-00")
        assert "many-29" not in terminal.text
        terminal.interrupt()
        assert terminal.end() == 0


def test_a_live_table_leaves_out_what_a_narrow_screen_has_no_place_for(
    nsqd: Broker, on_nsqd: Nsqtw, own_config: Path
) -> None:
    on_nsqd("topic", "create", "a-topic-with-quite-a-name")
    words = ("--nsqd-http-address", nsqd.http_address, "stat", "--interval", "0.1")
    with Terminal(*words, columns=80) as terminal:
        terminal.wait_for("a-topic-with-quite-a-name")
        assert "DEPTH" in terminal.text and "OUT/s" in terminal.text
        assert "TIMED OUT/s" not in terminal.text
        terminal.interrupt()
        assert terminal.end() == 0


def test_a_node_that_dies_is_told_in_the_live_table(own_config: Path) -> None:
    with broker() as nsqd:
        words = ("--nsqd-http-address", nsqd.http_address, "stat", "--interval", "0.1")
        with Terminal(*words) as terminal:
            terminal.wait_for("rows")
            nsqd.stop()
            terminal.wait_for("no answer")
            terminal.interrupt()
            assert terminal.end() == 0


def test_pub_on_a_terminal_says_how_to_end(nsqd: Broker, topic: str, own_config: Path) -> None:
    with Terminal("--nsqd-http-address", nsqd.http_address, "pub", topic) as terminal:
        terminal.wait_for("a message on each line; Ctrl-D ends")
        terminal.type("typed\n\x04")
        assert terminal.end() == 0
        assert f"published 1 message to {topic}" in terminal.text
