"""What docs/reference/nsqadmin.md and docs/how-to/nsqadmin.md tell people to type can be read, and the API is whole."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.admin.actions import ACTIONS
from nsqtw.admin.api import Api
from nsqtw.admin.config import Config
from nsqtw.admin.graphite import Graphite
from nsqtw.admin.health import HealthPages
from nsqtw.admin.policy_api import PolicyApi
from nsqtw.admin.viewer import Role, viewer_with
from nsqtw.auth.grants_file import read_grants
from nsqtw.auth.secret_hash import read_line
from nsqtw.options.admin import NSQADMIN, NSQADMIN_READER, check_admin
from nsqtw.options.files import ConfigFile

DOCS = Path(__file__).parent.parent / "docs"
REFERENCE = (DOCS / "reference/nsqadmin.md").read_text("utf-8")
GUIDE = (DOCS / "how-to/nsqadmin.md").read_text("utf-8")


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [text for word, text in found if word == language]


def commands() -> Iterator[list[str]]:
    """The words of each command line that runs nsqadmin."""
    for line in "".join([*blocks(REFERENCE, ""), *blocks(GUIDE, "")]).splitlines():
        if line.startswith("nsqadmin "):
            yield shlex.split(line)[1:]


def test_the_command_lines_can_be_read() -> None:
    lines = [NSQADMIN_READER.read_command_line(words) for words in commands()]
    assert len(lines) >= 6
    assert all(line.unread == () for line in lines)
    for line in lines:
        if line.config is None:
            check_admin(NSQADMIN_READER.resolve(line).options)


def test_the_config_file_can_be_read(tmp_path: Path) -> None:
    (text,) = [text for text in blocks(GUIDE, "toml") if "nsqlookupd_http_addresses" in text]
    path = tmp_path / "nsqadmin.toml"
    path.write_text(text)
    file = ConfigFile(str(path), NSQADMIN)
    assert file.mistakes() == []
    assert file.read(NSQADMIN.by_key["http_address"]) == "127.0.0.1:4171"


def test_the_config_file_names_no_file_that_a_later_section_makes() -> None:
    """The users of `--auth` come after it."""
    (text,) = [text for text in blocks(GUIDE, "toml") if "nsqlookupd_http_addresses" in text]
    assert "users.toml" not in text
    assert GUIDE.index("# users.toml") < GUIDE.index('`auth = "static:users.toml"`')


def test_the_users_have_the_roles_that_the_page_says(tmp_path: Path) -> None:
    (text,) = [text for text in blocks(GUIDE, "toml") if "[[client]]" in text]
    path = tmp_path / "users.toml"
    path.write_text(text)
    viewers = {grants.identity: viewer_with(grants) for grants in read_grants(str(path)).values()}
    ann, rita = viewers["ann"], viewers["rita"]
    assert ann is not None
    assert rita is not None
    assert (ann.role, ann.may_see_bodies) == (Role.ADMIN, True)
    assert (rita.role, rita.may(Role.PUBLISH, "orders"), rita.may_see_bodies) == (Role.READ, True, False)
    assert tomllib.loads(text)
    assert text.startswith("# users.toml\n")


def test_the_secrets_are_those_of_the_commands() -> None:
    """`curl -u NAME:SECRET` works for the users of the example."""
    (text,) = [text for text in blocks(GUIDE, "toml") if "[[client]]" in text]
    lines = {client["identity"]: client["secret"] for client in tomllib.loads(text)["client"]}
    shown = re.findall(r"curl -u (\w+):(\S+) ", GUIDE)
    assert shown == [("ann", "ann-secret"), ("rita", "rita-secret")]
    for name, secret in shown:
        recipe, expected = read_line(lines[name])
        assert recipe.hash(secret.encode()) == expected


def test_every_route_is_in_the_table() -> None:
    declared = {
        (route.method, re.sub(r"<(\w+)>", r":\1", route.path))
        for section in (Api, PolicyApi, Config, Graphite, HealthPages)
        for name in dir(section)
        for route in getattr(getattr(section, name), "nsqadmin_routes", ())
    }
    (table,) = re.findall(r"^\| request \|.*?\n\n", REFERENCE, re.MULTILINE | re.DOTALL)
    described = set()
    for line in table.strip().splitlines()[2:]:
        for method, path in re.findall(r"`(GET|POST|PUT|DELETE) ([^`?]+)", line.split("|")[1]):
            described.add((method, re.sub(r"^/config/\w+$", "/config/:opt", path)))
        if "`/api/topics/:topic/:channel`" in line:
            described.add(("DELETE", "/api/topics/:topic/:channel"))
    assert described == declared


def test_every_notification_is_named() -> None:
    (text,) = re.findall(r"^`action` is .*?\n\n", REFERENCE, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(\w+_\w+)`", text))
    assert named == {name for action in ACTIONS.values() for name in action.notifies}
    (document,) = blocks(REFERENCE, "json")
    assert json.loads(document)["action"] in named


@pytest.mark.parametrize("page", [REFERENCE, GUIDE])
def test_every_option_exists(page: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    others = {"--peer-secret-file"}
    named = set(re.findall(r"`(--[a-z-]+)", prose)) - others
    flags = {f"--{flag}" for flag in (*NSQADMIN.by_flag, *NSQADMIN_READER.other_flags)}
    assert named <= flags
