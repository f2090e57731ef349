"""
Options of consumers and producers, with the names, defaults and bounds of NSQ's Go client.

Durations are seconds. `ClientOptions.from_texts` reads the texts of `--consumer-opt` and `--producer-opt`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from nsqtw import NSQ_VERSION, __version__
from nsqtw.errors import OptionError
from nsqtw.options.texts import parse_boolean, parse_duration, show_duration

EXPONENTIAL, FULL_JITTER = "exponential", "full_jitter"
"""The values of `backoff_strategy`."""
NO_HEARTBEAT = -1.0
"""`heartbeat_interval` without heartbeats, `output_buffer_timeout` without a timeout: -1 on the wire."""
V2, V3 = "V2", "V3"
"""The values of `protocol`."""
_TLS_VERSIONS = ("", "tls1.0", "tls1.1", "tls1.2", "tls1.3")


def _duration(text: str) -> float:
    try:
        return float(text) / 1000  # a bare number is milliseconds
    except ValueError:
        return parse_duration(text)


def _strategy(text: str) -> str:
    if text not in (EXPONENTIAL, FULL_JITTER):
        raise ValueError(f"must be {EXPONENTIAL} or {FULL_JITTER}")
    return text


def _protocol(text: str) -> str:
    if text not in (V2, V3):
        raise ValueError(f"must be {V2} or {V3}")
    return text


def _tls_version(text: str) -> str:
    if text not in _TLS_VERSIONS:
        raise ValueError(f"{text} is not a tls version")
    return text


def _option(default: Any, parse: Callable[[str], Any], low: float | None = None, high: float | None = None) -> Any:
    """An option between two bounds. `parse` reads a text; ValueError."""
    return attrs.field(default=default, metadata={"parse": parse, "low": low, "high": high})


def _short_host_name() -> str:
    return socket.gethostname().partition(".")[0]


@attrs.frozen(kw_only=True)
class ClientOptions:
    """The options of a consumer or producer. Values out of bounds raise OptionError."""

    protocol: str = _option(V2, _protocol)
    """V3 is for nsqtw brokers that are started with --protocol=V2,V3."""
    headers: bool = _option(False, parse_boolean)
    """Have headers delivered over V2, too, by a broker that has them. Over V3 they always are."""
    message_ids: bool = _option(False, parse_boolean)
    """Over V3: be told the ids of published messages, `Producer.publish_with_ids`."""
    dial_timeout: float = _option(1.0, _duration)
    """Time to connect."""
    read_timeout: float = _option(60.0, _duration, 0.1, 300.0)
    """Time without any data after which a connection is lost."""
    write_timeout: float = _option(1.0, _duration, 0.1, 300.0)
    """Accepted and not used: a peer that reads nothing is noticed by its missing heartbeats."""
    local_addr: str = _option("", str)
    """The source address, as ip:port; empty for any."""
    lookupd_poll_interval: float = _option(60.0, _duration, 0.01, 300.0)
    lookupd_poll_jitter: float = _option(0.3, float, 0, 1)
    """The first poll is delayed by a random part of the interval, up to this."""
    lookupd_poll_timeout: float = _option(60.0, _duration)
    skip_lookupd_authorization: bool = _option(True, parse_boolean)
    """As in the Go client, true sends the auth_secret to nsqlookupd as a bearer token."""
    max_requeue_delay: float = _option(900.0, _duration, 0, 3600.0)
    default_requeue_delay: float = _option(90.0, _duration, 0, 3600.0)
    """The delay of a requeue is this times the attempts, up to max_requeue_delay."""
    backoff_strategy: str = _option(EXPONENTIAL, _strategy)
    max_backoff_duration: float = _option(120.0, _duration, 0, 3600.0)
    """0 disables backoff."""
    backoff_multiplier: float = _option(1.0, _duration, 0, 3600.0)
    max_attempts: int = _option(5, int, 0, 65535)
    """Deliveries after which a message is finished without its handler; 0 for any number."""
    low_rdy_idle_timeout: float = _option(10.0, _duration, 1.0, 300.0)
    low_rdy_timeout: float = _option(30.0, _duration, 1.0, 300.0)
    rdy_redistribute_interval: float = _option(5.0, _duration, 0.001, 5.0)
    client_id: str = _option(attrs.Factory(_short_host_name), str)
    hostname: str = _option(attrs.Factory(socket.gethostname), str)
    user_agent: str = _option(f"nsqtw/{__version__}", str)
    topology_region: str = _option("", str)
    topology_zone: str = _option("", str)
    heartbeat_interval: float = _option(30.0, _duration)
    """-1 for none."""
    sample_rate: int = _option(0, int, 0, 99)
    """Percentage of the messages that are delivered; 0 for all."""
    tls_v1: bool = _option(False, parse_boolean)
    tls_root_ca_file: str = _option("", str)
    tls_cert: str = _option("", str)
    tls_key: str = _option("", str)
    tls_insecure_skip_verify: bool = _option(False, parse_boolean)
    tls_min_version: str = _option("", _tls_version)
    deflate: bool = _option(False, parse_boolean)
    deflate_level: int = _option(6, int, 1, 9)
    snappy: bool = _option(False, parse_boolean)
    output_buffer_size: int = _option(16384, int)
    output_buffer_timeout: float = _option(0.25, _duration)
    """-1 disables the buffer timeout."""
    max_in_flight: int = _option(1, int, 0)
    """Messages that may be in flight, over all connections of the consumer."""
    msg_timeout: float = _option(0.0, _duration, 0)
    """0 for the default of the nsqd."""
    max_msg_size: int = _option(0, int, 0)
    """The largest frame that is accepted; 0 for any."""
    auth_secret: str = attrs.field(default="", repr=False, metadata={"parse": str, "low": None, "high": None})

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(ClientOptions):
            _check(field.name, getattr(self, field.name), field.metadata["low"], field.metadata["high"])
        if self.snappy and self.deflate:
            raise OptionError("snappy and deflate cannot be used together")
        if self.protocol not in (V2, V3):
            raise OptionError(f"invalid protocol {self.protocol!r}: it must be {V2} or {V3}")
        if self.protocol == V3 and (self.snappy or self.deflate or self.sample_rate):
            raise OptionError("protocol V3 has neither compression nor sample_rate")
        if self.message_ids and self.protocol != V3:
            raise OptionError("message_ids are told over protocol V3: give the option protocol='V3', too")
        if self.heartbeat_interval > self.read_timeout:
            raise OptionError(
                f"HeartbeatInterval {show_duration(self.heartbeat_interval)} must be less than "
                f"ReadTimeout {show_duration(self.read_timeout)}"
            )

    @classmethod
    def from_texts(cls, texts: Iterable[str], **fixed: Any) -> ClientOptions:
        """
        Read `name,value` texts; a name alone means true, and `-` in a name is `_`. `fixed` options override them.
        OptionError.
        """
        values: dict[str, Any] = {}
        fields = attrs.fields_dict(cls)
        for text in texts:
            name, comma, value = text.partition(",")
            key = name.replace("-", "_")
            if key not in fields:
                raise OptionError(f"invalid option {name}")
            value = value if comma else "true"
            try:
                values[key] = fields[key].metadata["parse"](value)
            except ValueError as error:
                raise OptionError(f"failed to coerce option {name} ({value}) - {error}") from error
        return cls(**{**values, **fixed})


def _check(name: str, value: Any, low: float | None, high: float | None) -> None:
    if low is not None and value < low:
        raise OptionError(f"invalid {name} ! {value} < {low}")
    if high is not None and value > high:
        raise OptionError(f"invalid {name} ! {value} > {high}")


TOOL_AGENT = f"{NSQ_VERSION} go-nsq/1.1.0"
"""The second half of the user agent of NSQ's tools."""
