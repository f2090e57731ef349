"""
All errors that nsqtw raises deliberately, in one tree.

    NsqtwError
    ├── ClientError          a peer violated the protocol: becomes one error frame
    ├── LineTooLong          a command line without an end: the connection is closed without an answer
    ├── BrokenStream         input cannot be decompressed: treated as a failed read
    ├── Exiting              the topic or channel is being deleted, or the broker stops
    │   ├── Draining         ... the broker delivers what it has and takes nothing more
    │   └── Suspended        ... the broker may not serve, because another one may be doing so
    ├── ChannelFull          the channel has max_channel_consumers
    ├── ChannelNotFound      a message is for one channel only, which the topic does not have
    ├── CapReached           the maximum of topics, channels or registrations is reached
    ├── InvalidName          no topic or channel can have this name
    ├── InvalidHeaders       a message cannot have these headers: one line for the publisher
    ├── InvalidPolicy        a policy of a topic or channel is wrong: one line for the user
    ├── Overflow             a channel of the topic has as many messages as its policy allows
    │   └── LargerThanBound  the publish has more than it allows, so it would always be refused
    ├── BackendError         storage failed: text is what follows "PUB failed "
    │   ├── BackendFull      ... because there is no space left
    │   ├── HeadersRefused   ... because it does not store headers
    │   └── ReplicaError     ... of the copy in a replica store
    │       ├── NotOwner     ... another broker owns the data set
    │       ├── StoreLost    ... the store has lost what it committed
    │       ├── NotACopy     ... the data path has something that the data set does not have
    │       ├── NoDataSet    ... there is no data set of that name
    │       └── DataSetExists  ... there is one already
    ├── MetadataError        nsqd.dat exists and is invalid
    ├── SnapshotError        a snapshot of registrations is invalid
    ├── AuthError            the permissions of a secret cannot be determined
    │   └── AuthRefused      ... the secret is invalid
    ├── OptionError          an option or a config file is wrong: one line for the user
    │   ├── FlagError        ... a flag, or a word that is none: exit code 2
    │   └── UnfitValue       ... a value cannot be converted to the type of its option
    ├── ClientLibraryError   an operation of nsqtw.client failed
    │   ├── ConnectFailed    ... no connection, or no handshake
    │   ├── NotConnected     ... the connection was lost before the answer
    │   ├── Refused          ... nsqd answered with an error frame
    │   ├── InvalidResponse  ... the peer does not follow the protocol
    │   ├── LookupFailed     ... an HTTP query had no usable answer
    │   └── Stopped          ... the consumer or producer is stopped
    ├── CommandError         a command of `nsqtw` cannot go on: one line for the user
    │   ├── NotFound         ... no topic, channel or message has that name
    │   └── PermissionRefused  ... a node refuses the credentials
    ├── ClusterError         a query or change of a cluster failed
    │   ├── ServerFailed     ... one nsqd or nsqlookupd gave no usable answer
    │   │   ├── Unsupported  ... because it does not have what was asked for
    │   │   └── OutcomeUnknown  ... and may have made the change that it was sent
    │   ├── NoServerAnswered ... no nsqd, or no nsqlookupd, gave a usable answer
    │   ├── UnknownObject    ... a node or channel does not exist
    │   └── PageNotFound     ... what a page of nsqadmin is about does not exist
    ├── AccessDenied         a user of nsqadmin may not do this
    ├── ApiError             nsqadmin's API answers with another status than 200
    ├── FormError            a form of nsqadmin has a wrong field: one line for the user
    └── PluginError          a plugin cannot be loaded
        ├── UnknownPlugin    nothing installed has that name
        └── DuplicatePlugin  two installed plugins share a name

Low-level exceptions (OSError, sqlite3.Error, JSON errors) are converted to one of these where they enter; no code above
that border catches them.
"""

from __future__ import annotations

from collections.abc import Iterable


class NsqtwError(Exception):
    """The root: catch it to catch everything nsqtw raises on purpose."""


class ClientError(NsqtwError):
    """
    A peer's mistake. `code` and `description` are the error frame; `fatal` says that the connection
    ends after it (only failed FIN, REQ and TOUCH do not end it). `logged` is the
    description for the log, where the frame echoes bytes that may be a piece of a message.
    """

    def __init__(self, code: str, description: str = "", *, fatal: bool = True, logged: str = "") -> None:
        super().__init__(code, description)
        self.code = code
        self.description = description
        self.fatal = fatal
        self._logged = logged or description

    @property
    def frame_data(self) -> bytes:
        """
        The data of the error frame. Bytes a client sent are echoed as they came: they were decoded with
        `surrogateescape`, which is undone here.
        """
        return str(self).encode("utf-8", "surrogateescape")

    @property
    def log_text(self) -> str:
        """The error as the log shows it; a client's bytes need not be text."""
        shown = f"{self.code} {self._logged}" if self._logged else self.code
        return shown.encode("utf-8", "backslashreplace").decode()

    def __str__(self) -> str:
        return f"{self.code} {self.description}" if self.description else self.code


class LineTooLong(NsqtwError):
    """A peer sends a command line that does not end."""


class BrokenStream(NsqtwError):
    """A peer's compressed stream is damaged. The text says how, for the log."""


class Exiting(NsqtwError):
    """The topic, channel or broker is going away; the text is NSQ's word for it."""

    def __init__(self) -> None:
        super().__init__("exiting")


class Draining(Exiting):
    """The broker takes no messages any more, delivers those it has, and then stops. For publishers, which go on."""

    def __init__(self) -> None:
        NsqtwError.__init__(self, "draining")


class Suspended(Exiting):
    """The broker is a standby, or an owner that has lost sight of its replica store: another one may be serving."""

    def __init__(self) -> None:
        NsqtwError.__init__(self, "suspended")


class ChannelFull(NsqtwError):
    """The channel already has `max-channel-consumers` consumers."""


class ChannelNotFound(NsqtwError):
    """A message is for one channel only, and the topic has no channel of that name."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"there is no channel {channel}")


class CapReached(NsqtwError):
    """
    The broker already has `max-topics` topics or `max-channels` channels, or nsqlookupd as many registrations as it may
    have; `what` says of which. For clients.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} exceed limit of {limit}")
        self.what = what


class InvalidName(NsqtwError):
    """
    A name is invalid for a topic or channel. Sessions check names before and answer in their own words; this is for
    those that do not.
    """

    def __init__(self) -> None:
        super().__init__("name is not valid")


class InvalidHeaders(NsqtwError):
    """A message cannot have these headers. The text is one line that says why."""


class InvalidPolicy(NsqtwError):
    """A policy of a topic or channel is unknown, out of its bounds, or contradicts another. The text is one line."""


class Overflow(NsqtwError):
    """A channel's backlog has reached the bound of its policy, which refuses publishes. `channel` is its name."""

    def __init__(self, channel: str, bound: str) -> None:
        super().__init__(f"channel {channel} has reached its {bound}")
        self.channel = channel


class LargerThanBound(Overflow):
    """A publish, `size` of it, is larger than the bound of a channel, which is `limit`: it would always be refused."""

    def __init__(self, channel: str, bound: str, size: str, limit: int) -> None:
        super().__init__(channel, bound)
        self.args = (f"{size} exceed the {bound} of channel {channel}, which is {limit}",)


class BackendError(NsqtwError):
    """Storage refused. The text is shown to clients after "PUB failed " and by /ping after "NOK - "."""


class BackendFull(BackendError):
    """There is no space left where the backend writes (ENOSPC, EDQUOT)."""


class HeadersRefused(BackendError):
    """A message has headers, or is for one channel, and the backend does not store that."""

    def __init__(self) -> None:
        super().__init__("the storage backend does not store headers")


class ReplicaError(BackendError):
    """The replica store refused, did not answer in time, or has something else than it should. One line."""


class NotOwner(ReplicaError):
    """Another broker owns the data set now: this one must serve nobody. The text names the other one."""


class StoreLost(ReplicaError):
    """The replica store has lost transactions that it had committed. The text says how many."""


class NotACopy(ReplicaError):
    """A data path has something that its data set does not have. The text counts both and names the remedies."""


class NoDataSet(ReplicaError):
    """The replica store has no such data set, or an earlier one of its name was removed."""


class DataSetExists(ReplicaError):
    """The replica store has a data set of this name."""


class MetadataError(NsqtwError):
    """`nsqd.dat` is there and cannot be understood. The text names the file and says why."""


class SnapshotError(NsqtwError):
    """A snapshot of registrations is no such file, has another version, or is damaged. The text says which."""


class AuthError(NsqtwError):
    """
    The permissions of a secret cannot be determined, or the authorizer cannot be used. The text is for the log,
    contains no secret, and is not shown to clients.
    """


class AuthRefused(AuthError):
    """The secret is worth nothing."""


class OptionError(NsqtwError):
    """An option is wrong. The text is the one line the user sees."""


class FlagError(OptionError):
    """The command line cannot be read. The exit code is 2."""


class UnfitValue(OptionError):
    """A value cannot be turned into what its option needs. nsqd says so before it has a logger, and so do we."""


class ClientLibraryError(NsqtwError):
    """An operation of a consumer or producer of `nsqtw.client` failed. The text is for the user."""


class ConnectFailed(ClientLibraryError):
    """The connection to an nsqd could not be opened, or its handshake failed. `address` is host:port."""

    def __init__(self, address: str, text: str) -> None:
        super().__init__(text)
        self.address = address


class NotConnected(ClientLibraryError):
    """The connection was lost before nsqd answered: the message may or may not be stored."""

    def __init__(self, text: str = "not connected") -> None:
        super().__init__(text)


class Refused(ClientLibraryError):
    """nsqd answered with an error frame. `code` is its first word, for example E_BAD_TOPIC; the text is all of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class InvalidResponse(ClientLibraryError):
    """The peer sent data that does not follow the protocol. The connection is closed."""


class LookupFailed(ClientLibraryError):
    """An HTTP query to an nsqlookupd or nsqd failed or had no usable answer."""


class Stopped(ClientLibraryError):
    """The consumer or producer is stopped, or stopping."""

    def __init__(self, text: str = "stopped") -> None:
        super().__init__(text)


class CommandError(NsqtwError):
    """A command of `nsqtw` cannot go on. The text is the line for the user, and names the remedy if there is one."""


class NotFound(CommandError):
    """What a command is about does not exist."""


class PermissionRefused(CommandError):
    """A node refuses the credentials of a command, or they do not permit what it asks for."""


class ClusterError(NsqtwError):
    """
    A query or a change of a cluster failed. The text is for the user and contains no secret. `is_outcome_unknown` says
    that the change may have been made.
    """

    is_outcome_unknown = False


class ServerFailed(ClusterError):
    """
    One server gave no usable answer: no connection, a status other than 200, or no valid document. `code` is the
    message of its answer, such as TOPIC_NOT_FOUND, and `detail` its sentence for people; each is empty without one.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.detail = ""


class Unsupported(ServerFailed):
    """The server does not have the endpoint or the parameter: another nsqd, or an old one."""


class OutcomeUnknown(ServerFailed):
    """The server was sent a change, and its answer is missing: repeating the change may make it twice."""

    is_outcome_unknown = True


class NoServerAnswered(ClusterError):
    """None of the servers that were asked gave a usable answer. `program` is nsqd or nsqlookupd."""

    def __init__(self, program: str, errors: Iterable[Exception]) -> None:
        self.errors = tuple(errors)
        self.is_outcome_unknown = any(isinstance(error, OutcomeUnknown) for error in self.errors)
        super().__init__(f"failed to query any {program}: " + "\n".join(map(str, self.errors)))
        self.program = program


class UnknownObject(ClusterError):
    """A node, topic or channel does not exist. `kind` is node, topic or channel."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name}")
        self.kind = kind


class PageNotFound(ClusterError):
    """What a page of nsqadmin is about does not exist. `kind` is topic, channel or action."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"There is no {kind} {name}.")
        self.kind = kind


class AccessDenied(NsqtwError):
    """A user of nsqadmin may not do this. `code` is the word of the API for it, the text is for the user."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class ApiError(NsqtwError):
    """An answer of nsqadmin's API with another status than 200. `code` is its message."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class FormError(NsqtwError):
    """A form of nsqadmin cannot be read. The text says which field is wrong, and what it may be."""


class PluginError(NsqtwError):
    """A plugin cannot be used."""


class UnknownPlugin(PluginError):
    """Nothing installed has this name; the text lists what is installed."""

    def __init__(self, kind: str, name: str, names: Iterable[str]) -> None:
        listed = ", ".join(sorted(names)) or "none"
        super().__init__(
            f"unknown {kind} {name!r}; installed: {listed}. A plugin that failed to load is named in the log above."
        )


class DuplicatePlugin(PluginError):
    """Two installed plugins have the same name, and picking one would be a guess."""

    def __init__(self, kind: str, name: str, modules: Iterable[str]) -> None:
        super().__init__(f"{kind} {name!r} is provided more than once: {', '.join(sorted(modules))}")
