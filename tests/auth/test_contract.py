"""Our authorizers do what every authorizer must."""

from __future__ import annotations

from pathlib import Path

from nsqtw.auth.allow_all import AllowAllFactory
from nsqtw.auth.secret_hash import Recipe
from nsqtw.auth.static import StaticFactory
from nsqtw.interfaces import IAuthorizer
from nsqtw.options.broker import Options
from nsqtw.testing.authorizers import AuthorizerContract
from tests.auth.fake_agent import FakeAgent, answered, authorizer_with, rights_document


def log(level: str, text: str, /, **fields: object) -> None:
    raise AssertionError(text)


class TestAllowAll(AuthorizerContract):
    good_secret = b"any"
    wrong_secrets = ()

    def make_authorizer(self, directory: str) -> IAuthorizer:
        return AllowAllFactory.open("", Options(), log)


class TestStatic(AuthorizerContract):
    good_secret = b"good"
    allowed = ("subscribe", "orders", "mail")

    def make_authorizer(self, directory: str) -> IAuthorizer:
        path = Path(directory) / "grants.toml"
        path.write_text(
            f"""
            [[client]]
            identity = "mail"
            secret = "{Recipe("scrypt", (16, 1, 1), b"salt").line(b"good")}"
            [[client.grant]]
            topic = "^orders$"
            permissions = ["subscribe"]
            """
        )
        path.chmod(0o600)
        return StaticFactory.open(str(path), Options(), log)


class TestHttp(AuthorizerContract):
    good_secret = b"good"

    def make_authorizer(self, directory: str) -> IAuthorizer:
        good = answered(200, rights_document())
        return authorizer_with(FakeAgent(lambda request: good if b"secret=good&" in request.uri else answered(403)))
