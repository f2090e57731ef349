"""Publishing over HTTPS: who is trusted, who the client is, and the secret."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from pyspark_nsq.errors import OptionError, PublishError
from pyspark_nsq.http.causes import Cause
from pyspark_nsq.sink.publisher import Publisher

from tests.spark.fake_nsqd import FakeNsqd
from tests.spark.test_publisher import batch, options


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem; client.pem and client.key; both.pem, which holds the two; other.pem, another authority."""
    folder = tmp_path_factory.mktemp("certificates")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    client = authority.issue_cert("spark@example.org")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")
    client.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    return folder


@pytest.fixture
def https_nsqd(authority: trustme.CA) -> Iterator[FakeNsqd]:
    yield from _nsqd(authority, ssl.CERT_NONE)


@pytest.fixture
def strict_nsqd(authority: trustme.CA) -> Iterator[FakeNsqd]:
    """Wants a certificate of the client's."""
    yield from _nsqd(authority, ssl.CERT_REQUIRED)


def _nsqd(authority: trustme.CA, asks: ssl.VerifyMode, host: str = "localhost") -> Iterator[FakeNsqd]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = asks
    with FakeNsqd(context) as nsqd:
        yield nsqd


def publish(nsqd: FakeNsqd, **more: str) -> None:
    with Publisher(options(nsqd, retries="0", **more)) as publisher:
        publisher.submit(batch(b"a"))


def test_a_trusted_nsqd(https_nsqd: FakeNsqd, files: Path) -> None:
    publish(https_nsqd, **{"tls.caFile": str(files / "ca.pem")})
    assert https_nsqd.messages["t"] == [b"a"]


@pytest.mark.parametrize("trusted", [{}, {"tls.caFile": "other.pem"}])
def test_nobody_vouches_for_this_nsqd(https_nsqd: FakeNsqd, files: Path, trusted: dict[str, str]) -> None:
    given = {name: str(files / file) for name, file in trusted.items()}
    publisher = Publisher(options(https_nsqd, retries="1", **given))
    publisher.submit(batch(b"a"))
    with pytest.raises(PublishError, match="TLS: certificate verify failed"):
        publisher.flush()
    assert publisher.tally.retries == {Cause.REFUSED: 1}
    assert https_nsqd.messages == {}


def test_a_certificate_for_another_host(authority: trustme.CA, files: Path) -> None:
    for nsqd in _nsqd(authority, ssl.CERT_NONE, host="elsewhere"):
        with pytest.raises(PublishError, match="TLS: its certificate is for another host"):
            publish(nsqd, **{"tls.caFile": str(files / "ca.pem")})


def test_any_certificate_if_so_asked(https_nsqd: FakeNsqd) -> None:
    publish(https_nsqd, **{"tls.verify": "false"})
    assert https_nsqd.messages["t"] == [b"a"]


@pytest.mark.parametrize(
    "own", [{"tls.certFile": "client.pem", "tls.keyFile": "client.key"}, {"tls.certFile": "both.pem"}]
)
@pytest.mark.parametrize("trusted", [{"tls.caFile": "ca.pem"}, {}])
def test_the_clients_certificate(
    strict_nsqd: FakeNsqd, files: Path, own: dict[str, str], trusted: dict[str, str]
) -> None:
    given = {name: str(files / file) for name, file in (own | trusted).items()}
    publish(strict_nsqd, **given | ({} if trusted else {"tls.verify": "false"}))
    assert strict_nsqd.messages["t"] == [b"a"]


def test_the_secret_travels_with_each_request(nsqd: FakeNsqd, https_nsqd: FakeNsqd) -> None:
    publish(nsqd)
    assert {None} == nsqd.authorizations
    publish(https_nsqd, authSecret="s3cret", **{"tls.verify": "false"})
    assert {"Bearer s3cret"} == https_nsqd.authorizations


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tls.caFile": "nowhere.pem"}, '"tls.caFile": cannot read .*nowhere.pem: No such file'),
        ({"tls.caFile": "client.key"}, '"tls.caFile": .* no certificate in PEM form'),
        ({"tls.certFile": "client.pem"}, '"tls.keyFile": .* cannot be used'),
        ({"tls.certFile": "client.pem", "tls.keyFile": "."}, '"tls.keyFile": cannot read'),
    ],
)
def test_files_of_no_use(https_nsqd: FakeNsqd, files: Path, given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        publish(https_nsqd, **{name: str(files / file) for name, file in given.items()})
