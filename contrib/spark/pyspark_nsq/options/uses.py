"""The uses of ``format("nsq")``, each with its class of options."""

from __future__ import annotations

import dataclasses
from typing import Any

from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.kinds import names
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.sink import SinkOptions

_USES: dict[str, type[Any]] = {
    "reading a channel": ChannelOptions,
    "reading a log": LogOptions,
    "writing": SinkOptions,
}


def uses(key: str) -> tuple[str, list[str]]:
    """Return the name of an option, given in any case, and the uses that have it: none for an unknown option."""
    found = {
        use: name
        for use, options in _USES.items()
        for each in dataclasses.fields(options)
        for name in names(each)
        if name.lower() == key.lower()
    }
    return next(iter(found.values()), key), list(found)
