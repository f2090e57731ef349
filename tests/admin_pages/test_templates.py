"""The templates name only what the program has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nsqtw.admin.pages
from nsqtw.admin.pages.action_forms import FORMS

FOLDER = Path(nsqtw.admin.pages.__file__).parent / "templates"
TEMPLATES = sorted(FOLDER.glob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_link_to_an_action_leads_to_a_form(path: Path) -> None:
    named = re.findall(r"links\.action\('(\w+)'", path.read_text("utf-8"))
    assert set(named) <= set(FORMS)


def test_there_are_links_to_actions() -> None:
    text = "".join(path.read_text("utf-8") for path in TEMPLATES)
    assert len(re.findall(r"links\.action\('", text)) == text.count("links.action(") > 5


def test_every_template_of_a_form_is_there() -> None:
    assert {form.template for form in FORMS.values()} <= {path.name for path in TEMPLATES}
