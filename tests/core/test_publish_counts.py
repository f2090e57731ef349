"""How much a client published, by topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.core.publish_counts import PublishCounts


def test_nothing_was_published() -> None:
    assert PublishCounts().by_topic() == {}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 5), st.booleans())))
def test_each_topic_has_the_sum_of_what_it_was_given(adds: list[tuple[str, int, bool]]) -> None:
    published, wanted = PublishCounts(), dict[str, int]()
    for topic, count, is_read in adds:
        published.add(topic, count)
        wanted[topic] = wanted.get(topic, 0) + count
        if is_read:
            assert published.by_topic() == wanted
    assert published.by_topic() == wanted
