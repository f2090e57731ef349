"""The file system of an archive, through the Hadoop client of Spark: any URI that Spark can read and write."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pyspark_nsq.archive.layout import META
from pyspark_nsq.errors import ArchiveError

T = TypeVar("T")

_ABSENT = "java.io.FileNotFoundException"
_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"
_REMEDIES = {
    "open": "; choose another folder, or give Spark what it needs for this URI",
    "write to": "; choose another folder, or change who may write to it",
}


class Files:
    """Files below the folder `root`, by their paths relative to it. Every method raises ArchiveError."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._java: Any = cast(Any, spark._jvm)
        self._gateway: Any = spark.sparkContext._gateway
        self._hadoop: Any = self._java.org.apache.hadoop.fs
        self._given = root
        context: Any = spark.sparkContext._jsc
        settings = context.hadoopConfiguration()

        def opened() -> tuple[Any, Any, str]:
            path = self._hadoop.Path(root)
            system = path.getFileSystem(settings)
            qualified = system.makeQualified(path)
            contexts = self._hadoop.FileContext.getFileContext(qualified.toUri(), settings)
            return system, contexts, qualified.toString()

        self._system, self._context, self.root = self._try("open", "", opened)

    def path(self, name: str) -> str:
        """Return the URI of a file."""
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        return bool(self._try("read", name, lambda: self._system.exists(self._at(name))))

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None when it does not exist."""

        def text() -> str:
            stream = self._system.open(self._at(name))
            try:
                charset = self._java.java.nio.charset.StandardCharsets.UTF_8
                return str(self._java.org.apache.commons.io.IOUtils.toString(stream, charset))
            finally:
                stream.close()

        return self._unless(_ABSENT, "read", name, text)

    def create(self, name: str, text: str) -> bool:
        """Create a file with a text, complete or not at all. Return False when it exists already."""
        draft = f"{name}.{uuid.uuid4().hex}.tmp"

        def write() -> None:
            stream = self._system.create(self._at(draft), True)
            try:
                stream.write(text.encode())
            finally:
                stream.close()

        def rename() -> bool:
            # Without options it does not overwrite.
            self._context.rename(self._at(draft), self._at(name), self._gateway.new_array(rename_option, 0))
            return True

        rename_option = getattr(self._hadoop, "Options$Rename")

        self._try("write", draft, write)
        if self._unless(_EXISTS, "write", name, rename):
            return True
        self.delete(draft)
        return False

    def find(self, pattern: str) -> list[str]:
        """Return the files that match a pattern of Hadoop's, relative to the root, sorted."""

        def found() -> list[str]:
            statuses = self._system.globStatus(self._at(pattern))
            if statuses is None:
                return []
            # Java joins the paths: a call for each of them would take most of the time.
            paths = self._hadoop.FileUtil.stat2Paths(statuses)
            objects = self._gateway.new_array(self._java.java.lang.Object, len(paths))
            self._java.java.lang.System.arraycopy(paths, 0, objects, 0, len(paths))
            text = self._java.org.apache.commons.lang3.StringUtils.join(objects, "\n")
            return [path.removeprefix(f"{self.root}/") for path in str(text).splitlines()]

        return sorted(self._try("read", pattern, found))

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, or None when it does not exist."""
        return self._unless(_ABSENT, "read", name, lambda: int(self._system.getFileStatus(self._at(name)).getLen()))

    def move(self, source: str, target: str) -> None:
        """Rename a file. Do nothing when the source does not exist: another process has moved it."""

        def rename() -> None:
            if not self._system.exists(self._at(source)):
                return
            self._system.mkdirs(self._at(target).getParent())
            moved = self._system.rename(self._at(source), self._at(target))
            if not moved and self._system.exists(self._at(source)):
                raise ArchiveError(f"cannot rename {self.path(source)} to {self.path(target)}")

        self._unless(_ABSENT, "write", target, rename)

    def delete(self, name: str) -> None:
        """Delete a file or a folder, if it exists."""
        self._try("delete", name, lambda: self._system.delete(self._at(name), True))

    def must_be_writable(self) -> None:
        """Raise ArchiveError when the folder cannot be written to."""
        probe = f"{META}/{uuid.uuid4().hex}.tmp"
        self._try("write to", "", lambda: self._system.create(self._at(probe), True).close())
        self.delete(probe)

    def _at(self, name: str) -> Any:
        return self._hadoop.Path(self.path(name))

    def _unless(self, java_class: str, what: str, name: str, work: Callable[[], T]) -> T | None:
        """Return None when the file system raises an exception of this class."""
        try:
            return work()
        except Py4JJavaError as error:
            if _class(error) == java_class:
                return None
            raise self._explained(what, name, error) from None

    def _try(self, what: str, name: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except Py4JJavaError as error:
            raise self._explained(what, name, error) from None

    def _explained(self, what: str, name: str, error: Py4JJavaError) -> ArchiveError:
        place = f"{self._given}/{name}" if name else self._given
        reason = error.java_exception.getMessage() or _class(error)
        return ArchiveError(f"cannot {what} {place}: {reason}{_REMEDIES.get(what, '')}")


def _class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())
