"""
The load process: one thread, blocking sockets, epoll over all connections of a plan.

It takes the broker's CPU time and its own at the first and the last moment of the run, so that both belong to
the same seconds. The run ends when the broker has acknowledged all that was sent and, with consumers, has
answered their CLS: every FIN is then done.
"""

import multiprocessing
import select
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from .consumer import Consumer
from .errors import BenchError, BrokerFailed, WrongCount
from .plan import Plan, Tally
from .publisher import Publisher
from .server import cpu_seconds
from .traffic import Traffic
from .v3_consumer import V3Consumer

ANSWER_SECONDS = 20.0
_PACE_SECONDS = 0.001


class Run:
    """
    The connections of one plan and the loop that serves them.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._traffic = Traffic(plan)
        self._consumers: list[Consumer | V3Consumer] = [
            (V3Consumer if one.protocol == "V3" else Consumer)(one, self._traffic, plan.keep_ids)
            for one in plan.consuming
            for _ in range(one.connections)
        ]
        self._publishers: list[Publisher] = []
        if plan.publishing:
            connections = range(plan.publishing.connections)
            self._publishers = [Publisher(plan.publishing, self._traffic) for _ in connections]
        self._poll = select.epoll()
        self._on_readable: dict[int, Callable[[], None]] = {}
        self._everyone: list[Consumer | V3Consumer | Publisher] = [*self._consumers, *self._publishers]
        for one in self._everyone:
            self._poll.register(one.socket, select.EPOLLIN)
            self._on_readable[one.socket.fileno()] = one.on_readable

    def tally(self) -> Tally:
        """
        Carry out the plan, in this process.

        Raises `BrokerFailed` when a connection does not say what it should, `WrongCount` when messages are
        lost, repeated or invented.
        """
        plan, traffic = self._plan, self._traffic
        broker_start, load_start = cpu_seconds(plan.broker_pid), time.process_time()
        start = time.perf_counter()
        traffic.start()
        self._serve()
        for consumer in self._consumers:
            consumer.leave()
        seconds = time.perf_counter() - start
        load_cpu = time.process_time() - load_start
        broker_cpu = cpu_seconds(plan.broker_pid) - broker_start
        self._check()
        return Tally(
            published=traffic.sent,
            received=traffic.received,
            received_by=[one.received for one in self._consumers],
            requeued_by=[one.requeued for one in self._consumers],
            seconds=seconds,
            broker_cpu=broker_cpu,
            load_cpu=load_cpu,
        )

    def close(self) -> None:
        """
        Close all connections.
        """
        self._poll.close()
        for one in self._everyone:
            one.socket.close()

    def _serve(self) -> None:
        traffic, on_readable = self._traffic, self._on_readable
        for consumer in self._consumers:
            consumer.make_ready()
        for publisher in self._publishers:
            publisher.fill()
        if self._plan.stall_seconds:
            time.sleep(self._plan.stall_seconds)
        paced = self._plan.publishing is not None and self._plan.publishing.rate < float("inf")
        wait = _PACE_SECONDS if paced else ANSWER_SECONDS
        before, next_look = -1, time.perf_counter() + ANSWER_SECONDS
        while not traffic.finished:
            for descriptor, _ in self._poll.poll(wait):
                on_readable[descriptor]()
            if traffic.is_held_back:
                for publisher in self._publishers:
                    publisher.fill()
            if time.perf_counter() >= next_look:
                if traffic.progress == before:
                    raise WrongCount(f"nothing passes any more: {traffic}")
                before, next_look = traffic.progress, time.perf_counter() + ANSWER_SECONDS

    def _check(self) -> None:
        traffic = self._traffic
        for channel, count in traffic.received.items():
            if count != traffic.expected:
                raise WrongCount(f"channel {channel} delivered {count} messages, not {traffic.expected}")
        if not self._plan.keep_ids:
            return
        for channel in traffic.received:
            ids = self._ids(channel)
            if len(set(ids)) != len(ids):
                raise WrongCount(f"channel {channel} delivered {len(ids) - len(set(ids))} messages twice")

    def _ids(self, channel: str) -> list[bytes]:
        return [message_id for one in self._consumers if one.channel == channel for message_id in one.ids()]


class LoadProcess:
    """
    A plan on its way in a process of its own.
    """

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("fork")
        self._result, far_end = context.Pipe(duplex=False)
        self._process = context.Process(target=_carry_out, args=(plan, far_end), daemon=True)
        self._process.start()
        far_end.close()

    def wait(self, seconds: float) -> bool:
        """
        Whether the result is there; waits for at most that long.
        """
        return self._result.poll(seconds)

    def result(self) -> Tally:
        """
        Wait for the end. Raises the `BenchError` that the process met.
        """
        try:
            outcome = self._result.recv()
        except EOFError:
            outcome = BrokerFailed("the load process died")
        self._process.join()
        if isinstance(outcome, Tally):
            return outcome
        raise outcome

    def kill(self) -> None:
        """
        End the process if it still runs.
        """
        self._process.kill()
        self._process.join()


def _carry_out(plan: Plan, result: Connection) -> None:
    try:
        result.send(Run(plan).tally())
    except BenchError as error:
        result.send(error)
    except OSError as error:
        result.send(BrokerFailed(f"a connection to the broker failed: {error}"))


def carry_out(plan: Plan) -> Tally:
    """
    Run ``plan`` in a process of its own and wait for it.

    Raises `BenchError` when the broker fails, or loses, repeats or invents messages.
    """
    load = LoadProcess(plan)
    try:
        return load.result()
    finally:
        load.kill()
