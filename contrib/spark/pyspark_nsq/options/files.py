"""Files that options name. They are read where the work runs: by the driver, by the tasks, or by both."""

from __future__ import annotations

from pathlib import Path

from pyspark_nsq.errors import OptionError


def read_file(option: str, place: str) -> tuple[Path, bytes]:
    """Read the file that `option` names; returns its path, too.

    A name that is no file here is looked for among the files of ``spark-submit --files``. Spark does not tell where
    those are to the process on the driver's machine that runs the source of a stream. Raises OptionError.
    """
    path = Path(place)
    if not path.exists():
        path = _among_sparks_files(place) or path
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise OptionError(f'option "{option}": cannot read {path}: {error.strerror}') from None


def _among_sparks_files(name: str) -> Path | None:
    """Spark puts the files of ``--files`` into a folder of its own, another one on each machine."""
    from pyspark import SparkFiles

    try:
        folder = SparkFiles.getRootDirectory()
        path = Path(folder, name)
    except Exception:  # there is no Spark in this process
        return None
    return path if path.exists() else None
