"""
Options of the broker, second part: how messages are kept, and the limits of messages, commands and clients.

`nsqtw.options.broker` has all options.
"""

from __future__ import annotations

import attrs

from nsqtw.options.broker_address import AddressOptions
from nsqtw.options.fields import (
    ABOVE_ZERO,
    NOT_NEGATIVE,
    OURS_ABOVE_ZERO,
    OURS_NOT_NEGATIVE,
    Limit,
    live,
    option,
)
from nsqtw.options.types import (
    DURATION,
    INTEGER,
    SIZE,
    TEXT,
    choice,
)

STOP, DRAIN = "stop", "drain"
"""The values of --sigterm."""


@attrs.define(kw_only=True)
class LimitOptions(AddressOptions):
    """Storage and limits of a broker."""

    # Where messages are kept
    data_path: str = option(TEXT, "", "directory for all stored data; empty for the current one")
    mem_queue_size: int = option(
        INTEGER,
        10_000,
        "messages of a topic or channel counted as in memory, and kept of an ephemeral one",
        limit=NOT_NEGATIVE,
    )
    max_bytes_per_file: int = option(
        SIZE, 104_857_600, "size at which a log file is closed and the next begun", limit=OURS_ABOVE_ZERO
    )
    sync_every: int = option(
        INTEGER, 2_500, "accepted, without effect: files are synced every --sync-timeout", limit=OURS_NOT_NEGATIVE
    )
    sync_timeout: float = option(
        DURATION, 2.0, "longest time between syncs of stored files", limit=ABOVE_ZERO, reload=live
    )
    queue_scan_selection_count: int = option(
        INTEGER, 20, "accepted, without effect: every timeout is noticed in time", limit=NOT_NEGATIVE
    )
    queue_scan_worker_pool_max: int = option(
        INTEGER, 4, "accepted, without effect: every timeout is noticed in time", limit=OURS_NOT_NEGATIVE
    )

    # Messages and commands
    msg_timeout: float = option(
        DURATION,
        60.0,
        "time a consumer has for a message unless it asks for another",
        limit=OURS_ABOVE_ZERO,
        reload=live,
    )
    max_msg_timeout: float = option(
        DURATION,
        900.0,
        "longest msg_timeout a consumer may ask for, and TOUCH may reach",
        limit=OURS_ABOVE_ZERO,
        reload=live,
    )
    max_msg_size: int = option(SIZE, 1_048_576, "bytes of the largest message", limit=OURS_ABOVE_ZERO)
    max_body_size: int = option(
        SIZE,
        5_242_880,
        "bytes of the largest command body (MPUB, IDENTIFY, AUTH)",
        limit=Limit(
            "greater than 0 and at least --max-msg-size",
            lambda value: value > 0,
            not_below="max_msg_size",
            is_ours=True,
        ),
    )
    max_req_timeout: float = option(
        DURATION,
        3_600.0,
        "longest delay of REQ, and of DPUB unless that has its own",
        limit=OURS_NOT_NEGATIVE,
        reload=live,
    )

    # What a client may ask for
    max_heartbeat_interval: float = option(
        DURATION,
        60.0,
        "longest heartbeat interval a client may ask for",
        limit=OURS_NOT_NEGATIVE,
        reload=live,
    )
    max_rdy_count: int = option(INTEGER, 2_500, "largest RDY count of a client", limit=OURS_NOT_NEGATIVE, reload=live)
    max_output_buffer_size: int = option(
        SIZE,
        65_536,
        "largest output buffer, in bytes, a client may ask for",
        limit=OURS_NOT_NEGATIVE,
        reload=live,
    )
    max_output_buffer_timeout: float = option(
        DURATION,
        30.0,
        "longest time between flushes of the output buffer a client may ask for",
        limit=OURS_NOT_NEGATIVE,
        reload=live,
    )
    min_output_buffer_timeout: float = option(
        DURATION,
        0.025,
        "shortest time between flushes of the output buffer a client may ask for",
        limit=OURS_NOT_NEGATIVE,
        reload=live,
    )
    output_buffer_timeout: float = option(
        DURATION,
        0.25,
        "time between flushes of the output buffer unless a client asks for another",
        limit=ABOVE_ZERO,
        reload=live,
    )
    max_channel_consumers: int = option(
        INTEGER,
        0,
        "consumers of one channel; 0 for any number",
        limit=OURS_NOT_NEGATIVE,
        reload=live,
    )

    # What all clients together may take, and how long one may (ours)
    max_topics: int = option(
        INTEGER,
        0,
        "number of topics up to which clients may create topics; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_channels: int = option(
        INTEGER,
        0,
        "number of channels of all topics up to which clients may create channels; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_connections: int = option(
        INTEGER,
        0,
        "connections over TCP, HTTP and HTTPS together; 0 for as many as open files allow",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_connections_per_address: int = option(
        INTEGER,
        0,
        "connections, of any kind, of one IP address; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_unfinished_size: int = option(
        SIZE,
        268_435_456,
        "bytes of incomplete commands and requests that are kept, over all connections; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    max_idle_commands: int = option(
        INTEGER,
        10_000,
        "commands without effect (NOP, RDY, failed FIN) in a row after which a client is slowed, and after twice as "
        "many disconnected; 0 for any number",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    magic_timeout: float = option(
        DURATION,
        10.0,
        "time a TCP client has to say which protocol it speaks; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    http_header_timeout: float = option(
        DURATION,
        10.0,
        "time for the head of an HTTP request; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    http_idle_timeout: float = option(
        DURATION,
        600.0,
        "time between two HTTP requests on a connection; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    body_timeout: float = option(
        DURATION,
        30.0,
        "time in which a body must arrive, unless it arrives at --min-body-rate; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    min_body_rate: int = option(
        SIZE,
        256,
        "rate of a body, in bytes a second, at which the broker waits longer for it",
        limit=ABOVE_ZERO,
        reload=live,
    )
    write_timeout: float = option(
        DURATION,
        120.0,
        "time in which a client must read some of its waiting output; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    stop_timeout: float = option(
        DURATION,
        4.0,
        "time that a stop waits for the disk; after that the next start recovers as after a crash; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
    sigterm: str = option(
        choice(STOP, DRAIN),
        STOP,
        "effect of SIGTERM: stop; or drain, that is refuse publishes, leave the nsqlookupds, deliver all messages and "
        "then stop; a second SIGTERM stops at once",
        reload=live,
    )
    drain_timeout: float = option(
        DURATION,
        30.0,
        "time that a drain may take; messages that are left then stay in the data path; 0 for any",
        limit=NOT_NEGATIVE,
        reload=live,
    )
