"""Pages over HTTP: header fields, markup, events, refusals. Tests with a browser are in tests/browser."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import ExitStack, closing
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote, urlencode

import pytest

from nsqtw.admin.pages.live_pages import MAX_PAGES_OF_USER
from tests.admin.conftest import Nodes, StartAdmin
from tests.admin.endpoint import endpoint
from tests.admin.process import AdminProcess
from tests.process import NOTHING, Counts, wait_until
from tests.wire import ANSWER_SECONDS, HOST

PATHS = (
    "/",
    "/topics",
    "/topics?list=channels",
    "/nodes",
    "/connections",
    "/connections?list=producers",
    "/lookup",
    "/counter",
    "/actions/create",
)


class Markup(HTMLParser):
    """What a strict Content-Security-Policy forbids in a page, and the URLs that it loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forbidden: list[str] = []
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.forbidden += [f"{tag} {name}" for name in found if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in found):
            self.forbidden.append(tag)
        if tag in ("script", "link", "img"):
            self.loaded.append(found.get("src") or found.get("href") or "")


def token(admin: AdminProcess, path: str) -> str:
    """Return the CSRF token of a page."""
    match = re.search(r'name="csrf" value="([0-9a-f]+)"', admin.get(path).body.decode())
    assert match is not None
    return match[1]


def post(admin: AdminProcess, path: str, **fields: str) -> tuple[int, str, str]:
    """Send a form; status, Location and body of the answer."""
    reply = admin.ask("POST", path, urlencode(fields).encode(), {"Content-Type": "application/x-www-form-urlencoded"})
    return reply.status, reply.headers.get("location", ""), reply.body.decode()


POLICY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@pytest.mark.parametrize("path", ["/", "/static/0/x", "/api/topics", "/ping", "/livez", "/nowhere", "/topics/nowhere"])
def test_every_answer_has_the_same_security_headers(path: str, admin: AdminProcess) -> None:
    headers = admin.get(path).headers
    assert {name: headers.get(name) for name in POLICY} == POLICY


@pytest.mark.parametrize("path", PATHS)
def test_a_page_has_a_strict_policy_and_nothing_inline(path: str, admin: AdminProcess) -> None:
    reply = admin.get(path)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == "no-store"
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    markup = Markup(reply.body.decode())
    assert markup.forbidden == []
    assert all(url.startswith("/static/") for url in markup.loaded)


def test_static_files_are_kept_for_ever_and_named_by_their_content(admin: AdminProcess) -> None:
    urls = Markup(admin.get("/").body.decode()).loaded
    assert len(urls) == 6
    for url in urls:
        reply = admin.get(url)
        assert reply.status == 200, url
        assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-type"].split(";")[0] in ("text/css", "text/javascript", "image/svg+xml")
    other = re.sub(r"/static/\w+/", "/static/0123456789ab/", urls[0])
    assert admin.get(other).status == 404


@pytest.mark.parametrize("path", ["../site.py", "..%2f..%2fsite.py", "vendor/uplot/LICENSE", "vendor", ""])
def test_nothing_else_is_a_static_file(path: str, admin: AdminProcess) -> None:
    [digest] = set(re.findall(r"/static/(\w+)/", admin.get("/").body.decode()))
    assert admin.get(f"/static/{digest}/{path}").status in (301, 404)


def test_names_are_escaped(admin: AdminProcess) -> None:
    evil = quote("<script>alert(1)</script>", safe="")
    for path in (f"/topics/{evil}", f"/topics?q={evil}", f"/nodes/{evil}", f"/actions/{evil}", f"/topics?sort={evil}"):
        body = admin.get(path).body.decode()
        assert "<script>alert" not in body
    assert "&lt;script&gt;" in admin.get(f"/topics?q={evil}").body.decode()


def test_what_is_not_there_is_a_page_with_its_status(admin: AdminProcess) -> None:
    reply = admin.get("/topics/nothing")
    assert (reply.status, b"There is no topic nothing." in reply.body) == (404, True)


def test_a_policy_is_shown_where_there_is_one(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "work")
    wait_until(lambda: admin.get(f"/topics/{topic}/work").status == 200, "the channel is there")
    assert "this channel behaves as in NSQ" in admin.get(f"/topics/{topic}/work").body.decode()
    target = f"/v2/channel/policy?topic={topic}&channel=work"
    for nsqd in nodes.nsqds:
        assert nsqd.http("PUT", target, b'{"max_attempts": 5, "priority": true}').status == 200

    def page() -> str:
        return admin.get(f"/topics/{topic}/work").body.decode()

    wait_until(lambda: "<dt>max_attempts</dt><dd>5</dd>" in page(), "the page shows the policy")
    assert "<dt>priority</dt><dd>true</dd>" in page()
    assert nodes.nsqds[0].http("POST", f"/pub?topic={topic}&priority=high", b"x").status == 200
    wait_until(lambda: "<dt>Waiting: high</dt>\n  <dd>1</dd>" in page(), "the page shows what waits of each class")
    nodes.nsqds[0].http("PUT", target, b'{"max_attempts": 6}')
    wait_until(lambda: "The policy of this channel is not the same on all its nodes." in page(), "the nodes differ")
    assert "this topic behaves as in NSQ" in admin.get(f"/topics/{topic}").body.decode()


# -- events


def test_a_page_sends_itself_as_an_event_and_again_when_it_changes(
    admin: AdminProcess, nodes: Nodes, topic: str
) -> None:
    nodes.prepare(topic, "work")
    wait_until(lambda: admin.get(f"/topics/{topic}").status == 200, "the topic is there")
    connection = http.client.HTTPConnection(HOST, admin.http_port, timeout=ANSWER_SECONDS)
    connection.request("GET", f"/topics/{topic}", headers={"Accept": "text/event-stream", "Accept-Encoding": "gzip"})
    response = connection.getresponse()
    assert response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    assert response.getheader("Content-Encoding") is None
    first = _event(response)
    assert first[0] == "event: page" and any('id="live"' in line for line in first)
    nodes.nsqds[0].publish(topic, [b"x"])
    wait_until(lambda: _event(response) != first, "the page changed")
    connection.close()


def test_a_user_has_a_limited_number_of_live_pages(start: StartAdmin) -> None:
    admin = start("--admin-user=ann", "--read-user=bob")
    with ExitStack() as stack:

        def open_page(user: str) -> http.client.HTTPResponse:
            connection = stack.enter_context(
                closing(http.client.HTTPConnection(HOST, admin.http_port, timeout=ANSWER_SECONDS))
            )
            headers = {"Accept": "text/event-stream", "X-Forwarded-User": user}
            connection.request("GET", "/topics", headers=headers)
            return stack.enter_context(connection.getresponse())

        assert {open_page("bob").status for _ in range(MAX_PAGES_OF_USER)} == {200}
        refused = open_page("bob")
        assert (refused.status, refused.getheader("Retry-After")) == (503, "10")
        assert open_page("ann").status == 200
        assert admin.get("/topics", X_Forwarded_User="bob").status == 200


def _event(response: http.client.HTTPResponse) -> list[str]:
    """Read one event, without comments."""
    lines: list[str] = []
    while True:
        line = response.readline().decode().rstrip("\n")
        if not line and lines:
            return lines
        if line and not line.startswith(":"):
            lines.append(line)


# -- forms


def test_an_action_needs_the_token_of_a_page(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    for forged in ("", "0" * 64):
        status, _, body = post(admin, f"/actions/pause_topic?topic={topic}", csrf=forged)
        assert (status, "out of date" in body) == (403, True)
    assert nodes.nsqds[0].stats(topic)[0]["paused"] is False
    status, location, _ = post(admin, f"/actions/pause_topic?topic={topic}", csrf=token(admin, "/actions/create"))
    assert status == 303 and location.startswith(f"/topics/{topic}?notice=")
    assert nodes.nsqds[0].stats(topic)[0]["paused"] is True
    assert f"The topic {topic} is paused." in admin.get(location).body.decode()
    admin.await_audit(f"pause_topic topic={topic}: done")


def test_a_form_of_another_origin_is_refused(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    form = urlencode({"csrf": token(admin, "/actions/create")}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example"}
    assert admin.ask("POST", f"/actions/pause_topic?topic={topic}", form, headers).status == 403


def test_a_destructive_action_compares_the_typed_name(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "work")
    csrf = token(admin, "/actions/create")
    for typed in ({}, {"typed": "work"}, {"typed": topic.upper()}):
        status, _, body = post(admin, f"/actions/delete_topic?topic={topic}", csrf=csrf, **typed)
        assert (status, "not that of the topic" in body) == (400, True)
    status, location, _ = post(admin, f"/actions/delete_topic?topic={topic}", csrf=csrf, typed=topic)
    assert (status, location.partition("?")[0]) == (303, "/topics")
    assert nodes.nsqds[0].stats(topic) == []


def test_warnings_of_nodes_that_failed_are_shown_after_an_action(start: StartAdmin, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    admin = start(*nodes.nsqd_flags, f"--nsqd-http-address={HOST}:1")
    status, location, _ = post(admin, f"/actions/pause_topic?topic={topic}", csrf=token(admin, "/actions/create"))
    assert status == 303
    body = admin.get(location).body.decode()
    assert f"The topic {topic} is paused." in body and f"{HOST}:1" in body


def test_an_action_that_no_server_does_is_shown_as_not_done(admin: AdminProcess) -> None:
    status, _, body = post(admin, "/actions/pause_topic?topic=nothing-here", csrf=token(admin, "/actions/create"))
    assert (status, "It was not done" in body) == (502, True)


def test_an_action_that_every_node_refuses_is_shown_and_counted_as_failed(
    start: StartAdmin, nodes: Nodes, topic: str
) -> None:
    nodes.prepare(topic)
    with endpoint() as receiver:
        admin = start(f"--notification-http-endpoint=http://{receiver.address}/")
        csrf = token(admin, "/actions/create")
        status, _, body = post(admin, f"/actions/delete_channel?topic={topic}&channel=no", csrf=csrf, typed="no")
        assert (status, "It was not done: got response 404" in body) == (502, True)
        assert ": failed: got response 404" in admin.await_audit("delete_channel")
        assert b'nsq_admin_actions_total{action="delete_channel",outcome="failed"} 1' in admin.get("/metrics").body
        assert admin.ask("DELETE", f"/api/topics/{topic}/no").status == 200
        assert admin.ask("POST", "/api/topics", {"topic": topic}).status == 200
        wait_until(lambda: len(receiver.requests) > 0, "a notification")
        assert [document["action"] for document in receiver.documents] == ["create_topic"]


def test_an_action_whose_answer_is_lost_is_shown_and_counted_as_unknown(start: StartAdmin) -> None:
    with endpoint() as nsqd:
        port = int(nsqd.address.rpartition(":")[2])
        info = {"broadcast_address": HOST, "hostname": "h", "tcp_port": 1, "http_port": port, "version": "1.3.0"}
        nsqd.body = json.dumps({**info, "topics": []}).encode()
        nsqd.is_posting_cut_off = True
        admin = start(f"--nsqd-http-address={nsqd.address}")
        status, _, body = post(admin, "/actions/publish?topic=t", csrf=token(admin, "/actions/create"), body="x")
    assert (status, "It is not known whether it was done" in body, "It was not done" in body) == (502, True, False)
    assert admin.await_audit("publish").startswith(f"@{HOST} publish topic=t: unknown: ")
    assert b'nsq_admin_actions_total{action="publish",outcome="unknown"} 1' in admin.get("/metrics").body


def test_pages_and_static_files_are_below_the_base_path(start: StartAdmin) -> None:
    admin = start("--base-path=/tools/nsq")
    body = admin.get("/tools/nsq/").body.decode()
    links = re.findall(r'(?:href|src|action)="([^"#]+)"', body)
    assert links and all(link.startswith("/tools/nsq/") for link in links)
    assert admin.get("/topics").status == 404


def test_a_link_beside_a_message_leads_to_its_replay(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "work", messages=1)
    body = admin.get(f"/topics/{topic}/work?view=messages").body.decode()
    number, link = re.findall(r'id="message-([0-9a-f]{16})".*?<a href="([^"]+)">Replay from here', body, re.DOTALL)[0]
    form = admin.get(unescape(link)).body.decode()
    assert f'name="message" aria-label="Id of the message" value="{number}"' in form
    assert 'id="preview"' in form


def test_a_message_is_published_with_headers_and_shown_with_them(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "work", messages=0)
    csrf, headers = token(admin, "/actions/create"), "Tenant: <acme>"
    status, _, _ = post(admin, f"/actions/publish?topic={topic}", csrf=csrf, body="hello", headers=headers)
    assert status == 303
    page = admin.get(f"/topics/{topic}/work?view=messages").body.decode()
    assert "<span>tenant:</span> &lt;acme&gt;" in page


def test_dead_letters_are_shown_and_put_back(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "work")
    target = f"topic={topic}&channel=work"
    path = f"/topics/{topic}/work"
    nsqd = nodes.nsqds[0]
    for node in nodes.nsqds:
        assert node.http("PUT", f"/v2/channel/policy?{target}", b'{"max_attempts": 1}').status == 200
    wait_until(lambda: "<dt>max_attempts" in admin.get(path).body.decode(), "the policy is there")
    page = admin.get(path).body.decode()
    assert not re.search('id="letters"|Dead-lettered|redrive_channel', page)
    nsqd.publish(topic, [b"poison"] * 2)
    with nsqd.client() as client:
        client.sub(topic, "work", ready=2)
        for message in client.take(2):
            client.req(message, 0)
        wait_until(lambda: nsqd.stats(f"{topic}.dead"), "the messages are dead letters")
    wait_until(lambda: "redrive_channel" in admin.get(path).body.decode(), "the page has the button")
    page = admin.get(path).body.decode()
    letters = f'<a href="/topics/{topic}.dead/work?view=messages">2 messages</a>'
    assert letters in page
    assert re.search(r"<dt>Dead-lettered</dt>\s*<dd class=\"is-bad\">2</dd>", page)
    assert "poison" in admin.get(f"/topics/{topic}.dead/work?view=messages").body.decode()
    nsqd.publish(f"{topic}.dead", [b"stranger"])
    form = admin.get(f"/actions/redrive_channel?{target}").body.decode()
    assert f"Up to 2 dead letters of the topic {topic}.dead will be put back." in form
    assert "1 message of other channels, or no dead letters, will stay there." in form
    csrf = token(admin, "/actions/create")
    status, _, page = post(admin, f"/actions/redrive_channel?{target}", csrf=csrf, rate="fast")
    assert (status, "The rate must be a whole number" in page) == (400, True)
    status, location, _ = post(admin, f"/actions/redrive_channel?{target}", csrf=csrf, rate="1000")
    assert (status, location.partition("?")[0]) == (303, path)
    done = "done: 2 of 3 messages put back; 1 message of others stayed"
    wait_until(lambda: done in admin.get(path).body.decode(), "the page shows the end")
    assert nsqd.counts(topic, "work").depth == 2
    assert f"redrive_channel topic={topic} channel=work: done" in admin.await_audit("redrive_channel")
    status, _, page = post(admin, f"/actions/stop_redrive_channel?topic={topic}&channel=other", csrf=csrf)
    assert (status, "It was not done" in page) == (502, True)


def test_a_deferred_message_is_cancelled(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "work", "other")
    nodes.nsqds[0].http("POST", f"/pub?topic={topic}&defer=3600000", b"later")
    view = f"/topics/{topic}/work?view=messages"
    nodes.nsqds[0].await_counts(topic, "work", Counts(0, 0, 1))
    assert "cancel_message" not in admin.get(view).body.decode()
    body = admin.get(f"{view}&state=deferred").body.decode()
    number, link = re.findall(r'id="message-([0-9a-f]{16})".*?href="([^"]+cancel_message[^"]+)"', body, re.DOTALL)[0]
    assert f"The message {number} will never be delivered" in admin.get(unescape(link)).body.decode()
    csrf = token(admin, "/actions/create")
    assert post(admin, unescape(link), csrf=csrf, typed="other")[0] == 400
    status, location, _ = post(admin, unescape(link), csrf=csrf, typed="work")
    assert (status, location.startswith(f"{view}&state=deferred")) == (303, True)
    assert nodes.nsqds[0].counts(topic, "work") == NOTHING
    assert nodes.nsqds[0].counts(topic, "other").deferred == 1
    assert f"message={number}: done" in admin.await_audit("cancel_message")


def test_a_replay_is_red_only_when_it_skips_messages(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "work", messages=3)
    wait_until(lambda: admin.get(f"/topics/{topic}/work").status == 200, "the channel is there")
    page = admin.get(f"/topics/{topic}/work").body.decode()
    assert '<a class="button" href="/actions/seek_channel' in page
    for kind, style in (("earliest", "button primary"), ("latest", "button primary danger")):
        form = admin.get(f"/actions/seek_channel?topic={topic}&channel=work&kind={kind}").body.decode()
        assert f'<button class="{style}" type="submit">Move the channel</button>' in form, kind


def test_a_replay_says_what_a_bound_drops_then(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nsqd = nodes.nsqds[0]
    nsqd.create(topic, "work", "other")
    nsqd.publish(topic, [b"1", b"2", b"3"])
    nsqd.drain(topic, "work", 3)
    policy = json.dumps({"max_depth": 1, "overflow": "drop_oldest"}).encode()
    assert nsqd.http("PUT", f"/v2/channel/policy?topic={topic}&channel=work", policy).status == 200
    wait_until(lambda: admin.get(f"/topics/{topic}/work").status == 200, "the channel is there")
    form = admin.get(f"/actions/seek_channel?topic={topic}&channel=work&kind=earliest").body.decode()
    assert "3 messages are delivered again</h2>" in form
    assert "Its bounds then drop up to 2 messages of what waits." in form
    assert '<button class="button primary danger" type="submit">Move the channel</button>' in form


def test_a_form_leads_back_to_the_page_of_its_target(admin: AdminProcess) -> None:
    for path, back in (
        ("create?topic=t&channel=c", "/topics"),
        ("pause_topic?topic=t", "/topics/t"),
        ("empty_channel?topic=t&channel=c", "/topics/t/c"),
    ):
        body = admin.get(f"/actions/{path}").body.decode()
        assert f'<a class="button" href="{back}">Cancel</a>' in body, path


def test_a_topic_without_a_node_can_be_deleted_with_its_channels(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    for path in (f"/topic/create?topic={topic}", f"/channel/create?topic={topic}&channel=work"):
        assert nodes.lookupd.http("POST", path).status == 200
    csrf = token(admin, "/actions/create")
    for name, typed in (("delete_channel", "work"), ("delete_topic", topic)):
        body = admin.get("/lookup").body.decode()
        (link,) = {unescape(link) for link in re.findall(r'href="([^"]+)"', body) if f"{name}?topic={topic}" in link}
        assert "No node has the" in admin.get(link).body.decode()
        status, _, _ = post(admin, link, csrf=csrf, typed=typed)
        assert status == 303
    assert topic not in admin.get("/lookup").body.decode()


def test_connections_are_listed_and_the_overview_counts_them(admin: AdminProcess, nodes: Nodes) -> None:
    nodes.prepare("talk", "work")
    with nodes.nsqds[0].client() as consumer, nodes.nsqds[1].client() as producer:
        consumer.identify(client_id="reader-7")
        consumer.sub("talk", "work")
        producer.identify(client_id="writer-9")
        producer.pub("talk", b"x")
        page = admin.get("/connections?q=reader-7").body.decode()
        assert "reader-7" in page and "/topics/talk/work" in page and nodes.addresses[0] in page
        assert "writer-9" not in page
        page = admin.get("/connections?list=producers&q=talk").body.decode()
        assert "writer-9" in page and nodes.addresses[1] in page and "reader-7" not in page
    overview = admin.get("/").body.decode()
    for label in ("Deferred", "Consumers"):
        assert f"<dt>{label}</dt>" in overview
    assert f"{HOST}:{nodes.lookupd.http_port}" in overview and '<span class="badge good">up</span>' in overview
