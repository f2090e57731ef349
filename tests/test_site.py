"""The documentation site: `make docs` builds every page, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]


def test_the_site_has_every_page(tmp_path: Path) -> None:
    built = subprocess.run([*BUILD, ROOT / "docs", tmp_path], capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(tmp_path).with_suffix("") for page in tmp_path.rglob("*.html")}


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "conf.py").write_bytes((ROOT / "docs/conf.py").read_bytes())
    (tmp_path / "nsqtw").mkdir()
    (tmp_path / "nsqtw/__init__.py").write_bytes((ROOT / "nsqtw/__init__.py").read_bytes())
    (source / "index.md").write_text("# Index\n\n[nowhere](nowhere.md)\n")
    built = subprocess.run([*BUILD, source, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert built.returncode != 0
    assert "nowhere.md" in built.stderr
