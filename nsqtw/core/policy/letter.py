"""
Dead letters as messages: the headers that a message gets on its way to the dead-letter topic and back.

    letter          the message's own headers      nsq-dead-reason     requeued | timed out | disconnected |
                                                                        too many attempts | expired
                                                    nsq-dead-detail     what the NACK after the last delivery said,
                                                                        if that was a NACK with a reason (V3)
                                                    nsq-dead-topic      where it failed
                                                    nsq-dead-channel
                                                    nsq-dead-attempts   deliveries
                                                    nsq-dead-timestamp  time of its first publish, in ns
                                                    nsq-dead-id         its id
    redriven        the message's own headers      nsq-redrives        how often it was put back
                                                    nsq-redrive-topic   the dead-letter topic
                                                    nsq-redrive-id      id of the letter
                                                    nsq-first-timestamp time of its first publish, in ns, and
                                                    nsq-first-id        the id that it had then

`ttl` and `id` would take effect again in the dead-letter topic: a letter has them as nsq-dead-header-ttl and
nsq-dead-header-id. They are restored when it is put back.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nsqtw.core.segment import BODY_AT, ID_AT, Segment, sequence_of, timestamp_ns_of
from nsqtw.message_headers import (
    DEAD_ATTEMPTS,
    DEAD_CHANNEL,
    DEAD_DETAIL,
    DEAD_HEADER_PREFIX,
    DEAD_ID,
    DEAD_PREFIX,
    DEAD_REASON,
    DEAD_TIMESTAMP,
    DEAD_TOPIC,
    FIRST_TIMESTAMP,
    ID,
    TTL,
    decode_headers,
    encode_headers,
)

REQUEUED: Final = "requeued"
TIMED_OUT: Final = "timed out"
DISCONNECTED: Final = "disconnected"
TOO_MANY_ATTEMPTS: Final = "too many attempts"
"""The reason when it is not known how the last delivery failed: under another policy, or by an end of the process."""
EXPIRED: Final = "expired"
REASONS: Final = (REQUEUED, TIMED_OUT, DISCONNECTED, TOO_MANY_ATTEMPTS, EXPIRED)

REDRIVES: Final = "nsq-redrives"
REDRIVE_TOPIC: Final = "nsq-redrive-topic"
REDRIVE_ID: Final = "nsq-redrive-id"
FIRST_ID: Final = "nsq-first-id"

MAX_DETAIL_BYTES: Final = 1000

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_ACTIVE: Final = (ID, TTL)
"""Headers that have an effect on a publish."""
_IS_LETTER: Final = DEAD_ID.encode()
_WAS_LETTER: Final = REDRIVE_ID.encode()


class Letters(NamedTuple):
    """Letters for a topic of this name. `channel` is the channel that they come from."""

    topic: str
    channel: str
    bodies: list[bytes]
    headers: list[bytes]


def is_letter(headers: bytes) -> bool:
    """Return whether a message with these encoded headers is a dead letter."""
    return _IS_LETTER in headers and DEAD_ID in decode_headers(headers)


def letter_headers(
    segment: Segment, index: int, topic: str, channel: str, attempts: int, reason: str, detail: str = ""
) -> bytes:
    """
    Return the encoded headers of the letter for a message that failed in a channel. `detail` is any text, of which the
    first MAX_DETAIL_BYTES are kept, and spaces in place of control characters.
    """
    frame = segment.slice(index, index + 1)
    headers = decode_headers(segment.headers_of(index))
    for name in _ACTIVE:
        if name in headers:
            headers[DEAD_HEADER_PREFIX + name] = headers.pop(name)
    headers[DEAD_REASON] = reason
    if detail:
        headers[DEAD_DETAIL] = _cleaned(detail)
    headers[DEAD_TOPIC] = topic
    headers[DEAD_CHANNEL] = channel
    headers[DEAD_ATTEMPTS] = str(attempts)
    headers[DEAD_TIMESTAMP] = headers.get(FIRST_TIMESTAMP) or str(timestamp_ns_of(frame))
    headers[DEAD_ID] = frame[ID_AT:BODY_AT].decode()
    return encode_headers(headers, may_be_reserved=True)


def redriven_headers(encoded: bytes, letter_topic: str, letter_id: bytes) -> bytes:
    """Return the encoded headers of a message that is put back; `encoded` are those of its letter."""
    letter = decode_headers(encoded)
    headers = {name: value for name, value in letter.items() if not name.startswith(DEAD_PREFIX)}
    for name in _ACTIVE:
        if DEAD_HEADER_PREFIX + name in letter:
            headers[name] = letter[DEAD_HEADER_PREFIX + name]
    headers[REDRIVES] = str(int(letter.get(REDRIVES, "0")) + 1)
    headers.setdefault(FIRST_TIMESTAMP, letter.get(DEAD_TIMESTAMP, ""))
    headers.setdefault(FIRST_ID, letter[DEAD_ID])
    headers[REDRIVE_TOPIC] = letter_topic
    headers[REDRIVE_ID] = letter_id.decode()
    return encode_headers(headers, may_be_reserved=True)


def is_letter_of(encoded: bytes, topic: str, channel: str) -> bool:
    """Return whether a message is a dead letter of that channel."""
    if not is_letter(encoded):
        return False
    headers = decode_headers(encoded)
    return (headers.get(DEAD_TOPIC), headers.get(DEAD_CHANNEL)) == (topic, channel)


def origin(encoded: bytes, only_channel: str) -> tuple[str, str, int] | None:
    """
    Return the message that a stored one replaces: its topic, the channel in which it is finished, its sequence.
    `only_channel` is the only one that gets the stored message. None for any other message.
    """
    if is_letter(encoded):
        headers = decode_headers(encoded)
        return headers.get(DEAD_TOPIC, ""), headers.get(DEAD_CHANNEL, ""), sequence_of(headers[DEAD_ID].encode())
    if only_channel and _WAS_LETTER in encoded:
        headers = decode_headers(encoded)
        if REDRIVE_ID in headers:
            return headers.get(REDRIVE_TOPIC, ""), only_channel, sequence_of(headers[REDRIVE_ID].encode())
    return None


def _cleaned(detail: str) -> str:
    """Return a text of any client as the value of a header."""
    text = _CONTROL.sub(" ", detail).encode("utf-8", "replace")
    return text[:MAX_DETAIL_BYTES].decode("utf-8", "ignore")
