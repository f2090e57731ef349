"""Changes of topics and channels that are answered when a checkpoint has saved them."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from nsqtw.core.broker import Broker
from nsqtw.errors import BackendError, CapReached, Exiting
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import EXITING, INTERNAL_ERROR, Answer, cap_reached, exiting
from nsqtw.runtime.pump import Pump

_log = Logger()


def perform_change(
    broker: Broker, pump: Pump, request: HttpRequest, change: Callable[[], bool], done: Answer
) -> Answer | None:
    """
    Call `change`, which returns whether the changed topic or channel is ephemeral, and answer `done`: at once for an
    ephemeral one, which is never saved, else when a checkpoint has saved the change. `change` may raise Refused.
    """
    if broker.stopping:
        return EXITING
    try:
        is_ephemeral = change()
    except Exiting as error:
        return exiting(error)
    except CapReached as error:
        return cap_reached(error)
    except BackendError as error:
        return _failed(request, error)
    finally:
        pump.wake()
    if is_ephemeral:
        return done
    broker.checkpointer.ask(lambda error: request.answer_later(done if error is None else _failed(request, error)))
    return None


def _failed(request: HttpRequest, error: Exception) -> Answer:
    """Log why the change was not saved; the answer is one word."""
    _log.error("{target}: {error}", target=request.target.decode("latin-1"), error=str(error))
    return INTERNAL_ERROR
