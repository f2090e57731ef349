"""The store of a campaign: PostgreSQL with a synchronous standby, which can be killed, stopped and filled."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractContextManager, suppress

from tests.crash.disks import can_mount
from tests.crash.promises import await_promised
from tests.replication.servers import PostgresPair, PostgresServer

_DISK = "700m"


class Database(PostgresPair):
    """Two servers, each on a small disk where this process can mount one."""

    def __init__(self) -> None:
        super().__init__()
        self.has_disks = can_mount()
        """Whether disks can be filled."""
        self.has_standby = False
        """Whether the primary can be lost."""
        for server in (self.primary, self.standby) if self.has_disks else ():
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "none", str(server.folder)], check=True)
            shutil.chown(server.folder, "postgres", "postgres")

    @property
    def ports(self) -> list[int]:
        """Of both servers, always in the same order."""
        return sorted([self.primary.port, self.standby.port])

    def start(self, *, synchronous: bool = True) -> None:
        super().start(synchronous=synchronous)
        self.has_standby = synchronous

    def synchronize(self) -> None:
        """The names of servers stay when they change their roles: the only standby is meant."""
        self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.execute("SELECT pg_reload_conf()")
        self._await_synchronous()

    def lose_primary(self) -> None:
        """The primary is killed, and the standby is promoted."""
        self.primary.kill()
        self.primary, self.standby = self.standby, self.primary
        self.has_standby = False
        self.primary.promote()

    def freeze(self, *, primary: bool) -> AbstractContextManager[None]:
        """One of the servers does nothing meanwhile."""
        return (self.primary if primary else self.standby).stopped()

    def fill(self) -> None:
        """There is no space left on the disk of the primary."""
        with (self.primary.folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1 << 20)):
                pass

    def repair(self) -> None:
        """There is space, the primary runs, and it has a synchronous standby."""
        for server in (self.primary, self.standby):
            (server.folder / "filler").unlink(missing_ok=True)
        if not self._runs(self.primary):
            self.primary.start()
        if not self.has_standby:
            self.standby.close()
            self.copy()
            self.standby.start()
            self.synchronize()
            self.has_standby = True

    def close(self) -> None:
        for server in (self.primary, self.standby):
            server.close()
        for server in (self.primary, self.standby) if self.has_disks else ():
            subprocess.run(["umount", "-l", str(server.folder)], check=False)
        super().close()

    def _await_synchronous(self) -> None:
        query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        await_promised(lambda: self.primary.execute(query), "the standby of PostgreSQL connects")

    @staticmethod
    def _runs(server: PostgresServer) -> bool:
        return server._process is not None and server._process.poll() is None
