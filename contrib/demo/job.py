"""The interface between the demo and the Spark job."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from contrib.demo.records import Records

#: Begins the lines of the job's log that are for the one who watches.
NEWS = "news: "


@dataclass(frozen=True)
class Job:
    """What the pipeline is to do. Paths are text, since it travels as JSON."""

    http_address: str
    topic: str
    #: Where to put the ids of all messages, one JSON string a line. Appears whole or not at all.
    ids: str
    #: A file that appears when the broker has been killed.
    killed: str
    #: A folder for Spark's own files.
    scratch: str
    #: How long the publishing is to take, if nothing else holds it up.
    seconds: float
    events: str | None
    dpkg_status: str | None
    git_log: str | None

    def records(self) -> Records:
        return Records(*(Path(p) if p else None for p in (self.events, self.dpkg_status, self.git_log)))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(**json.loads(path.read_text("utf-8")))
