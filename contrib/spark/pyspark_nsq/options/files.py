"""Files that options name. The driver, the tasks or both read them."""

from __future__ import annotations

from pathlib import Path

from pyspark_nsq.errors import OptionError


def read_file(option: str, place: str) -> tuple[Path, bytes]:
    """Return the path and the content of the file that `option` names.

    A name that is no file in this process is looked for among the files of ``spark-submit --files``. The process on the
    driver's machine that runs the source of a stream does not know their folder. Raises OptionError.
    """
    path = Path(place)
    if not path.exists():
        path = _among_sparks_files(place) or path
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise OptionError(f'option "{option}": cannot read {path}: {error.strerror}') from None


def _among_sparks_files(name: str) -> Path | None:
    """Return the path in Spark's folder with the files of ``--files``, which is another one on each machine."""
    from pyspark import SparkFiles

    try:
        folder = SparkFiles.getRootDirectory()
        path = Path(folder, name)
    except Exception:  # there is no Spark in this process
        return None
    return path if path.exists() else None
