"""A wrong address is named in one line, with the server that was found there and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyspark_nsq.channel.sample import take
from pyspark_nsq.errors import NsqSparkError, PublishError, ReadError
from pyspark_nsq.http import servers
from pyspark_nsq.http.servers import no_answer, server_of
from pyspark_nsq.jobs.brokers import Brokers
from pyspark_nsq.jobs.connection import Connection
from pyspark_nsq.log.batch import LogBatchReader
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.packing import deferred_request
from pyspark_nsq.sink.publisher import Publisher
from twisted.web._newclient import ParseError

from tests.admin.process import AdminProcess
from tests.certificates import Certificates
from tests.process import ForkedNsqd, LookupdProcess, ReservedPort
from tests.spark.http_thread import HttpThread
from tests.wire import HOST

NSQD = "give the HTTP address of an nsqd, usually with port 4151"
LOOKUPD = "give the HTTP address of an nsqlookupd, usually with port 4161"
TCP = "give the TCP address of an nsqd, usually with port 4150"

Places = dict[str, str]


class WebHandler(BaseHTTPRequestHandler):
    """Answers everything with a page, and with the status that is sent as the secret."""

    def do_GET(self) -> None:
        self.send_response(int(self.headers.get("Authorization", "Bearer 200").split()[1]))
        self.end_headers()
        self.wfile.write(b"\n<html><head><title>Sign\nin</title></head></html>")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Places]:
    """The addresses of an nsqd, its other ports, and other servers."""
    directory = tmp_path_factory.mktemp("servers")
    https, nobody = ReservedPort(), ReservedPort()
    nsqd = ForkedNsqd(directory / "nsqd", *certificates.server.flags(), f"--https-address={HOST}:{https.number}")
    lookupd = LookupdProcess(directory / "lookupd")
    admin = AdminProcess(directory / "admin", f"--lookupd-http-address={HOST}:{lookupd.http_port}")
    with ExitStack() as stack:
        for process in (nsqd, lookupd, admin):
            stack.callback(process.close)
            process.start()
        web = stack.enter_context(HttpThread(ThreadingHTTPServer((HOST, 0), WebHandler), ""))
        ports = {"HTTP": nsqd.http_port, "TCP": nsqd.tcp_port, "HTTPS": https.number, "nobody": nobody.number}
        ports |= {"nsqlookupd": lookupd.http_port, "its TCP": lookupd.tcp_port, "nsqadmin": admin.http_port}
        found = {name: f"{HOST}:{port}" for name, port in ports.items()}
        nobody.release()
        yield found | {"web": web.address, "unknown": "no-such-host.invalid:4151"}
    https.release()


def read_log(**given: str) -> None:
    LogBatchReader(LogOptions.parse({"replay": "log", "topic": "t", "retries": "0"} | given)).partitions()


def read_channel(**given: str) -> None:
    take(ChannelOptions.parse({"topic": "t", "channel": "c", "maxWaitMs": "300", "idleTimeoutMs": "300"} | given))


def publish(**given: str) -> None:
    with Publisher(SinkOptions.parse({"topic": "t", "retries": "0"} | given)) as publisher:
        publisher.submit(deferred_request("t", b"x", 0))


def ask(**given: str) -> None:
    Brokers(Connection(given)).channels()


def said(use: Callable[..., None], **given: str) -> str:
    with pytest.raises(NsqSparkError) as caught:
        use(**given)
    assert isinstance(caught.value, ReadError | PublishError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


CLOSED = "it closed the connection without an answer; if this is a TCP port, "
FOUND = [
    ("TCP", CLOSED, True),
    ("its TCP", CLOSED, True),
    ("HTTPS", "400 Client sent an HTTP request to an HTTPS server; write https:// before the address", False),
    ("nsqadmin", "nsqadmin", True),
    ("web", 'it answered with the web page "Sign in"; ', True),
    ("nobody", "connection refused: nothing listens there; start the {}, or correct the address", False),
    ("unknown", "the name of the host does not resolve; correct it", False),
]


@pytest.mark.parametrize("use", [read_log, publish, ask])
@pytest.mark.parametrize(("place", "found", "has_remedy"), [*FOUND, ("nsqlookupd", "this is an nsqlookupd; ", True)])
def test_in_place_of_an_nsqd(
    places: Places, use: Callable[..., None], place: str, found: str, has_remedy: bool
) -> None:
    text = said(use, nsqdHttpAddresses=places[place])
    assert places[place] in text
    assert found.format("nsqd") in text
    assert text.endswith(NSQD) or not has_remedy


@pytest.mark.parametrize("use", [read_log, publish, ask])
@pytest.mark.parametrize(("place", "found", "has_remedy"), [*FOUND, ("HTTP", "this is an nsqd; ", True)])
def test_in_place_of_an_nsqlookupd(
    places: Places, use: Callable[..., None], place: str, found: str, has_remedy: bool
) -> None:
    text = said(use, lookupdHttpAddresses=places[place])
    assert places[place] in text
    assert found.format("nsqlookupd") in text
    assert text.endswith(LOOKUPD) or not has_remedy


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("HTTP", f"it does not talk NSQ: unexpected HTTP response, a nsqd TCP endpoint is required; {TCP}"),
        ("HTTPS", f"it closed the connection without an answer; {TCP}"),
        ("its TCP", f"and size 14; {TCP}"),
        ("nsqadmin", "does not answer; check the address"),
        ("web", f"; {TCP}"),
        ("nobody", "connection refused: nothing listens there; start the nsqd, or correct the address"),
        ("unknown", "the name of the host does not resolve; correct it"),
    ],
)
def test_in_place_of_the_tcp_port(places: Places, place: str, found: str) -> None:
    text = said(read_channel, nsqdTcpAddresses=places[place])
    assert f"nsqd {places[place]}" in text
    assert text.endswith(found)


@pytest.mark.parametrize("use", [read_log, publish, ask])
def test_https_where_no_tls_is_spoken(places: Places, use: Callable[..., None]) -> None:
    text = said(use, nsqdHttpAddresses=f"https://{places['HTTP']}")
    assert f"https://{places['HTTP']}" in text
    assert text.endswith("TLS: wrong version number: TLS is not spoken there; write http:// in place of https://")


def test_an_unknown_authority(places: Places) -> None:
    text = said(publish, nsqdHttpAddresses=f"https://{places['HTTPS']}")
    assert text.endswith('certificate verify failed; the option "tls.caFile" names the authorities that are trusted')


@pytest.mark.parametrize("status", ["407", "502"])
def test_a_proxy_that_refuses(places: Places, status: str) -> None:
    text = said(publish, nsqdHttpAddresses=places["web"], authSecret=status)
    assert text.endswith(f'{status} with the web page "Sign in": a proxy or another server answers; {NSQD}')


def test_a_proxy_of_the_environment_is_not_used(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    text = said(read_log, nsqdHttpAddresses=places["nobody"])
    assert text.endswith("(http_proxy is set, but no proxy is used)")


def test_another_protocol() -> None:
    text = no_answer(ParseError("wrong number of parts", b"SSH-2.0-OpenSSH_9.2"), servers.NSQD)
    assert f"it does not answer in HTTP: b'SSH-2.0-OpenSSH_9.2'; {NSQD}" == text


def test_servers_by_their_answers() -> None:
    nsqd, lookupd = b'{"version": "1.3.0", "tcp_port": 4150}', b'{"version": "1.3.0"}'
    found = [server_of(info, b"<title>nsqadmin</title>") for info in (nsqd, lookupd, b"<html>", b"5", b'"version"')]
    assert found == ["nsqd", "nsqlookupd", "nsqadmin", "nsqadmin", "nsqadmin"]
    assert server_of(b"NOT_FOUND", b"<html>") is None
