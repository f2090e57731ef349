"""Settings of policies: read, shown and read back, resolved; and that one field is all a new one needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tomllib import loads
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.errors import InvalidPolicy
from nsqtw.options import settings as policy_settings
from nsqtw.options.refusals import Refused, check_together
from nsqtw.options.resolution import NO_CHANNEL_POLICY, PolicyTable, resolve
from nsqtw.options.settings import (
    DROP_OLDEST,
    ChannelPolicy,
    Setting,
    TopicPolicy,
    changed_settings,
    read_policy,
    settings_of,
)
from nsqtw.options.types import BOOLEAN, DURATION, NUMBER

EVERY = [*settings_of(TopicPolicy).values(), *settings_of(ChannelPolicy).values()]


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    """Values that a setting can have."""
    if setting.kind.words:
        return st.sampled_from(setting.kind.words)
    if setting.kind is BOOLEAN:
        return st.booleans()
    if setting.kind is DURATION:
        # Files and documents have whole nanoseconds.
        return st.integers(0, int(setting.high or 0)).map(float) | st.sampled_from([0.25, 1.5, 0.000000001])
    if setting.kind is NUMBER:
        return st.floats(setting.low, setting.high)
    if setting.low is None:
        return st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=20)
    return st.integers(int(setting.low), int(setting.high or 0))


@pytest.mark.parametrize("setting", EVERY, ids=lambda setting: setting.name)
@settings(max_examples=30)
@given(data=st.data())
def test_every_form_of_a_value_is_read_back(setting: Setting, data: st.DataObject) -> None:
    value = data.draw(values_of(setting))
    assert setting.read(json.loads(json.dumps(setting.json(value)))) == value
    assert setting.read(loads(f"x = {setting.toml(value)}")["x"]) == value
    assert setting.read(setting.text(value)) == value
    assert type(setting.read(setting.json(value))) is type(setting.default)


@pytest.mark.parametrize("setting", EVERY, ids=lambda setting: setting.name)
def test_every_default_is_nsq_and_every_setting_is_described(setting: Setting) -> None:
    assert setting.read(setting.json(setting.default)) == setting.default
    assert setting.schema()["default"] == setting.json(setting.default)
    assert setting.help in setting.schema()["description"]
    assert "\n" not in setting.help and len(setting.help) > 10


@pytest.mark.parametrize("setting", EVERY, ids=lambda setting: setting.name)
@settings(max_examples=40)
@given(raw=st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.lists(st.integers()), st.booleans()))
def test_no_value_fails_in_another_way(setting: Setting, raw: object) -> None:
    try:
        value = setting.read(raw)
    except InvalidPolicy as error:
        assert str(error).startswith(f"{setting.name} must be ") and "\n" not in str(error)
    else:
        assert setting.read(setting.json(value)) == value


def test_names_of_topics_and_channels_are_not_the_same() -> None:
    """`nsqtw policy unset` tells a channel from a setting by that."""
    assert not settings_of(TopicPolicy).keys() & settings_of(ChannelPolicy).keys()


def test_the_last_source_that_has_a_setting_wins() -> None:
    tables = [
        PolicyTable("one", {"max_depth": 1, "max_bytes": 1}),
        PolicyTable("two", {"max_bytes": 2, "max_age": 2.0}),
    ]
    found = resolve(ChannelPolicy, tables, {"max_age": 3.0})
    assert changed_settings(found.policy) == {"max_depth": 1, "max_bytes": 2, "max_age": "3s"}
    assert found.sources == {"max_depth": "one", "max_bytes": "two", "max_age": "set"}
    assert resolve(ChannelPolicy, [], {}).policy is NO_CHANNEL_POLICY


def test_a_table_that_contradicts_one_before_it_is_left_out_as_a_whole() -> None:
    tables = [
        PolicyTable("one", {"priority": True}),
        PolicyTable("two", {"ordered_by": "header:k", "max_depth": 2}),
        PolicyTable("three", {"max_rate": 3.0}),
    ]
    found = resolve(ChannelPolicy, tables, {})
    assert changed_settings(found.policy) == {"priority": True, "max_rate": 3.0}
    assert [line.partition(":")[0] for line in found.unused] == ["two is not used, because it contradicts one"]
    with pytest.raises(InvalidPolicy, match="priority and ordered_by"):
        resolve(ChannelPolicy, tables, {"ordered_by": "header:k"})
    assert resolve(ChannelPolicy, tables, {"ordered_by": "header:k", "priority": False}).policy.ordered_by == "header:k"


def test_only_the_table_is_named_that_contradicts_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [
        PolicyTable("one", {"max_depth": 1}),
        PolicyTable("two", {"priority": True}),
        PolicyTable("three", {"max_rate": 3.0}),
    ]
    with pytest.raises(InvalidPolicy, match=r"\(with the settings of two\)$"):
        resolve(ChannelPolicy, tables, {"ordered_by": "header:k"})

    def of_three(policy: ChannelPolicy, topic: str, channel: str) -> str | None:
        return "no" if policy.priority and policy.max_depth and policy.overflow == DROP_OLDEST else None

    monkeypatch.setattr("nsqtw.options.refusals.REFUSED", [Refused(("overflow",), "", of_three)])
    with pytest.raises(InvalidPolicy, match=r"^no \(with the settings of one, two, three\)$"):
        resolve(ChannelPolicy, tables, {"overflow": "drop_oldest"})


def test_a_requeue_delay_is_not_longer_than_the_longest_one() -> None:
    check_together(ChannelPolicy, {"requeue_delay": 900.0})
    with pytest.raises(InvalidPolicy, match=r"^requeue_delay 1s is longer than max_requeue_delay 500ms$"):
        check_together(ChannelPolicy, {"requeue_delay": 1.0, "max_requeue_delay": 0.5})


@given(
    st.lists(st.dictionaries(st.sampled_from(["priority", "ordered_by", "max_depth"]), st.integers(0, 1)), max_size=4),
    st.dictionaries(st.sampled_from(["priority", "ordered_by"]), st.integers(0, 1)),
)
def test_no_tables_make_a_policy_that_contradicts_itself(tables: list[dict[str, int]], given: dict[str, int]) -> None:
    def meant(values: dict[str, int]) -> dict[str, Any]:
        words: dict[str, Any] = {"priority": [False, True], "ordered_by": ["", "header:k"], "max_depth": [0, 5]}
        return {name: words[name][value] for name, value in values.items()}

    try:
        found = resolve(
            ChannelPolicy, [PolicyTable(str(n), meant(values)) for n, values in enumerate(tables)], meant(given)
        )
    except InvalidPolicy:
        assert given, "tables alone are never refused"
    else:
        check_together(ChannelPolicy, {name: getattr(found.policy, name) for name in settings_of(ChannelPolicy)})
        assert found.policy == ChannelPolicy(**{**_used(tables, meant, found.sources), **meant(given)})


def _used(tables: list[dict[str, int]], meant: Any, sources: Any) -> dict[str, Any]:
    """The values of the tables that the sources name."""
    return {name: meant(tables[int(where)])[name] for name, where in sources.items() if where != "set"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"dead_letter_topic": "a/b"}, "dead_letter_topic 'a/b' is not a valid name of a topic"),
        ({"ordered_by": "x\n"}, "ordered_by must be at most 1000 characters, all of them printable"),
        ({"ordered_by": "x" * 1001}, "ordered_by must be at most 1000 characters, all of them printable"),
        ({"max_rate": "fast"}, "max_rate must be a number"),
        ({"max_rate": 10**400}, "max_rate must be a number"),
        ({"max_rate": "inf"}, "max_rate must be 0 to 9007199254740992"),
        ({"dedupe_window": "1h"}, "dedupe_window is a setting of topics, not of channels"),
    ],
)
def test_mistakes(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        check_together(ChannelPolicy, read_policy(ChannelPolicy, values))
    assert str(refused.value) == said


NEW = """    shiny: float = setting(DURATION, 0.0, "how long messages shine", 0, 60)
    max_attempts: int = setting("""
PROGRAM = """
import sys, types
source = open(sys.argv[1]).read()
assert source.count(sys.argv[2]) == 1
module = types.ModuleType("nsqtw.options.settings")
module.__file__ = sys.argv[1]
import nsqtw.options
sys.modules[module.__name__] = module
nsqtw.options.settings = module
exec(compile(source.replace(sys.argv[2], sys.argv[3]), sys.argv[1], "exec"), module.__dict__)

from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.files import config_text
open("nsqd.toml", "w").write('[channel."t/c"]\\nshiny = "5s"\\n')
options = resolve(read_command_line(["--config=nsqd.toml"])).options
assert options.channel_policy_of("t", "c").shiny == 5.0
assert 'shiny = "5s"' in config_text(options, {})

from nsqtw.api.openapi import described
from nsqtw.api.site import endpoints
document = described(endpoints())
body = document["paths"]["/v2/channel/policy"]["put"]["requestBody"]["content"]["application/json"]["schema"]
assert "how long messages shine" in body["properties"]["shiny"]["description"], body

from tests.http.broker_fixture import Web
web = Web(channel_rules=options.channel_rules)
web.post("/topic/create?topic=t")
web.post("/channel/create?topic=t&channel=c")
target = "/v2/channel/policy?topic=t&channel=c"
assert web.get(target).json["settings"]["shiny"] == {"value": "5s", "source": '[channel."t/c"]'}
assert web.ask("PUT", target, b'{"shiny": "61s"}').headers["x-nsqtw-detail"] == "shiny must be 0s to 1m0s"
assert web.ask("PUT", target, b'{"shiny": "9s"}').json["set"] == {"shiny": "9s"}
web.crash()
(topic,) = web.get("/stats?format=json").json["topics"]
assert topic["channels"][0]["policy"] == {"shiny": "9s"}

from nsqtw.cli.actions import _setting
assert _setting(module.ChannelPolicy, "shiny").read("3s") == 3.0

from tests.test_policies_page import rows_of
assert any(row[0] == "`shiny`" for row in rows_of(module.ChannelPolicy))
print("everywhere")
"""


@pytest.mark.process
def test_a_new_setting_is_one_field_and_is_everywhere(tmp_path: Path) -> None:
    """Config file, --print-config, API and its description, what is saved, /stats, command line, documentation."""
    root = Path(__file__).parent.parent.parent
    source = root / "nsqtw/options/settings.py"
    assert policy_settings.__file__ is not None
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(source), "    max_attempts: int = setting(", NEW],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("everywhere\n", 0), done.stderr
