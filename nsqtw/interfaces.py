"""
Interfaces of the replaceable parts: protocols, storage, and authorization.

Each kind of part has a *factory*, found as a Twisted plugin (`twisted/plugins/*.py` of any installed
distribution), that carries a name, one line of help and makes the part. The factories' modules are
imported by every start of twistd, so they import nothing heavy: `nsqtw.plugins` has descriptors that
name the real code by a dotted path.

Time is always an argument: `now` is seconds of a monotonic clock, as a float.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from nsqtw.backends.check import BackendCheck
    from nsqtw.core.segment import Segment
    from nsqtw.errors import BackendError, ClientError
    from nsqtw.options.broker import Options
    from nsqtw.protocols.guarded.messages import Batch
    from nsqtw.replication.store import IReplicaStore
    from nsqtw.rights import Answer, Credentials
    from nsqtw.upgrades import Upgrade

Waiter = Callable[["Exception | None"], None]
"""Called once: with None when what it waits for is as safe as asked, or with the error that prevented it."""

Assigned = Callable[[list[int]], None]
"""
Called at most once, before the `Waiter` of the same publish: the ids of the published messages as numbers, in their
order. Of a message that repeats another one by its publisher's id, the id of that one. The ids count only if the waiter
is told None.
"""

Report = Callable[[str, str, int, int, str], None]
"""
`report(topic, where, first, last, why)`: stored messages of a topic, the sequences "first" to "last", cannot
be read. "where" is a place an operator can look at (file and offset), "why" one short sentence. An empty range ("last"
below "first"): nothing that was stored is lost, or it is not known what; "why" then says what was done. An empty
"topic": it cannot be told, or all are concerned.
"""


Answered = Callable[["ClientError | None"], None]
"""Called once: with None when a command was carried out, or with the error to tell the client."""

BytesLike = bytes | bytearray | memoryview
"""What a protocol may give in the place of bytes."""

Range = tuple[int, int]
"""Messages with consecutive ids: the first id as a number, and how many there are."""

MAX_CLIENT_TEXT = 255
"""Characters of a text that a client says about itself: /stats shows all of them for as long as it is connected."""


class Failed(NamedTuple):
    """The messages for which a command failed; the others of the command were done."""

    error: ClientError
    ranges: Sequence[Range]


class CopiedFile(NamedTuple):
    """A file of a backup."""

    name: str
    """NAME or DIRECTORY/NAME, below the data path."""
    kind: Literal["database", "changing", "finished"]
    """
    database: of SQLite, copied in one transaction. changing: copied up to its size at the time of the copy, and cut by
    `BackendCheck.cut_torn_ends`. finished: never changes again, and may be linked.
    """


class OperatorLog(Protocol):
    """
    Logs one line for the operator: `log("info", "TOPIC({topic}): created", topic=name)`. From any thread.

    `level` is debug, info, warn, error, or critical, which is called while an unexpected exception is handled, whose
    traceback then belongs to the line. `text` names the fields in braces, as in twisted.logger; without fields it is
    used as it is. Fields are named as in docs/how-to/logs.md. Neither they nor the text ever contain a message body or
    a secret.
    """

    def __call__(self, level: str, text: str, /, **fields: object) -> None: ...


class IProtocolFactory(Interface):
    """
    Makes the protocol for connections that start with `magic`. A plugin. The factory that a descriptor names has the
    attribute broker_api, too: the version of IBroker that its sessions are written for, 1 or 2. What version 2 added
    is marked; sessions for version 1 are served as before.
    """

    name = Attribute("what the protocol is called in logs: 'V2'")
    summary = Attribute("one line for --help-protocol")
    magic = Attribute("the first four bytes a client sends, as bytes")

    def session(broker: IBroker, remote_address: str, changed: Callable[[], None], now: float) -> IProtocol:
        """
        A session for a new connection, whose magic is already taken off. `broker` belongs to this connection.
        `changed` may be called from any method of the session, and by the core in between: it asks that
        `IProtocol.data_to_send` is called at the end of this turn. After `IProtocol.receive_data` it is called unasked.
        """


class IProtocol(Interface):
    """
    One connection's side of a protocol: bytes in, bytes out, no socket.

    The edge calls every method from the reactor thread. None of them may block or raise: what a peer
    does wrong becomes bytes to send and `closing`.
    """

    closing = Attribute("True: send what there is to send, then close the connection")
    wants_data = Attribute(
        "How many bytes are worth a read, where that can be told the kernel: 0 or False, none, do not read until this "
        "changes; 1 or True, any; fewer than this many, or than 64 KB, are read after a few milliseconds without a read"
    )

    def receive_data(chunk: bytes, now: float) -> None:
        """
        Take what was read, in pieces of any size: test with one byte at a time. At the end of the turn `data_to_send`
        is called.
        """

    def receive_end(now: float) -> None:
        """The peer sends no more; it may still read."""

    def data_to_send() -> list[bytes | Upgrade]:
        """
        Return what is to be written now, in order. The list is the caller's: the next call starts a new one. The last
        item may be an upgrade of the connection (nsqtw.upgrades); then the caller asks for the rest at once. Anything
        like bytes may be in place of `bytes`; it is copied.
        """

    def pause_delivery() -> None:
        """The peer does not read fast enough: produce nothing but due replies until resume_delivery."""

    def resume_delivery(now: float) -> None:
        """The peer has read what was waiting."""

    def connection_lost(now: float) -> None:
        """The connection is closed, by either side. The last call."""


class ICountedProtocol(IProtocol):
    """
    A protocol that says what it keeps, which lets the edge bound it over all connections. Of others it is not known.
    """

    unfinished_bytes = Attribute("how many bytes are kept of commands that have come in part")


class ISteppedProtocol(IProtocol):
    """
    A protocol that limits its work by itself: it is given all that was read, not 16 KB of it at once, and keeps what it
    has not done yet. Version 2.
    """

    is_behind = Attribute(
        "True: some commands are left for the next step. `receive_data` is called again, with no bytes, after other "
        "connections have had their turn"
    )


class IBroker(Interface):
    """
    The broker as one connection of a protocol may use it.

    Names, sizes, limits and permissions are checked inside, whatever the protocol checks itself. A refused command
    changes nothing and leaves the log line that V2 leaves. `answered` is called once, perhaps before the method
    returns, perhaps much later: with None or the ClientError to send to the client. Commands are executed in the order
    of their calls.
    """

    identity = Attribute("whom the secret of `authorize` belongs to; empty before, and without an authorizer")
    needs_authorization = Attribute("True: the broker has an authorizer, and this connection has shown no good secret")
    is_waiting = Attribute(
        "True: commands wait for an answer of the authorizer, or for the next turn, or megabytes of publishes are not "
        "stored yet. Nothing is read meanwhile"
    )
    is_draining = Attribute("True: publishes are refused. Version 2, as all up to exceeded")
    version = Attribute("the version of nsqd that the broker is compatible with")
    max_subscriptions = Attribute("subscriptions of this connection")
    max_range = Attribute("messages that one call about ranges may name")
    max_delay = Attribute("seconds of the longest delay of a publish")
    max_requeue_delay = Attribute("seconds of the longest delay of a requeue; longer ones are shortened")
    msg_timeout = Attribute("seconds of the default message timeout")
    max_msg_timeout = Attribute("seconds of the longest one")
    max_heartbeat_interval = Attribute("seconds of the longest interval of heartbeats that a client may ask for")
    body_timeout = Attribute(
        "seconds in which a command must come in full, or go on coming at min_body_rate; 0 for any"
    )
    min_body_rate = Attribute("bytes a second")
    exceeded = Attribute("the name of the option whose limit `had_no_effect` found exceeded; empty otherwise")
    max_msg_size = Attribute("bytes of the largest message")
    max_body_size = Attribute("bytes of the largest publish of several messages, with 4 for each and 4 for the count")
    max_ready_count = Attribute("the largest count that `IConsumer.ready` takes")

    def authorize(secret: bytes, answered: Answered, now: float) -> None:
        """
        Show a secret. A good one sets `identity` for the rest of the connection; another one cannot be shown then.
        """

    def introduce(client_id: str, hostname: str, user_agent: str) -> None:
        """Tell who the client is, for statistics, which show 255 characters. Empty: not known. Version 2."""

    def refused(error: ClientError) -> None:
        """Count a mistake that the protocol found, and write the log line. The broker's own are logged. Version 2."""

    def had_no_effect(now: float) -> None:
        """
        Count a command that changed no message: too many in a row make the connection wait, and then are refused
        (ClientError), as `--max-idle-commands` says. Version 2.
        """

    def schedule(due: float, call: Callable[[float], None]) -> Callable[[], None]:
        """
        Call `call(now)` once, at the time `due` of the monotonic clock, and then `IProtocol.data_to_send`. Returns a
        function that cancels the call. Nothing is called after the end of the connection. Version 2.
        """

    def on_drain(told: Callable[[], None]) -> None:
        """Have `told` called when the broker begins to drain: it will stop. Version 2."""

    def publish(
        topic: str,
        bodies: Sequence[bytes],
        delay: float,
        answered: Answered,
        now: float,
        headers: Sequence[Mapping[str, str] | bytes] | None = None,
        delays: Sequence[float] | None = None,
        each: bool = False,
        assigned: Assigned | None = None,
    ) -> None:
        """
        Store messages, all or none, to be delivered after `delay` seconds. The topic is made when there is none. After
        None they are as safe as the topic's durability class promises. A body that is like bytes is copied; TypeError
        for any other.

        Version 2: `headers` are those of each message, as names and values or encoded as in docs/protocol-v3.md;
        `delays`, in the place of `delay`, is the delay of each message, with 4,096 runs of equal ones at most. `each`:
        these are publishes of one message each that came together; the limit of several does not apply, and what is
        answered is true of each of them. For the bound of a channel they are one publish.
        `assigned` is told the ids of the messages before `answered` is told None. `answered` may be a `PublishAnswer`
        of `nsqtw.protocols.session` in place of a function.
        """

    def publish_packed(
        topic: str,
        packed: bytes,
        start: int,
        stop: int,
        answered: Answered,
        now: float,
        assigned: Assigned | None = None,
    ) -> None:
        """
        `publish` without delay and headers for the messages that are `packed[start:stop]` as in a PUBLISH of V3 or an
        MPUB of V2: `size u32 | body`, one after the other. ValueError when these bytes are anything else. Messages of
        one size are taken apart without a look at each of them. Version 2.
        """

    def subscribe(
        topic: str,
        channel: str,
        deliver: Callable[[list[Any]], None],
        ended: Callable[[], None],
        answered: Answered,
        now: float,
        msg_timeout: float | None = None,
    ) -> IConsumer:
        """
        Become a consumer of a channel, which is made when there is none; once for a connection. Until `answered` has
        None, `IConsumer.ready` raises. `deliver` is given messages (`nsqtw.protocols.guarded.Message`: id,
        timestamp_ns, attempts, body); `ended` is called when the channel is deleted or the right to it was withdrawn:
        close the connection. `msg_timeout` is in seconds.
        """

    def consume(
        topic: str, channel: str, receiver: IReceiver, now: float, msg_timeout: float | None = None
    ) -> IConsumer:
        """
        Become a consumer of a channel, as often as `max_subscriptions` allows, apart from `subscribe`. `receiver` is
        told everything about the subscription. Version 2.
        """

    def leave() -> None:
        """The connection is gone. The edge calls it, too."""


class IReceiver(Interface):
    """The receiver of the events of one subscription: a part of a protocol. Version 2."""

    def subscribed(error: ClientError | None) -> None:
        """The outcome of `IBroker.consume`, perhaps before it returns. After an error nothing more is called."""

    def deliver(batch: Batch) -> None:
        """
        Messages for the client (`nsqtw.protocols.guarded.Batch`): `Batch.frames` are bytes that can be sent as they
        are, in the form that docs/protocol-v3.md draws, `Batch.encoded_headers` the headers of each message or None;
        `Batch.messages()` and `Batch.headers()` decode them.
        """

    def paused(is_paused: bool) -> None:
        """An operator paused the channel or its topic, or lets them go on."""

    def ended(error: ClientError | None) -> None:
        """The subscription is over: the channel is deleted; or with an error, the right to it was withdrawn."""


class IConsumer(Interface):
    """A connection's subscription. A method raises ClientError when it is refused, and has written the log line."""

    channel = Attribute("the IChannel; None before the subscription is allowed and after `leave`")
    in_flight = Attribute("messages that are delivered and neither finished nor requeued. Version 2")

    def ready(count: int) -> None:
        """Have up to `count` messages delivered that are not finished, 0 to `IBroker.max_ready_count`."""

    def limit_bytes(limit: int) -> None:
        """Deliver nothing while so many bytes of frames are in flight; 0, the default, for any number. Version 2."""

    def finish(message_id: bytes, now: float) -> None:
        """The message is done with."""

    def requeue(message_id: bytes, delay: float, now: float, reason: str = "") -> None:
        """
        Have it delivered again after `delay` seconds, at most `max-req-timeout`. `reason` (version 2) says why it could
        not be handled: it is logged, and becomes a header of the dead letter if there is one now.
        """

    def touch(message_id: bytes, now: float) -> None:
        """Restart its timeout, at most up to `max-msg-timeout` after its delivery."""

    def finish_ranges(ranges: Sequence[Range], now: float) -> Failed | None:
        """
        `finish` for many messages, up to `IBroker.max_range`: quick for ranges in the order of delivery. Returns
        those for which it failed, after one log line. Version 2, as the next two.
        """

    def next_ranges(limit: int) -> Sequence[Range]:
        """
        Return the ranges of the messages that a client finishes next if it does so in the order of delivery: `limit`
        of them (at least 1), or fewer if no more are known as ranges. Version 2.
        """

    def requeue_ranges(ranges: Sequence[Range], delay: float, now: float, reason: str = "") -> Failed | None:
        """`requeue` for many messages."""

    def touch_ranges(ranges: Sequence[Range], now: float) -> Failed | None:
        """`touch` for many messages."""

    def pause() -> None:
        """Deliver nothing until `resume`."""

    def resume() -> None:
        """Deliver again."""

    def leave() -> None:
        """End the subscription. Messages in flight wait for their timeout."""


class IChannel(Interface):
    """The part of a channel that its consumer may see."""

    topic = Attribute("the name of its topic")
    name = Attribute("its own name")
    is_paused = Attribute("True: an operator paused it")
    depth = Attribute("messages that wait to be delivered")


class IBackendQueueFactory(Interface):
    """
    Opens a kind of storage. A plugin, chosen by `--backend=NAME` or `--backend=NAME:ARGUMENT`. It may have an attribute
    files, the dotted name of a class that provides `IBackendFiles`.
    """

    name = Attribute("what --backend calls it: 'disk'")
    summary = Attribute("one line for --help-backend")
    argument_format = Attribute("one line that says what ARGUMENT may be, empty when it takes none")

    def open(argument: str, directory: str, options: Options, report: Report) -> IBackend:
        """
        Open the storage under the data path `directory`, which exists and is locked by this process.
        `options` has nsqd's option names as attributes (`max_bytes_per_file`, ...). Raises BackendError
        when this storage cannot be used; a damaged record is no reason, it is reported and left out.
        """


class IBackendFiles(Interface):
    """
    An optional part of a backend: its files in a data path, for `nsqtw fsck`, `nsqtw backup` and `nsqtw restore`. The
    descriptor of the plugin names a class for it (`nsqtw.plugins.BackendPlugin.files`), which is called with ARGUMENT.
    It is asked about every data path, also of other backends, and knows its own files by their names. Every method but
    `owns` may raise OSError and BackendError.
    """

    def check(directory: str, ends: Mapping[str, int], by_class: Container[str]) -> BackendCheck:
        """
        Look at everything in a data path, which is locked, and change nothing. `ends`: for each topic, one past the
        highest sequence that was ever saved as stored. `by_class`: the topics with messages whose priorities are
        looked at.
        """

    def copied_files(directory: str) -> Iterable[CopiedFile]:
        """
        Return the files of a backup, in the order in which they are copied, perhaps while a broker writes to them but
        deletes nothing. Files that are gone when they are copied are left out.
        """

    def owns(name: str) -> bool:
        """
        Return whether a file of this name, as in `CopiedFile`, is one of this backend: it makes a directory a data
        path, and may be in a backup. Of the names in `copied_files` all are.
        """


class IBackend(Interface):
    """
    The storage of all topics of a broker. It stores messages; the positions of channels are stored elsewhere.

    `commit` is called once at the end of each reactor turn with publishes, with all of them.
    """

    in_thread = Attribute(
        "False: commit runs in the reactor thread and returns in well under a millisecond. True: every commit, "
        "trim and delete runs in the one writer thread, one call at a time."
    )

    def topics() -> list[str]:
        """The names of the topics that have something stored. Called once, before the first `queue`."""

    def queue(topic: str) -> IBackendQueue:
        """
        Return the queue of a topic, created when there is none. Recovers its tail: an incomplete write of a crash is
        truncated; damage is reported. BackendError when it cannot be opened.
        """

    def commit(writes: Sequence[tuple[IBackendQueue, Sequence[Segment]]], durable: bool) -> dict[Any, BackendError]:
        """
        Store segments, ascending, for several queues at once. All or nothing for each queue: those that are
        not keys of the answer can be read from now on; of those that are, nothing can (a restart may find
        some of it). With `durable` it is on stable storage on return, and so is everything committed to these queues
        before; an empty `writes` then brings all queues there, and after a failure also finds out whether something
        could be stored again: BackendError if not. A queue that failed works again by itself when the cause is gone.
        Never called twice at once for one queue; with `durable` from the writer thread, perhaps while
        the reactor thread commits to other queues.
        """

    def close() -> None:
        """Close all queues. Nothing is called afterwards."""


class IReleasingBackend(Interface):
    """An optional interface of an IBackend: it keeps files open that it can close and open again."""

    def release_descriptors() -> bool:
        """
        Close some of the files that are kept open, because a connection or another file needs a descriptor. Return
        whether there were any. From any thread.
        """


class IHeaderBackend(Interface):
    """
    An optional interface of an IBackend: it stores `Segment.headers` and `Segment.channel` with each segment, and its
    queues read them as they were. Without it the broker refuses to publish messages with headers, and messages for one
    channel, in topics of this backend. `nsqtw.testing.contracts.HeaderContract` tests it.
    """


class ICopyingBackend(Interface):
    """An optional interface of an IBackend: its commits also reach another machine, which takes long."""

    local = Attribute("the IBackend that stores the same without a copy: for messages of class memory")


class IRemovableBackend(Interface):
    """
    An optional interface of an IBackend: its files can be removed after another backend has taken the messages over.
    Without it the queues of all topics are deleted.
    """

    def remove() -> None:
        """
        Close the backend and remove its files from the data path. When interrupted, an open and another call finish
        it. BackendError.
        """


class IBackendQueue(Interface):
    """
    The messages of one topic, as segments, by sequence. Gaps between sequences are normal.

    `read` is called in the reactor thread, also while commit, trim or delete runs in the other.
    """

    first = Attribute("the lowest sequence that may be kept; equal to `end` when there is nothing")
    end = Attribute("one past the highest sequence kept; never falls, 0 for a queue that never had any")
    size = Attribute("bytes in use")

    def read(start: int, limit: int) -> list[Segment]:
        """
        Segments in ascending order, from the one that contains the sequence `start` or else the next one
        after it, of about `limit` bytes of frames in all but at least one segment; [] when there is none. A damaged
        record is reported once and passed over. BackendError when the medium fails; the caller tries again later.
        """

    def trim(below: int, keep: Iterable[int]) -> None:
        """
        Of the sequences below `below` only those in `keep`, ascending, are still needed. May free less, never more.

        Called at most about once a second, in the storage thread; `keep` may be a lazy iterable that is not used when
        there is nothing to free. BackendError when it fails; no needed message is lost.
        """

    def delete() -> None:
        """
        The topic is gone: free everything, in the writer thread. When interrupted, the next open finishes it.
        The queue is not used afterwards; another of the same name may be opened as soon as this returns.
        """

    def close() -> None:
        """Write out what is held back, release files."""


class ICountedQueue(Interface):
    """An optional interface of an IBackendQueue: it detects missing messages, though gaps are normal."""

    def check(start: int, expected: int) -> bool | None:
        """
        Called once after the queue was opened: no channel needs messages below `start`, and from there on there should
        be at least `expected` messages. Reports what is missing. Returns True if messages are stored that were never
        counted, such as those of a refused publish: the broker then counts the messages again. BackendError when the
        medium fails.
        """


class IDirectedQueue(Interface):
    """
    An optional interface of an IBackendQueue: it finds the segments for one channel only without reading the others.
    `nsqtw.testing.contracts.DirectedContract` tests it.
    """

    def directed(start: int) -> tuple[list[tuple[int, int, str]], int]:
        """
        Look through a part of the log, for about a millisecond, from the sequence `start` on. Return the first
        sequence, one past the last, and the channel of each segment in it that has a channel; and the end of this part,
        which is `start` at the end of the log, and where the caller has to read, because of damage. Called in the
        reactor thread, as `IBackendQueue.read` is. BackendError.
        """


class IFreeingQueue(Interface):
    """
    An optional interface of an IBackendQueue: it knows when there is nothing to free, which saves computing what is
    still needed of it.
    """

    may_free: bool = Attribute(
        "Whether `trim`, whatever it is given, could free something now. Asked where it is called."
    )
    may_free_later: bool = Attribute(
        "Whether the last `trim` found something that it frees when it is called again a second later, if nothing is"
        " committed until then. The broker then calls it again, even if the topic is idle. Asked in the reactor thread."
    )


class IStoppingQueue(Interface):
    """An optional interface of an IBackendQueue: it frees more when the broker stops."""

    def begin_stop() -> bool:
        """
        The broker stops, and nothing is committed any more. Returns whether the last `IBackendQueue.trim` could free
        something that is left while the broker runs. Called in the reactor thread.
        """


class IDamagedBackend(Interface):
    """An optional interface of an IBackend: it counts damage, and keeps what it removes from the data path."""

    damage = Attribute("the counters, a `nsqtw.core.damage.DamageLedger`; /stats shows them")

    def expect(ends: dict[str, int]) -> None:
        """
        Called before the first `IBackend.queue`: for each topic one past the highest sequence that was ever saved as
        stored. What lies below is set aside rather than removed when it cannot be read.
        """


class IDamagedQueue(Interface):
    """An optional interface of an IBackendQueue of such a backend."""

    is_damaged: bool = Attribute("Whether messages were found missing or damaged when it was opened.")


class IReplicaStoreFactory(Interface):
    """
    Opens a kind of replica store, `nsqtw.replication.store.IReplicaStore`. A plugin, chosen by
    `--replicate=NAME:ARGUMENT`.
    """

    name = Attribute("what --replicate calls it: 'postgres'")
    summary = Attribute("one line that says what it is")
    argument_format = Attribute("one line that says what ARGUMENT may be")

    def open(argument: str, timeout: float, log: OperatorLog) -> IReplicaStore:
        """
        Return a store; no connection is opened. Each method of it takes at most `timeout` seconds. OptionError, with
        one line that names the remedy, when the argument or a file that it names is wrong. Called once for each thread.
        """


class IAuthorizerFactory(Interface):
    """Makes an authorizer. A plugin, chosen by `--auth=NAME` or `--auth=NAME:ARGUMENT`."""

    name = Attribute("what --auth calls it: 'static'")
    summary = Attribute("one line for --help-auth")
    argument_format = Attribute("one line that says what ARGUMENT may be, empty when it takes none")

    def open(argument: str, options: Options, log: OperatorLog) -> IAuthorizer:
        """
        Make the authorizer. `options` has nsqd's option names as attributes. AuthError, with one clear line for the
        operator, when it cannot work as it is told; the broker then does not start.
        """


class IAuthorizer(Interface):
    """
    Says what a secret is worth. Called from the reactor's thread: for each AUTH, when rights have ended, and for
    requests over HTTP whose credential is not known. None of it may block: what takes long is answered later.
    """

    def authorize(credentials: Credentials, answer: Answer) -> Any:
        """
        Return what `credentials` may do, as `nsqtw.rights.Rights` (`nsqtw.auth.grants.Grants` are some), in one of
        three ways: return it; return a Deferred or a coroutine that results in it; or return None and call `answer`
        with it, once, from any thread.

        AuthRefused, raised or given to `answer`, says that the secret is invalid, AuthError that this cannot be
        determined now. A Deferred or coroutine is cancelled when its result is not needed any more.
        """

    def reload() -> bool:
        """
        Read again what was read at the start (SIGHUP). Returns whether rights that were given may be different now:
        every connection is then looked at again. AuthError, with one line, when it cannot be read: what was goes on.
        """

    def close() -> None:
        """The broker stops. Answers may still arrive, and are ignored."""
