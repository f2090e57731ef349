"""Nodes with a replica store on the pages: their roles, the copy of a standby, and the hand-over."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

import attrs
import pytest

from nsqtw.replication.status import OWNER, STANDBY, ReplicaStatus
from tests.admin_pages.test_odd_answers import Admin
from tests.cluster.odd_answers import ODD, SOUND, answers_of, documents
from tests.replica_control import A_STANDBY, AN_OWNER, SILENT

ALONE = attrs.evolve(AN_OWNER, standbys=(SILENT,))
FORM = f"/actions/release_node?{urlencode({'node': SOUND})}"
HEALTH = {OWNER: "OK", STANDBY: "NOK - suspended"}
ROLE_COLUMN = '<th scope="col">Role</th>'


def admin_of(sound: ReplicaStatus | None, odd: ReplicaStatus | None, **options: Any) -> Admin:
    """Return an nsqadmin of two nodes in these states; None for one without a replica store."""
    answers = answers_of()
    for address, state in ((SOUND, sound), (ODD, odd)):
        stats: dict[str, Any] = documents(address, 1)["/stats"]
        del stats["replica"]
        if state is not None:
            stats |= {"replica": state.document(), "health": HEALTH[state.role]}
        answers[address, "/stats"] = json.dumps(stats).encode()
    return Admin(answers, **options)


def page(admin: Admin, path: str) -> str:
    status, body = admin.ask("GET", path)
    assert status == 200, body
    return body.decode()


def facts(body: str) -> dict[str, str]:
    """Return the facts of the panel of the replica store."""
    panel = body.partition('id="replica"')[2].partition("</section>")[0]
    return {name: re.sub("<[^>]+>", "", value) for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", panel)}


@pytest.mark.parametrize("path", ["/", "/nodes"])
def test_a_table_of_nodes_has_roles_when_one_has_a_replica_store(path: str) -> None:
    body = page(admin_of(AN_OWNER, None), path)
    assert ROLE_COLUMN in body
    assert body.count('<span class="badge good">owner</span>') == 1
    body = page(admin_of(None, A_STANDBY), path)
    assert '<span class="badge">standby</span>' in body
    assert body.count('<span class="badge good">up</span>') >= 2
    assert "suspended" not in body
    body = page(admin_of(None, None), path)
    assert ROLE_COLUMN not in body


def test_the_page_of_a_node_without_a_replica_store_has_nothing_of_it() -> None:
    body = page(admin_of(None, None), f"/nodes/{SOUND}")
    assert not re.search("replica|standby", body, re.IGNORECASE)


def test_the_page_of_an_owner_has_its_standbys_and_links_to_those_that_are_known() -> None:
    body = page(admin_of(AN_OWNER, A_STANDBY), f"/nodes/{SOUND}")
    assert facts(body) == {
        "Data set": "orders",
        "Role": "owner",
        "Epoch": "3",
        "Last transaction": "70",
        "Lease left": "2.5 s",
    }
    rows = re.findall(r'<th scope="row" class="name">(.*?)</th>\s*<td data-label="State">(.*?)</td>', body)
    assert rows == [
        (f'<a class="address" href="/nodes/{ODD}">{ODD}</a>', '<span class="badge good">runs</span>'),
        ('<span class="address">10.0.0.9:4151</span>', '<span class="badge bad">silent</span>'),
    ]
    assert '<td class="number" data-label="Transactions behind">2</td>' in body
    assert '<td class="number" data-label="Last report">500 ms ago</td>' in body


def test_an_owner_that_no_standby_has_reported_to() -> None:
    body = page(admin_of(attrs.evolve(AN_OWNER, standbys=()), None), f"/nodes/{SOUND}")
    assert "No standby has reported in the last minute." in body


def test_the_page_of_a_standby_says_how_far_it_is_behind() -> None:
    body = page(admin_of(AN_OWNER, A_STANDBY), f"/nodes/{ODD}")
    assert facts(body) == {
        "Data set": "orders",
        "Role": "standby",
        "Epoch": "3",
        "Last transaction": "70",
        "Owner": "10.0.0.1:4150",
        "Behind": "300 messages, 4 KB",
        "Last complete copy": "1.5 s ago",
    }
    assert "release_node" not in body


def test_an_error_of_the_store_is_a_warning() -> None:
    admin = admin_of(attrs.evolve(AN_OWNER, error="<no connection>"), A_STANDBY)
    body = page(admin, f"/nodes/{SOUND}")
    assert '<span class="badge warn">failed</span> &lt;no connection&gt;' in body
    assert page(admin, "/nodes").count('<span class="badge warn">replica store fails</span>') == 1


def test_the_overview_warns_of_an_owner_without_a_standby_that_runs() -> None:
    body = page(admin_of(ALONE, A_STANDBY), "/")
    assert f'<li><a href="/nodes/{SOUND}">{SOUND}</a>: owner of orders</li>' in body
    assert '<span class="badge warn">no standby runs</span>' in body
    for sound, odd in ((AN_OWNER, A_STANDBY), (None, None)):
        assert "unprotected" not in page(admin_of(sound, odd), "/")


# -- the hand-over


def test_the_button_is_there_for_an_owner_with_a_standby_that_runs() -> None:
    assert f'<a class="button small danger" href="{FORM}">' in page(admin_of(AN_OWNER, A_STANDBY), f"/nodes/{SOUND}")
    assert "release_node" not in page(admin_of(ALONE, A_STANDBY), f"/nodes/{SOUND}")


def test_the_button_and_the_form_need_the_role_admin() -> None:
    admin = admin_of(AN_OWNER, A_STANDBY, admin_user=("ann",))
    assert "release_node" not in page(admin, f"/nodes/{SOUND}")
    assert admin.ask("GET", FORM)[0] == 403


def test_the_form_says_what_will_happen_and_belongs_to_the_node() -> None:
    body = page(admin_of(AN_OWNER, A_STANDBY), FORM)
    assert f"Hand over from {SOUND} to a standby" in body
    assert "The broker stops as with SIGTERM" in body
    assert f"A standby takes over the data set orders at once. Those that run: {ODD}." in body
    assert f"name: <code>{SOUND}</code>" in body
    assert f'<li><a href="/nodes/{SOUND}">{SOUND}</a></li>' in body
    assert f'<a class="button" href="/nodes/{SOUND}">Cancel</a>' in body
    assert '<button class="button primary danger" type="submit">Stop the broker</button>' in body
    assert "the node will refuse" in page(admin_of(ALONE, None), FORM)


def test_a_hand_over_needs_the_name_and_is_done_once(outcomes: list[str]) -> None:
    admin = admin_of(AN_OWNER, A_STANDBY)
    csrf = re.findall(r'name="csrf" value="([0-9a-f]+)"', page(admin, FORM))[0]
    status, body = admin.ask("POST", FORM, urlencode({"csrf": csrf, "typed": ODD}).encode())
    assert (status, b"not that of the node" in body, outcomes) == (400, True, [])
    status, _ = admin.ask("POST", FORM, urlencode({"csrf": csrf, "typed": SOUND}).encode())
    assert (status, outcomes) == (303, ["done"])
    del admin.cluster.answers[SOUND, "/v2/replica/release"]
    status, body = admin.ask("POST", FORM, urlencode({"csrf": csrf, "typed": SOUND}).encode())
    assert (status, b"It was not done" in body, len(outcomes)) == (502, True, 2)


def test_the_api_hands_over(outcomes: list[str]) -> None:
    admin = admin_of(AN_OWNER, A_STANDBY)
    asked = [
        admin.ask("POST", f"/api/nodes/{node}", json.dumps({"action": word}).encode())
        for node, word in ((SOUND, "release"), (SOUND, "pause"), ("10.0.0.7:1", "release"))
    ]
    assert [(status, json.loads(body)["message"]) for status, body in asked] == [
        (200, ""),
        (400, "INVALID_ACTION"),
        (404, "NODE_NOT_FOUND"),
    ]
    assert outcomes == ["done", "failed: there is no node 10.0.0.7:1"]
    assert admin.ask("POST", "/api/topics/t", b'{"action": "release"}')[0] == 400
