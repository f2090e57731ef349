"""What a connection calls its session, whatever class that is of."""

from __future__ import annotations

from typing import Any

import pytest
from zope.interface import implementer
from zope.interface.interface import Method

from nsqtw.interfaces import IProtocol
from nsqtw.protocols.session import MAX_BYTES, Session, SessionAdapter, session_of
from tests.protocols.dialogue import V2Harness


@implementer(IProtocol)
class Recorded:
    """Notes what it is told, and says what it was made to say."""

    closing = True
    wants_data = False

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def receive_data(self, *given: Any) -> None:
        self.told.append(("receive_data", *given))

    def receive_end(self, *given: Any) -> None:
        self.told.append(("receive_end", *given))

    def data_to_send(self) -> list[bytes]:
        self.told.append(("data_to_send",))
        return [b"said"]

    def pause_delivery(self) -> None:
        self.told.append(("pause_delivery",))

    def resume_delivery(self, *given: Any) -> None:
        self.told.append(("resume_delivery", *given))

    def connection_lost(self, *given: Any) -> None:
        self.told.append(("connection_lost", *given))


def test_a_session_of_v2_is_taken_as_it_is() -> None:
    session = V2Harness().connect().session
    assert session_of(session) is session


class Silent(Session):
    """A session of a third party that the connection calls directly."""

    closing = False
    wants_data = 1

    def data_to_send(self) -> list[Any]:
        return [b"said"]


def test_so_is_one_of_a_class_of_others_that_inherits_from_session() -> None:
    session: Session = Silent()
    assert session_of(session) is session
    assert (session.closing, session.wants_data, session.data_to_send()) == (False, 1, [b"said"])


def test_all_is_passed_on_to_one_of_another_class() -> None:
    recorded = Recorded()
    session = session_of(recorded)
    session.receive_data(b"x", 1.0)
    assert session.data_to_send() == [b"said"]
    session.pause_delivery()
    session.resume_delivery(2.0)
    session.receive_end(3.0)
    session.connection_lost(4.0)
    assert recorded.told == [
        ("receive_data", b"x", 1.0),
        ("data_to_send",),
        ("pause_delivery",),
        ("resume_delivery", 2.0),
        ("receive_end", 3.0),
        ("connection_lost", 4.0),
    ]
    assert (session.closing, session.wants_data) == (True, 0)


@pytest.mark.parametrize(
    ("said", "meant"),
    [(True, 1), (False, 0), (None, 0), ([b"x"], 1), (0.5, 1), (-1, 1), (1, 1), (7, 7), (1 << 40, MAX_BYTES)],
)
def test_what_another_class_wants_is_a_number_that_a_socket_can_be_told(said: object, meant: int) -> None:
    recorded = Recorded()
    recorded.wants_data = said  # type: ignore[assignment]
    assert session_of(recorded).wants_data == meant


def test_nothing_that_the_interface_names_is_left_out() -> None:
    for name, what in IProtocol.namesAndDescriptions():
        assert name in vars(SessionAdapter), f"{name} of {'a method' if isinstance(what, Method) else 'an attribute'}"
