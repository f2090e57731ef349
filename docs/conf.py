"""Configuration of the documentation site, which `make docs` builds with Sphinx."""

import re
from pathlib import Path

_version = re.search(
    r'^__version__ = "(.+)"$', (Path(__file__).parents[1] / "nsqtw/__init__.py").read_text("utf-8"), re.M
)
assert _version is not None

project = "nsqtw"
version = release = _version[1]
html_title = f"nsqtw {version}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
# Every heading can be linked, by the anchors that a repository browser gives it.
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]
