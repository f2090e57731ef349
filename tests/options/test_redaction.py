"""What is shown of options in which there may be a password."""

from __future__ import annotations

import pytest

from nsqtw.options.broker import config_value
from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.files import config_text
from nsqtw.options.redaction import shown_words, without_argument, without_password


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("auth:4181", "auth:4181"),
        ("http://auth/path", "http://auth/path"),
        ("http://u:p@auth:1/path?k=v#f", "http://***@auth:1/path?***"),
        ("https://u@auth?k", "https://***@auth?***"),
        ("u:p@auth:4181", "***@auth:4181"),
        ("http://u:p@q@auth/a", "http://***@auth/a"),
        ("http://u:p?q/@auth", "http://***@auth"),
        ("http://u://p@auth", "http://***@auth"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_user_password_and_query(address: str, shown: str) -> None:
    assert without_password(address) == shown


@pytest.mark.parametrize(
    ("auth", "shown"),
    [
        ("", ""),
        ("static:/etc/grants.toml", "static:/etc/grants.toml"),
        ("allow_all", "allow_all"),
        ("http", "http"),
        ("http:a:1,http://u:p@b/c?d", "http:a:1,http://***@b/c?***"),
        ("vault:token", "vault:***"),
        ("vault", "vault"),
    ],
)
def test_of_an_authorizer_only_what_is_known_to_be_harmless(auth: str, shown: str) -> None:
    assert without_argument(auth) == shown


def test_a_command_line_is_shown_so() -> None:
    words = "nsqd --auth=vault:t -auth vault:t --auth-http-address u:p@a --tls-cert --auth-x=1"
    shown = "nsqd --auth=vault:*** -auth vault:*** --auth-http-address ***@a --tls-cert --auth-x=1"
    assert list(shown_words(words.split())) == shown.split()


def test_no_page_of_options_shows_a_password() -> None:
    line = read_command_line(["--auth=http:http://u:hunter@a/b", "--auth-http-address=u:hunter@c:1"])
    found = resolve(line)
    assert config_value(found.options, "auth") == "http:http://***@a/b"
    assert config_value(found.options, "auth_http_addresses") == ["***@c:1"]
    text = config_text(found.options, found.sources)
    assert 'auth = "http:http://***@a/b"  # flag, without what may be a password\n' in text
    assert "hunter" not in text
