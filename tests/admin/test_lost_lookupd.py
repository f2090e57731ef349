"""An nsqadmin whose only nsqlookupd has ended."""

from __future__ import annotations

from pathlib import Path

from tests.admin.process import AdminProcess
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.wire import HOST

GOING_ON = "going on with the nodes that it named last"


def test_the_nodes_are_not_gone_and_can_be_changed_until_they_end_themselves(tmp_path: Path) -> None:
    lookupd = LookupdProcess(tmp_path / "lookupd")
    flags = (f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}", f"--broadcast-address={HOST}")
    nsqd = NsqdProcess(tmp_path / "nsqd", *flags)
    admin = AdminProcess(tmp_path / "admin", f"--lookupd-http-address={HOST}:{lookupd.http_port}")
    processes = (lookupd, nsqd, admin)

    def page() -> str:
        return admin.get("/").body.decode()

    try:
        for process in processes:
            process.start()
        nsqd.create("orders", "archive")
        node = f"{HOST}:{nsqd.http_port}"
        wait_until(lambda: lookupd.producers("orders"), "the topic is registered")
        wait_until(lambda: node in page(), "the node is shown")
        lookupd.close()
        wait_until(lambda: GOING_ON in page(), "the warning")
        assert f"{HOST}:{lookupd.http_port}" in page()
        assert node in page() and "gone for" not in page()
        paused = admin.ask("POST", "/api/topics/orders/archive", {"action": "pause"})
        assert (paused.status, GOING_ON in paused.message) == (200, True)
        assert nsqd.stats("orders")[0]["channels"][0]["paused"]
        assert admin.await_audit("pause_channel").partition(": ")[2].startswith("done in part: ")
        assert admin.get("/topics/orders/archive").status == 200
        assert [found["hostname"] for found in admin.get("/api/nodes").document["nodes"]]
        nsqd.close()
        wait_until(lambda: "gone for" in page(), "the node is gone")
        assert GOING_ON in page()
    finally:
        for process in processes:
            process.close()
    for process in processes:
        process.assert_no_traceback()
