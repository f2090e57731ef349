"""The tables of options name every option with its default: those of the Spark pages, and those of the modules."""

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.security import Security
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.options.values import Values

PAGES = Path(__file__).parents[2] / "docs/how-to"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
#: A page, the heading of its table, the class of the table, and the classes whose options are in other tables.
SECTIONS = [
    ("spark-writing", "## Options", SinkOptions, (Security,)),
    ("spark-channel", "## Options", ChannelOptions, (Values, Security)),
    ("spark-log", "## Options", LogOptions, (Values, Security)),
    ("spark-values", "## Options", Values, ()),
    ("spark", "## Secrets and TLS", Security, ()),
]
MODULES = [
    ("sink", SinkOptions, (Security,)),
    ("channel", ChannelOptions, (Values, Security)),
    ("log", LogOptions, (Values, Security)),
    ("values", Values, ()),
    ("security", Security, ()),
]
NOT_IN_TABLES = {"replay"}


def declared(cls: type[Any], without: tuple[type[Any], ...]) -> dict[str, Any]:
    """Return the defaults of the options by name, without those of some bases."""
    elsewhere = {each.name for base in without for each in dataclasses.fields(base)}
    fields = [each for each in dataclasses.fields(cls) if each.name not in elsewhere]
    return {name: each.default for each in fields if (name := each.metadata["name"]) not in NOT_IN_TABLES}


def listed(text: str) -> dict[str, str]:
    """Return the texts of the defaults by option, from the tables of a text with the columns `option` and `default`."""
    found: dict[str, str] = {}
    default_at = 0
    for line in text.splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.split("|")[1:-1]]
        if not cells:
            default_at = 0
        elif cells[0] == "option":
            default_at = cells.index("default")
        elif default_at and re.match(r"[a-z]", cells[0]):
            names, defaults = cells[0].split(", "), cells[default_at].split(", ")
            one_each = defaults if len(defaults) == len(names) else [cells[default_at]] * len(names)
            found |= dict(zip(names, one_each, strict=True))
    return found


def is_right(text: str, default: Any) -> bool:
    """Return whether the text of a table says a default. One that is computed is described by words."""
    number, _, unit = text.partition(" ")
    if number.isdigit() and (not unit or unit in UNITS):
        return default is not False and int(number) * UNITS.get(unit, 1) == default
    if default is dataclasses.MISSING:
        return text == "required"
    if default is None or default == ():
        return text not in ("true", "false")
    return text == (str(default).lower() if isinstance(default, bool) else default)


@pytest.mark.parametrize(("page", "heading", "options", "elsewhere"), SECTIONS, ids=[page for page, *_ in SECTIONS])
def test_the_page_has_every_option_with_its_default(page: str, heading: str, options: Any, elsewhere: Any) -> None:
    _, begin, rest = (PAGES / f"{page}.md").read_text("utf-8").partition(f"\n{heading}\n")
    assert begin, heading
    section = rest.partition("\n## ")[0]
    shown, expected = listed(section), declared(options, elsewhere)
    aliases = {alias for each in dataclasses.fields(options) for alias in each.metadata["aliases"]}
    assert [alias for alias in aliases if f"alias `{alias}`" not in section] == []
    assert set(shown) - {"tls.*", "authSecret..."} == set(expected)
    assert {name: shown[name] for name, default in expected.items() if not is_right(shown[name], default)} == {}


@pytest.mark.parametrize(("module", "options", "elsewhere"), MODULES, ids=[module for module, *_ in MODULES])
def test_the_docstring_has_every_option_with_its_default(module: str, options: Any, elsewhere: Any) -> None:
    text = importlib.import_module(f"pyspark_nsq.options.{module}").__doc__ or ""
    shown, expected = listed(text), declared(options, elsewhere)
    assert set(shown) == set(expected)
    assert {name: shown[name] for name, default in expected.items() if not is_right(shown[name], default)} == {}


@pytest.mark.parametrize("text", ["1001", "2", "1 KiB", "", "none", "false"])
def test_a_wrong_default_is_noticed(text: str) -> None:
    assert not is_right(text, 1000)
    assert not is_right(text, True)
    assert not is_right(text, dataclasses.MISSING)
