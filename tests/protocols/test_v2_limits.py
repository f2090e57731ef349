"""A publish to a topic whose channel has reached a bound, over V2."""

from __future__ import annotations

import pytest

from tests.protocols.dialogue import END, OK, V2Harness, dpub, error, mpub, pub

FULL = b"failed channel c has reached its max_depth"


def bounded(max_depth: int, **options: object) -> V2Harness:
    harness = V2Harness(**options)
    harness.broker.topic("t").channel("c", harness.now).policies.set({"max_depth": max_depth})
    return harness


@pytest.mark.parametrize(
    ("sent", "verb"), [(pub(b"x"), b"PUB"), (mpub(b"x", b"y"), b"MPUB"), (dpub(1000, b"x"), b"DPUB")]
)
@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_it_is_refused_and_the_connection_ends_as_for_a_full_disk(sent: bytes, verb: bytes, durability: str) -> None:
    harness = bounded(2, durability=durability)
    client = harness.connect()
    client.send(mpub(b"first", b"second"))
    client.expect(OK)
    client.send(sent)
    client.expect(error(b"E_%s_FAILED %s %s" % (verb, verb, FULL)), END)
    assert harness.broker.topics["t"].put_total == 2


def test_an_mpub_that_never_fits_is_told_so() -> None:
    client = bounded(1).connect()
    client.send(mpub(b"x", b"y"))
    why = b"2 messages exceed the max_depth of channel c, which is 1"
    client.expect(error(b"E_MPUB_FAILED MPUB failed " + why), END)


def test_of_a_run_of_pubs_those_that_fit_are_accepted() -> None:
    harness = bounded(2)
    client = harness.connect()
    client.send(pub(b"1") + pub(b"2") + pub(b"3") + pub(b"4"))
    client.expect(OK, OK, error(b"E_PUB_FAILED PUB " + FULL), END)
    topic = harness.broker.topics["t"]
    assert (topic.put_total, topic.rejected_count) == (2, 1)


def test_mpub_is_accepted_as_a_whole_or_not_at_all() -> None:
    harness = bounded(3)
    client = harness.connect()
    client.send(mpub(b"1", b"2"), mpub(b"3", b"4"))
    client.expect(OK, error(b"E_MPUB_FAILED MPUB " + FULL), END)
    assert harness.broker.topics["t"].put_total == 2


def test_a_publisher_of_another_topic_is_not_concerned() -> None:
    harness = bounded(1)
    client = harness.connect()
    client.send(pub(b"1"), pub(b"2", topic=b"other"), pub(b"3", topic=b"other"))
    client.expect(OK, OK, OK)
