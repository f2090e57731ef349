"""Remedies for options of Spark's Kafka connector that ``format("nsq")`` does not have under that name."""

from __future__ import annotations

from collections.abc import Iterable

_PREFIX = "kafka."

_SERVERS = ("nsqdTcpAddresses", "nsqdHttpAddresses", "lookupdHttpAddresses")

#: Options of Kafka's connector, in lower case, with the options of the same purpose here. A channel, a log and the sink
#: each have some of these.
_SAME: dict[str, tuple[str, ...]] = {
    "kafka.bootstrap.servers": _SERVERS,
    "bootstrap.servers": _SERVERS,
    "kafka.group.id": ("channel",),
    "group.id": ("channel",),
    "groupidprefix": ("channel",),
    "assign": ("subscribe", "topic"),
    "startingoffsetsbytimestamp": ("startingTimestamp",),
    "endingoffsetsbytimestamp": ("endingTimestamp",),
    "kafkaconsumer.polltimeoutms": ("requestTimeoutMs", "maxWaitMs"),
    "fetchoffset.numretries": ("retries",),
    "fetchoffset.retryintervalms": ("backoffMs",),
    "kafka.fetch.max.bytes": ("fetchBytes",),
    "kafka.max.partition.fetch.bytes": ("fetchBytes",),
    "kafka.max.poll.records": ("maxRowsPerTrigger",),
    "kafka.request.timeout.ms": ("requestTimeoutMs",),
    "kafka.retries": ("retries",),
    "kafka.retry.backoff.ms": ("backoffMs",),
    "kafka.batch.size": ("batchBytes",),
    "kafka.max.in.flight.requests.per.connection": ("maxInFlight",),
    "kafka.ssl.truststore.location": ("tls.caFile",),
    "kafka.ssl.keystore.location": ("tls.certFile",),
    "kafka.ssl.key.location": ("tls.keyFile",),
    "kafka.security.protocol": ("tls.caFile",),
    "kafka.sasl.jaas.config": ("authSecret",),
}

#: Options without a counterpart, in lower case, with the remedy.
_INSTEAD: dict[str, str] = {
    "minoffsetspertrigger": "a micro-batch has no least size; set a processing time of the trigger",
    "maxtriggerdelay": "a micro-batch has no least size; set a processing time of the trigger",
    "startingoffsetsbytimestampstrategy": "a moment without later messages is the end of the log; leave it out",
}


def remedy(key: str, names: Iterable[str]) -> str | None:
    """Return the remedy for the option `key` if it is Kafka's, for a reader or writer with the options `names`."""
    lowered = key.lower()
    same = [name for name in _SAME.get(lowered, ()) if name in set(names)]
    if "nsqdTcpAddresses" in same:  # of a channel, whose nsqdHttpAddresses are for its lag
        same = [name for name in same if name != "nsqdHttpAddresses"]
    if same:
        quoted = [f'"{name}"' for name in same]
        return f"Kafka's option; here it is {' or '.join(quoted)}"
    if lowered in ("kafka.group.id", "group.id", "groupidprefix"):
        return "readers of a log have no group, and take nothing from each other; leave it out"
    if lowered in _INSTEAD:
        return _INSTEAD[lowered]
    if lowered.startswith(_PREFIX):
        return "options of Kafka's client mean nothing to NSQ; leave it out"
    return None
