"""All targets, by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets.codec import Codec
from tests.fuzz.targets.compressed import Compressed
from tests.fuzz.targets.configuration import Configuration, Flags
from tests.fuzz.targets.http import Http
from tests.fuzz.targets.identify import Identify
from tests.fuzz.targets.lookup_answers import LookupAnswers
from tests.fuzz.targets.lookupd import Lookupd
from tests.fuzz.targets.names import Names
from tests.fuzz.targets.queues import Import
from tests.fuzz.targets.registrations import Snapshot
from tests.fuzz.targets.session import Session
from tests.fuzz.targets.session_v3 import SessionV3
from tests.fuzz.targets.spool import SpoolStart
from tests.fuzz.targets.stored import DiskStart, SqliteStart
from tests.fuzz.targets.websocket import WebSocketFrames

TARGETS: tuple[type[Target], ...] = (
    Codec,
    Session,
    SessionV3,
    Identify,
    Compressed,
    Http,
    WebSocketFrames,
    LookupAnswers,
    Names,
    Configuration,
    Flags,
    DiskStart,
    SqliteStart,
    SpoolStart,
    Import,
    Snapshot,
    Lookupd,
)
BY_NAME = {target.name: target for target in TARGETS}
