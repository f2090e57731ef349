"""
The authorizer with a file of grants (`grants_file`), where secrets are hashed.

Theory of operation. Hashing a secret takes some 50 ms, so it is done in a thread of its own, for one client after the
other, addresses in rotation (`fair_queue`): an address that sends wrong secrets only delays itself. For a correct
secret its line of the file is cached, under a keyed digest that is of no use to an attacker who reads it later; from
then on a check takes two microseconds. A wrong secret is not cached: it is hashed each time, once for each recipe in
the file, which is once if all have the same salt. The queue of the thread is bounded, and so is the delay that one
address can cause to others.

A reload replaces the table. A secret whose line is still in the file stays cached, and gets the permissions of the new
file. One that is being hashed at that time is looked up in the new table.
"""

from __future__ import annotations

import hmac
import ipaddress
from concurrent.futures import ThreadPoolExecutor
from secrets import token_bytes
from threading import Lock

from zope.interface import implementer, provider

from nsqtw.auth.fair_queue import Turns
from nsqtw.auth.grants import Grants
from nsqtw.auth.grants_file import Line, Table, read_grants
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.interfaces import IAuthorizer, IAuthorizerFactory, OperatorLog
from nsqtw.options.broker import Options
from nsqtw.options.files import exposures
from nsqtw.rights import Answer, Credentials

MAX_WAITING = 256
"""Secrets that may wait to be hashed. With one recipe the last of them, if all are of one address, waits some 13 s."""

_MANY_RECIPES = 8


@implementer(IAuthorizer)
class StaticAuthorizer:
    """Authorizes the clients in the file at `path`. AuthError when it is invalid, or has no client at the start."""

    def __init__(self, path: str, log: OperatorLog) -> None:
        self._path = path
        self._log = log
        self._key = token_bytes(32)
        self._lock = Lock()
        self._known: dict[bytes, Line] = {}
        self._waiting: dict[bytes, list[Answer]] = {}
        self._turns: Turns[tuple[bytes, bytes]] = Turns(MAX_WAITING)
        self._table: Table = {}
        self._is_closed = False
        self._read()
        if not self._table:
            raise AuthError(f"{path}: there is no client in it, so nobody could do anything; [[client]] makes one")
        self._thread = ThreadPoolExecutor(1, "nsqtw-auth")

    def authorize(self, credentials: Credentials, answer: Answer) -> Grants | None:
        """IAuthorizer API."""
        digest = hmac.digest(self._key, credentials.secret, "sha256")
        with self._lock:
            line = self._known.get(digest)
            if line is not None:
                return self._table[line]
            if digest in self._waiting:
                self._waiting[digest].append(answer)
                return None
            self._waiting[digest] = [answer]
            lost = self._turns.add(_neighbours(credentials.remote_ip), (digest, credentials.secret))
            unheard = [] if lost is None else self._waiting.pop(lost[0])
        if lost is None:
            self._thread.submit(self._find_next)
        for question in unheard:
            question(AuthError(f"{MAX_WAITING} other secrets are being looked at"))
        return None

    def reload(self) -> bool:
        """IAuthorizer API."""
        self._read()
        if not self._table:
            self._log("warn", f"AUTH: there is no client in {self._path}: nobody may do anything any more")
        return True

    def close(self) -> None:
        """IAuthorizer API. The process waits at most for the hash that is being computed."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- inside

    def _read(self) -> None:
        table = read_grants(self._path)
        for warning in exposures({"--auth=static": self._path}):
            self._log("warn", warning)
        recipes = {line.recipe for line in table}
        if len(recipes) > _MANY_RECIPES:
            self._log(
                "warn",
                f"AUTH: the secrets in {self._path} have {len(recipes)} salts, and a wrong secret is hashed with each"
                " of them: give them one with nsqtw hash-secret --salt-of",
            )
        with self._lock:
            self._table = table
            self._known = {digest: line for digest, line in self._known.items() if line in table}

    def _find_next(self) -> None:
        """Runs in the thread."""
        with self._lock:
            digest, secret = self._turns.take()
        while True:
            table = self._table
            line = self._look_up(table, secret)
            with self._lock:
                if table is self._table:
                    answers = self._waiting.pop(digest)
                    if isinstance(line, Line):
                        self._known[digest] = line
                    break
        outcome = table[line] if isinstance(line, Line) else line
        for answer in answers:
            answer(outcome)

    def _look_up(self, table: Table, secret: bytes) -> Line | AuthError:
        """The line that is about a secret. It takes as long for each, and for a wrong one."""
        match: Line | None = None
        try:
            for recipe, size in {(line.recipe, len(line.hash)) for line in table}:
                if self._is_closed:
                    return AuthError("the broker stops")
                hashed = recipe.hash(secret, size)
                for line in table:
                    if line.recipe == recipe and hmac.compare_digest(hashed, line.hash):
                        match = line
        except (ValueError, MemoryError) as failure:
            return AuthError(f"a secret cannot be hashed: {type(failure).__name__}")
        return match or AuthRefused("no client has this secret")


def _neighbours(remote_ip: str) -> str:
    """Return the key of an address: for IPv6 the first 64 bits, because their owner has all addresses behind them."""
    if ":" not in remote_ip:
        return remote_ip
    return str(ipaddress.ip_network((remote_ip.partition("%")[0], 64), strict=False))


@provider(IAuthorizerFactory)
class StaticFactory:
    """Makes it."""

    name = "static"
    summary = "grants from a TOML file with hashed secrets, read again on SIGHUP"
    argument_format = "the path of the file"

    @staticmethod
    def open(argument: str, options: Options, log: OperatorLog) -> StaticAuthorizer:
        """IAuthorizerFactory API."""
        if not argument:
            raise AuthError("--auth=static needs the path of a file of grants: --auth=static:PATH")
        return StaticAuthorizer(argument, log)
