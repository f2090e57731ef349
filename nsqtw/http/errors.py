"""
The words of HTTP errors, each with a sentence for people: one declaration for each.

An error is `{"message":"WORD"}`, byte for byte as NSQ's clients expect it. The sentence is in the header field
`X-Nsqtw-Detail` beside it, and in the OpenAPI document.
"""

from __future__ import annotations

from typing import Final

_NAME = "must be 1 to 64 letters, digits, '.', '_' or '-', which may end with '#ephemeral'"
_TIME = "a time: Unix seconds or milliseconds, or RFC 3339"
_NEEDED = "is missing in the query string"

DETAILS: Final[dict[str, str]] = {
    "AUTH_FAILED": "The authorizer cannot be asked now. Try again later; the broker's log has the cause.",
    "BAD_BODY": "The binary body must begin with the number of messages, at least 1, that can fit into it.",
    "BAD_MESSAGE": "A message of the binary body has a wrong size, is empty, too large, or cut off.",
    "BODY_TOO_BIG": "The body is larger than --max-body-size.",
    "CHANNEL_FULL": "A channel of the topic has as many messages as its policy allows. Repeat the request later.",
    "CHANNEL_NOT_FOUND": "The topic has no channel of this name.",
    "CHANNEL_HAS_CONSUMERS": "The channel of the dead letters has consumers: a redrive must be the only one.",
    "CREDENTIAL_REFUSED": "The secret of the Authorization header is not known.",
    "CREDENTIAL_REQUIRED": "The request needs the header 'Authorization: Bearer SECRET'.",
    "CROSS_ORIGIN": "The request was sent by a web page of another site.",
    "DEAD_LETTERS_NOT_FOUND": "There is no dead-letter topic, or it has no channel of this name.",
    "DEDUPE_WINDOW_REQUIRED": "The ids of publishers are known in topics whose policy has a dedupe_window.",
    "DRAINING": "The broker delivers what it has and takes nothing more: publish to another nsqd.",
    "EPHEMERAL_CHANNEL": "An ephemeral channel has no position that could be chosen.",
    "EPHEMERAL_TOPIC": "An ephemeral topic has no log.",
    "EXITING": "The message or change could not be stored, which /ping explains, or broker or topic are going away.",
    "FORBIDDEN": "The secret is known, and does not grant this.",
    "HEADERS_NOT_STORED": "The storage backend stores no headers and no messages for one channel: publish without.",
    "HOLD_NOT_FOUND": "The broker has no such hold, or its time is over: what was copied may lack messages.",
    "INTERNAL_ERROR": "The broker failed to serve this; its log has the cause.",
    "INVALID_ARG_CHANNEL": f"The channel's name {_NAME}.",
    "INVALID_ARG_TOPIC": f"The topic's name {_NAME}.",
    "INVALID_BYTES": "'bytes' must be a whole number, 0 for no limit, or 'default'.",
    "INVALID_CLASS": "'class' must be memory, os, fsync or default.",
    "INVALID_CONFIG": "An option has a value that cannot be used, so nothing is changed.",
    "INVALID_DEFER": "'defer' must be milliseconds, at most --max-defer-timeout or, if that is 0, --max-req-timeout.",
    "INVALID_DELIVER_AT": (
        f"'deliver_at' must be {_TIME}, at most --max-defer-timeout or, if that is 0, --max-req-timeout ahead; and not "
        "given with 'defer'."
    ),
    "INVALID_DELAY": "'delay' must be a duration such as 30s.",
    "INVALID_DRY_RUN": "'dry_run' must be true or false.",
    "INVALID_END": f"'end' must be {_TIME}.",
    "INVALID_FROM": "'from' must be a position, earliest or latest.",
    "INVALID_HEADER": "A message cannot have such a header; the answer to the request says why.",
    "INVALID_HEADERS": "'headers' must be true or false; of a publish true only with binary=true.",
    "INVALID_HOLD": "'hold' must be the number of a hold.",
    "INVALID_ID": "'id' must be 1 to 255 bytes without control characters; to cancel a message, its 16 hex digits.",
    "INVALID_IDS": "'ids' must be true or false.",
    "INVALID_LIMIT": "'limit' must be a whole number of at least 1.",
    "INVALID_MAX": "'max' must be a whole number of at least 1; of a poll, at most 1000.",
    "INVALID_MAX_IN_FLIGHT": "'max_in_flight' must be a whole number, at most --max-rdy-count.",
    "INVALID_MSG_TIMEOUT": "'msg_timeout' must be a duration such as 60s, 1s to --max-msg-timeout.",
    "INVALID_OPTION": "There is no such option, or it cannot be set while the broker runs.",
    "INVALID_POLICY": "A setting is unknown, has a value that it cannot have, or contradicts another.",
    "INVALID_PRIORITY": "'priority' must be high, normal or low.",
    "INVALID_RATE": "'rate' must be messages a second, as a whole number of at least 1.",
    "INVALID_REQUEST": "The query string cannot be read, or the body is cut off, or its chunks are not well-formed.",
    "INVALID_START": f"'start' must be {_TIME}; of a new channel, earliest or latest.",
    "INVALID_STATE": "'state' must be ready, deferred or in_flight.",
    "INVALID_STOP": "'stop' must be true or false.",
    "INVALID_TIME": "'time' must be a duration such as 24h; of a topic's retention 0 for no limit, or 'default'.",
    "INVALID_TIMEOUT": "'timeout' must be a duration such as 30s, or 0 for any time.",
    "INVALID_TO": f"'to' must be earliest, latest, the id of a message, or {_TIME}.",
    "INVALID_TOPIC": f"The topic's name {_NAME}.",
    "INVALID_TTL": "'ttl' must be milliseconds or a duration such as 60s, above 0.",
    "INVALID_VALUE": "The option cannot have this value.",
    "INVALID_WAIT": "'wait' must be milliseconds, as a whole number; of a poll a duration such as 20s.",
    "MESSAGE_NOT_DEFERRED": "No message of this id waits for its time: it was delivered, cancelled, or is unknown.",
    "MESSAGE_NOT_FOUND": "No message of this id is kept in the topic's log.",
    "METHOD_NOT_ALLOWED": "The path is right, the method is not: the header Allow has those that are.",
    "MISSING_ARG_CHANNEL": f"'channel' {_NEEDED}.",
    "MISSING_ARG_ID": f"'id' or 'publisher_id' {_NEEDED}.",
    "MISSING_ARG_NODE": f"'node' {_NEEDED}.",
    "MISSING_ARG_TIME_OR_BYTES": f"'time' or 'bytes' {_NEEDED}.",
    "MISSING_ARG_TO": f"'to' {_NEEDED}.",
    "MISSING_ARG_TOPIC": f"'topic' {_NEEDED}.",
    "MSG_EMPTY": "The body is empty; a message has at least one byte.",
    "MSG_TOO_BIG": "The message is larger than --max-msg-size.",
    "MESSAGE_NOT_RELEASED": (
        "The message waits in the topic, which has not given it to its channels yet: cancel it without 'channel'."
    ),
    "NOT_FOUND": "There is no such path; /v2/openapi.json of a broker lists them all.",
    "PUBLISH_TOO_BIG": "A channel of the topic never has room for so much, by its policy. Publish less at once.",
    "REDRIVE_NOT_FOUND": "The channel had no redrive since the broker started.",
    "REDRIVE_RUNS": "A redrive of this channel runs already.",
    "REQUEST_TIMEOUT": "The request did not arrive in time: see --http-header-timeout and --body-timeout.",
    "SUBSCRIBE_DISABLED": "Consuming over HTTP is off: start nsqd with --http-subscribe.",
    "SUBSCRIBE_FAILED": "The channel cannot be subscribed to.",
    "TLS_REQUIRED": "The broker serves HTTPS only, on the port that the answer names.",
    "TOO_MANY_CHANNELS": "There are as many channels as --max-channels allows.",
    "TOO_MANY_CONNECTIONS": "There are as many connections as --max-connections, or open files, allow.",
    "TOO_MANY_SUBSCRIBERS": "There are as many HTTP subscribers as --max-http-subscribers allows.",
    "TOO_MANY_TOKENS": "The body has more than 64 KB of tokens.",
    "TOO_MANY_TOPICS": "There are as many topics as --max-topics allows.",
    "TOO_MANY_UNFINISHED_REQUESTS": "Requests that have come in part take more than --max-unfinished-size.",
    "TOO_MANY_WATCHERS": "There are as many watchers as --max-watchers allows.",
    "TOPIC_NOT_FOUND": "There is no topic of this name.",
    "UPGRADE_REQUIRED": "The path speaks WebSocket, version 13, over HTTP/1.1: begin with its handshake.",
}
