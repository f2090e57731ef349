"""`nsqtw topic`, `channel`, `nodes` and `stat`, on a real broker."""

from __future__ import annotations

import json
import re

import pytest

from nsqtw.cli.stat import Meter
from nsqtw.cluster.model import ChannelStats, ClusterStats, Node, NodeStats, TopicStats
from nsqtw.testing import Broker, broker
from tests.cli.conftest import Nsqtw
from tests.cli.serving import serving
from tests.replica_control import A_STANDBY


def test_a_topic_from_creation_to_deletion(on_nsqd: Nsqtw, topic: str, nsqd: Broker) -> None:
    created = on_nsqd("topic", "create", topic, "-o", "json")
    assert (created.code, created.json) == (0, {"action": "created", "topic": topic, "servers": [nsqd.http_address]})
    on_nsqd("pub", topic, "a", "b")
    [row] = on_nsqd("topic", "list", topic, "-o", "json").json
    assert (row["topic"], row["depth"], row["messages"], row["paused"]) == (topic, 2, 2, False)

    assert on_nsqd("topic", "pause", topic).out == f"paused {topic} on {nsqd.http_address}\n"
    assert on_nsqd("topic", "show", topic, "-o", "json").json["paused"] is True
    assert on_nsqd("topic", "unpause", topic).code == 0
    assert on_nsqd("topic", "show", topic, "-o", "json").json["paused"] is False

    assert on_nsqd("topic", "empty", topic, "--yes").code == 0
    assert on_nsqd("topic", "show", topic, "-o", "json").json["depth"] == 0
    assert on_nsqd("topic", "delete", topic, "-y").code == 0
    gone = on_nsqd("topic", "show", topic)
    assert (gone.code, gone.err) == (3, f"nsqtw: no node has a topic {topic!r}; 'nsqtw topic list' shows them\n")


def test_a_channel_from_creation_to_deletion(on_nsqd: Nsqtw, topic: str, nsqd: Broker) -> None:
    on_nsqd("topic", "create", topic)
    assert on_nsqd("channel", "create", topic, "c").out == f"created {topic}/c on {nsqd.http_address}\n"
    on_nsqd("pub", topic, "a", "b")
    [row] = on_nsqd("channel", "list", topic, "-o", "json").json
    assert (row["channel"], row["depth"], row["consumers"]) == ("c", 2, 0)
    assert on_nsqd("channel", "pause", topic, "c").code == 0
    shown = on_nsqd("channel", "show", topic, "c")
    assert shown.out.startswith(f"channel c of topic {topic} (paused)\n")
    assert shown.out.endswith("no consumers\n")
    assert on_nsqd("channel", "unpause", topic, "c").code == 0
    assert on_nsqd("channel", "empty", topic, "c", "--yes").code == 0
    assert on_nsqd("channel", "show", topic, "c", "-o", "json").json["depth"] == 0
    assert on_nsqd("channel", "delete", topic, "c", "--yes").code == 0
    assert on_nsqd("channel", "list", topic).out == "no channels\n"


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (["topic", "empty"], "Drop the messages of topic {topic} that no channel has got yet (0 messages)?"),
        (["topic", "delete"], "Delete topic {topic} with all its channels and messages ({loss}), on all nodes?"),
        (["channel", "empty"], "Drop all messages of channel c of topic {topic} ({loss})?"),
        (["channel", "delete"], "Delete channel c of topic {topic} with its messages ({loss}), on all nodes?"),
    ],
)
def test_without_a_terminal_nothing_is_destroyed_but_with_yes(
    on_nsqd: Nsqtw, topic: str, words: list[str], question: str
) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "c")
    on_nsqd("pub", topic, "kept")
    on_nsqd("pub", topic, "late", "--defer", "1h")
    done = on_nsqd(*words, topic, *(["c"] if words[0] == "channel" else []))
    assert (done.code, done.out) == (2, "")
    asked = question.format(topic=topic, loss="2 messages, 1 deferred")
    assert done.err == f"nsqtw: {asked} There is no terminal to ask on: repeat with --yes\n"
    assert on_nsqd("channel", "show", topic, "c", "-o", "json").json["depth"] == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["topic", "pause", "nowhere"], "no node has a topic 'nowhere'; 'nsqtw topic list' shows them"),
        (["topic", "delete", "nowhere", "--yes"], "no node has a topic 'nowhere'; 'nsqtw topic list' shows them"),
        (["topic", "set", "nowhere", "--durability", "os"], "no node has a topic 'nowhere'; 'nsqtw topic list' shows"),
        (["channel", "list", "nowhere"], "no node has a topic 'nowhere'; 'nsqtw topic list' shows them"),
        (
            ["channel", "pause", "here", "nowhere"],
            "the channel does not exist; 'nsqtw channel create' makes one (CHANNEL_NOT_FOUND)",
        ),
        (["channel", "show", "here", "nowhere"], "there is no channel nowhere"),
        (
            ["seek", "here", "nowhere", "latest", "--yes"],
            "the channel does not exist; 'nsqtw channel create' makes one (CHANNEL_NOT_FOUND)",
        ),
        (["drain", "127.0.0.1:1", "--yes"], "there is no node 127.0.0.1:1"),
        (["reload", "127.0.0.1:1"], "there is no node 127.0.0.1:1"),
    ],
)
def test_what_does_not_exist_is_exit_code_3(on_nsqd: Nsqtw, words: list[str], complaint: str) -> None:
    on_nsqd("topic", "create", "here")
    done = on_nsqd(*words)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"nsqtw: {complaint}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["topic", "create", "a b"], "no topic or channel can have the name 'a b': 1 to 64 of a-z A-Z 0-9 . _ -"),
        (["channel", "create", "a", "b c"], "no topic or channel can have the name 'b c'"),
        (["topic", "set", "a"], "nothing to set: give --durability, --retention-time or --retention-bytes"),
        (["topic", "set", "a", "--retention-time", "x"], "--retention-time 'x' must be a duration such as 24h or 7d"),
        (["topic", "set", "a", "--retention-bytes", "x"], "--retention-bytes 'x' must be a size such as 10GB, 0, or"),
    ],
)
def test_wrong_values_are_exit_code_2(on_nsqd: Nsqtw, words: list[str], complaint: str) -> None:
    done = on_nsqd(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"nsqtw: {complaint}")
    assert done.err.count("\n") == 1


def test_durability_and_retention_are_set_and_taken_back(on_nsqd: Nsqtw, nsqd: Broker, topic: str) -> None:
    on_nsqd("topic", "create", topic)
    words = ["topic", "set", topic, "--durability", "fsync", "--retention-time", "7d", "--retention-bytes", "10GB"]
    assert on_nsqd(*words).out.splitlines() == [
        f"changed the {what} of {topic} on {nsqd.http_address}" for what in ("durability", "retention")
    ]
    shown = on_nsqd("topic", "show", topic, "-o", "json").json
    assert (shown["durability"], shown["retention"]) == ("fsync", {"time": 604800.0, "bytes": 10 * 2**30})
    assert "durability  fsync; retention 7.0 d or 10 GB" in on_nsqd("topic", "show", topic).out
    words = ["topic", "set", topic, "--durability", "default", "--retention-time", "default"]
    assert on_nsqd(*words, "--retention-bytes", "default").code == 0
    shown = on_nsqd("topic", "show", topic, "-o", "json").json
    assert (shown["durability"], shown["retention"]) == ("os", None)


def test_the_list_takes_a_pattern(on_nsqd: Nsqtw, topic: str) -> None:
    for name in ("one.a", "one.b", "two.a"):
        on_nsqd("topic", "create", name)
    assert [row["topic"] for row in on_nsqd("topic", "list", "one.*", "-o", "json").json] == ["one.a", "one.b"]
    table = on_nsqd("topic", "list", "one.*").out.splitlines()
    assert table[0].split()[:3] == ["TOPIC", "CHANNELS", "WAITING"]
    assert [line.split()[0] for line in table[1:]] == ["one.a", "one.b"]
    assert on_nsqd("topic", "list", "none.*").out == "no topics\n"


def cells(table: list[str]) -> dict[str, str]:
    """Return the cells of the only row of a table, by the titles of its columns."""
    titles, row = (re.split(r"\s{2,}", line.strip()) for line in table)
    return dict(zip(titles, row, strict=True))


def test_what_waits_in_channels_is_shown_of_their_topic(on_nsqd: Nsqtw, topic: str) -> None:
    on_nsqd("topic", "create", topic)
    for channel in ("c", "d"):
        on_nsqd("channel", "create", topic, channel)
    on_nsqd("pub", topic, "a", "b")
    listed = cells(on_nsqd("topic", "list", topic).out.splitlines())
    assert (listed["WAITING"], listed["DEFERRED"]) == ("4", "0")
    assert listed["OLDEST"] != "-"
    shown = on_nsqd("topic", "show", topic).out.splitlines()
    assert shown[1] == "waiting     4 in 2 channels; 0 not yet given to channels"
    assert cells(shown[-2:])["WAITING"] == "4"
    data = on_nsqd("topic", "show", topic, "-o", "json").json
    assert (data["depth"], data["waiting"], data["nodes"][0]["waiting"]) == (0, 4, 4)


def test_deferred_messages_of_a_topic_without_channels_do_not_wait(on_nsqd: Nsqtw, topic: str) -> None:
    on_nsqd("pub", topic, "late", "later", "--defer", "1h")
    on_nsqd("pub", topic, "a")
    listed = cells(on_nsqd("topic", "list", topic).out.splitlines())
    assert (listed["WAITING"], listed["DEFERRED"]) == ("1", "2")
    [counted] = on_nsqd("stat", topic, "-o", "json").json["channels"]
    assert (counted["depth"], counted["deferred"]) == (1, 2)
    shown = on_nsqd("topic", "show", topic).out.splitlines()
    assert shown[1] == "waiting     1 for a first channel, and 2 deferred; 0 on disk"
    assert (cells(shown[-2:])["WAITING"], cells(shown[-2:])["DEFERRED"]) == ("1", "2")
    asked = on_nsqd("topic", "empty", topic).err
    assert "(3 messages, 2 deferred)" in asked
    on_nsqd("topic", "pause", topic)
    on_nsqd("channel", "create", topic, "c")
    shown = on_nsqd("topic", "show", topic).out.splitlines()
    assert shown[1] == "waiting     0 in 1 channel; 1 not yet given to channels, and 2 deferred"


def test_nodes(on_nsqd: Nsqtw, nsqd: Broker) -> None:
    [row] = on_nsqd("nodes", "-o", "json").json
    assert (row["node"], row["tcp_address"], row["health"]) == (nsqd.http_address, nsqd.tcp_address, "OK")
    assert "nsqtw" in row["version"]


def test_nodes_shows_roles_when_one_has_a_role(on_nsqd: Nsqtw, nsqtw: Nsqtw) -> None:
    assert "ROLE" not in on_nsqd("nodes").out
    assert on_nsqd("nodes", "-o", "json").json[0]["role"] is None
    info = {"version": "1.3.0", "broadcast_address": "10.0.0.1", "hostname": "h", "tcp_port": 4150, "http_port": 4151}
    stats = {"version": "1.3.0", "health": "NOK - suspended", "topics": [], "replica": A_STANDBY.document()}
    with serving("/info", json.dumps(info).encode(), more={"/stats": (200, json.dumps(stats).encode())}) as node:
        head, row = nsqtw("--nsqd-http-address", node, "nodes").out.splitlines()
        assert head.split()[:5] == ["NODE", "TCP", "VERSION", "HEALTH", "ROLE"]
        assert row.split()[:5] == ["10.0.0.1:4151", "10.0.0.1:4150", "1.3.0", "OK", "standby"]
        assert nsqtw("--nsqd-http-address", node, "nodes", "-o", "json").json[0]["role"] == "standby"


def test_stat_is_one_table_without_a_terminal(on_nsqd: Nsqtw, topic: str) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "c")
    on_nsqd("pub", topic, "a")
    head, row = on_nsqd("stat", topic).out.splitlines()
    assert head.split()[:3] == ["TOPIC", "CHANNEL", "DEPTH"]
    assert row.split()[:3] == [topic, "c", "1"]
    [document] = [on_nsqd("stat", topic, "c", "-n", "1", "-o", "json").json]
    assert [channel["in_rate"] for channel in document["channels"]] == [None]


def test_stat_with_two_looks_has_rates(on_nsqd: Nsqtw, topic: str) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "c")
    lines = on_nsqd("stat", topic, "-n", "2", "--interval", "0.1", "-o", "json").out.splitlines()
    first, second = (json.loads(line)["channels"][0] for line in lines)
    assert (first["in_rate"], second["in_rate"], second["out_rate"]) == (None, 0.0, 0.0)


def channel(name: str, depth: int, messages: int, requeued: int = 0) -> ChannelStats:
    return ChannelStats(
        node="n", topic_name="t", channel_name=name, depth=depth, message_count=messages, requeue_count=requeued
    )


def stats(*channels: ChannelStats) -> ClusterStats:
    node = Node(broadcast_address="10.0.0.1", hostname="h", tcp_port=1, http_port=2, version="1.3.0")
    topic = TopicStats(node=node.http_address, topic_name="t", channels=channels)
    return ClusterStats((NodeStats(node=node, topics=(topic,)),), {"t": topic})


def test_rates_are_the_difference_of_counts_over_the_time() -> None:
    meter = Meter(None, None, "name")
    assert meter.rows(stats(channel("c", 10, 100)), 5.0)[0]["in_rate"] is None
    [row] = meter.rows(stats(channel("c", 20, 140, requeued=4)), 7.0)
    assert (row["in_rate"], row["out_rate"], row["requeue_rate"]) == (20.0, 15.0, 2.0)


def test_the_deepest_channel_may_come_first() -> None:
    found = stats(channel("a", 1, 0), channel("b", 3, 0), channel("c", 2, 0))
    assert [row["channel"] for row in Meter(None, None, "depth").rows(found, 1.0)] == ["b", "c", "a"]
    assert [row["channel"] for row in Meter(None, None, "name").rows(found, 1.0)] == ["a", "b", "c"]
    assert [row["channel"] for row in Meter("t", "c", "name").rows(found, 1.0)] == ["c"]


def test_a_node_that_is_down_is_a_warning_and_exit_code_6(nsqtw: Nsqtw, nsqd: Broker, topic: str) -> None:
    dead = "127.0.0.1:1"
    words = ["--nsqd-http-address", nsqd.http_address, "--nsqd-http-address", dead]
    created = nsqtw(*words, "topic", "create", topic)
    assert (created.code, created.out) == (6, f"created {topic} on {nsqd.http_address}\n")
    assert created.err == f"nsqtw: warning: {dead}: connection refused\n"
    listed = nsqtw(*words, "topic", "list", topic, "-o", "json")
    assert (listed.code, [row["topic"] for row in listed.json]) == (6, [topic])


def test_no_node_at_all_is_exit_code_4_and_says_what_to_do(nsqtw: Nsqtw) -> None:
    done = nsqtw("--nsqd-http-address", "127.0.0.1:1", "topic", "list")
    assert (done.code, done.out) == (4, "")
    assert done.err == "nsqtw: cannot connect to nsqd: 127.0.0.1:1: connection refused\n"
    done = nsqtw("--lookupd-http-address", "127.0.0.1:1", "pub", "t", "x")
    assert done.code == 4
    assert "--lookupd-http-address or a context names another" in done.err


def test_a_node_with_authorization_refuses_without_a_secret(
    nsqtw: Nsqtw, tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    directory = tmp_path_factory.mktemp("grants")
    line = nsqtw("hash-secret", stdin=b"open sesame").out
    grants = directory / "grants.toml"
    rights = 'topic = ".*"\npermissions = ["subscribe", "publish", "admin"]'
    grants.write_text(f'[[client]]\nidentity = "tester"\n{line}\n[[client.grant]]\n{rights}\n')
    secret = directory / "secret"
    secret.write_text("open sesame\n")
    wrong = directory / "wrong"
    wrong.write_text("open barley\n")
    with broker(f"--auth=static:{grants}", http_auth="on") as nsqd:
        words = ["--nsqd-http-address", nsqd.http_address]
        for more in (["topic", "list"], ["pub", topic, "x"], ["tail", topic, "-n", "1"]):
            done = nsqtw(*words, *more)
            assert (done.code, done.out) == (5, ""), more
            assert done.err.count("\n") == 1
            assert "--secret-file" in done.err
        assert nsqtw(*words, "--secret-file", str(wrong), "topic", "list").code == 5
        assert nsqtw(*words, "pub", topic, "x", "--secret-file", str(secret)).code == 0
        assert nsqtw(*words, "topic", "list", "--secret-file", str(secret)).code == 0


def test_what_another_nsqd_cannot_do_is_said(nsqtw: Nsqtw) -> None:
    """A node without the endpoints of nsqtw, as the original nsqd."""
    info = b'{"version": "1.3.0", "broadcast_address": "127.0.0.1", "hostname": "h", "tcp_port": 1, "http_port": 2}'
    topics = b'{"version": "1.3.0", "health": "OK", "topics": [{"topic_name": "t", "channels": []}]}'
    refusal = (413, b'{"message":"BAD_BODY"}')
    with serving("/info", info, more={"/stats": (200, topics), "/mpub": refusal}) as node:
        for words in (
            ["pub", "t", "--header", "a=b", "x"],
            ["peek", "t"],
            ["seek", "t", "c", "latest"],
            ["topic", "set", "t", "--durability", "os"],
            ["reload"],
        ):
            done = nsqtw("--nsqd-http-address", node, *words)
            assert (done.code, done.out) == (1, ""), words
            assert done.err == (
                "nsqtw: the nodes cannot do this: it needs nsqd of nsqtw, in this version or a later one\n"
            )
