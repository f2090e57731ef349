"""The order of what is written to a client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.protocols.replies import MAX_FILLED, Replies


class Told:
    """How often somebody was told."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def replies_of(changed: Told, ended: Told | None = None) -> Replies:
    return Replies(changed, ended or Told())


@given(st.permutations(range(8)))
def test_replies_are_written_in_the_order_of_their_places_however_they_are_filled(order: list[int]) -> None:
    replies = replies_of(Told())
    places = [replies.reserve() for _ in order]
    filled, written = set[int](), list[bytes]()
    for index in order:
        places[index].set(b"%d" % index)
        filled.add(index)
        written += [out for out in replies.take() if isinstance(out, bytes)]
        known = next((at for at in range(len(order)) if at not in filled), len(order))
        assert written == [b"%d" % at for at in range(known)]
        assert replies.are_pending is (known < len(order))


def test_of_many_places_those_behind_the_filled_ones_stay() -> None:
    replies = replies_of(Told())
    places = [replies.reserve() for _ in range(3 * MAX_FILLED)]
    for slot in places[:-1]:
        slot.set(b"x")
    assert len(replies.take()) == len(places) - 1
    assert replies.are_pending
    places[-1].set(b"last")
    assert replies.take() == [b"last"]
    assert not replies.are_pending


def test_what_is_no_reply_passes_those_that_are_owed() -> None:
    replies = replies_of(Told())
    slot = replies.reserve()
    replies.push(b"message")
    assert replies.take() == [b"message"]
    slot.set(b"reply")
    assert replies.take() == [b"reply"]


def test_after_the_last_one_nothing_is_owed() -> None:
    ended = Told()
    replies = replies_of(Told(), ended)
    first, last, _behind = (replies.reserve() for _ in range(3))
    last.set(b"b", is_last=True)
    assert not ended.count
    first.set(b"a")
    assert (replies.take(), ended.count, replies.are_pending) == ([b"a", b"b"], 1, False)


def test_nobody_is_told_of_what_he_takes_anyhow() -> None:
    changed = Told()
    replies = replies_of(changed)
    replies.are_awaited = True
    replies.add(b"a")
    assert (replies.take(), changed.count) == ([b"a"], 0)
    replies.add(b"b")
    assert (replies.take(), changed.count) == ([b"b"], 1)


def test_of_what_passes_them_he_is_told_for_it_may_be_written_before_others_replies() -> None:
    changed = Told()
    replies = replies_of(changed)
    replies.are_awaited = True
    replies.push(b"message")
    assert changed.count == 1


def test_what_a_client_that_does_not_read_is_owed_is_counted() -> None:
    replies = replies_of(Told())
    replies.pause()
    replies.reserve().set(b"OK" * 5, count=5)
    replies.add(b"OK")
    assert replies.unread_count == 6
    replies.resume()
    assert replies.unread_count == 0
