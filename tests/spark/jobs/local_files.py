"""Files of an archive or a table in a local folder, without Spark, by the methods of `archive.files.Files`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyspark_nsq.archive.files import Files


class LocalFiles(Files):
    """As `Files`. The session is not used."""

    def __init__(self, _spark: object, root: str) -> None:
        self.root = root

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def read(self, name: str) -> str | None:
        try:
            return Path(self.path(name)).read_text("utf-8")
        except FileNotFoundError:
            return None

    def create(self, name: str, text: str) -> bool:
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            return False
        return True

    def find(self, pattern: str) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in Path(self.root).glob(pattern))

    def move(self, source: str, target: str) -> None:
        if self.exists(source):
            Path(self.path(target)).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.path(source), self.path(target))

    def delete(self, name: str) -> None:
        path = Path(self.path(name))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
