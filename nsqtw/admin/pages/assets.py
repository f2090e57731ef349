"""
Static files of the pages: scripts, styles, icons.

A file's URL has the hash of its content (`static/<hash>/<path>`), so browsers keep it for a year and a new release is
loaded at once. All files are read at the start; together they are less than 150 KB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import attrs

HASH_DIGITS = 12
CACHE_CONTROL = b"public, max-age=31536000, immutable"
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


@attrs.frozen
class Asset:
    """A static file."""

    path: str
    digest: str
    content_type: bytes
    content: bytes = attrs.field(repr=False)


class Assets:
    """All static files, by path."""

    def __init__(self) -> None:
        folder = files("nsqtw.admin.pages") / "static"
        self._assets: Mapping[str, Asset] = {asset.path: asset for asset in _assets_in(folder, "")}
        # Modules import each other by relative URLs, so all files share one hash.
        total = sha256("".join(f"{asset.path}={asset.digest}\n" for asset in self._assets.values()).encode())
        self.digest = total.hexdigest()[:HASH_DIGITS]

    def url(self, path: str) -> str:
        """Return the URL of a file, relative to the base path. KeyError."""
        return f"static/{self.digest}/{self._assets[path].path}"

    def find(self, digest: str, path: str) -> Asset | None:
        """Return the file of a URL; None if there is none, or if it belongs to another release."""
        return self._assets.get(path) if digest == self.digest else None


def _assets_in(folder: Traversable, prefix: str) -> Iterator[Asset]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _assets_in(entry, f"{path}/")
            continue
        content_type = next((kind for suffix, kind in _TYPES.items() if path.endswith(suffix)), None)
        if content_type is not None:  # the others are licences
            content = entry.read_bytes()
            yield Asset(path, sha256(content).hexdigest(), content_type, content)
