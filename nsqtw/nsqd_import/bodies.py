"""The bodies of messages in the queue files, read one by one at the offsets that the first reading has recorded."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping

from nsqtw.errors import BackendError
from nsqtw.nsqd_import.diskqueue import QueueFiles, data_name
from nsqtw.nsqd_import.records import Message

_MAX_OPEN = 64


class Bodies:
    """Reads from the queues of a data path, by their numbers."""

    def __init__(self, directory: str, queues: Mapping[int, QueueFiles]) -> None:
        self._directory = directory
        self._queues = queues
        self._open: OrderedDict[tuple[int, int], int] = OrderedDict()

    def payload(self, message: Message) -> bytes:
        """The payload of a message. OSError; BackendError when the file has become shorter."""
        fd = self._descriptor(message.queue, message.file)
        payload = os.pread(fd, message.length, message.position)
        if len(payload) < message.length:
            raise BackendError(f"{data_name(self._queues[message.queue].name, message.file)} changed while it was read")
        return payload

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, queue: int, number: int) -> int:
        fd = self._open.get((queue, number))
        if fd is None:
            path = os.path.join(self._directory, data_name(self._queues[queue].name, number))
            fd = self._open[queue, number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) > _MAX_OPEN:
                os.close(self._open.popitem(last=False)[1])
        return fd
