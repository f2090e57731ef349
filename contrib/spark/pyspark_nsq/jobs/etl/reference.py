"""The page of the documentation with all keys of a pipeline's configuration, made from their declarations.

python -m pyspark_nsq.jobs.etl.reference > docs/reference/spark-etl.md
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from pyspark_nsq.jobs.etl.sections import SECTIONS, Section

_HEAD = """\
# Configuration of nsqtw-spark etl

This page lists all sections and keys of the TOML file of [`nsqtw-spark etl`](../how-to/spark-pipelines.md).
Relative paths start at the folder of the file.
Unknown keys are errors. `nsqtw-spark etl --check FILE` checks a file and reads no message.

<!-- Made by python -m pyspark_nsq.jobs.etl.reference from the declarations in pyspark_nsq/jobs/etl/sections.py. -->
"""


def page() -> str:
    """Return the page in Markdown."""
    return "\n".join([_HEAD, *(line for section in SECTIONS for line in _section(section))])


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}"
    yield ""
    often = " Required." if section.is_required else " May occur several times." if section.is_array else ""
    yield f"{' '.join((section.keys.__doc__ or '').split())}{often}"
    yield ""
    yield "| key | type | default | |"
    yield "|---|---|---|---|"
    for field in dataclasses.fields(section.keys):
        metadata = field.metadata
        yield f"| `{field.name}` | {metadata['kind'].type_name} | {_default(field)} | {metadata['doc']} |"
    yield ""


def _default(field: dataclasses.Field[Any]) -> str:
    shown: str = field.metadata["shown_default"]
    if shown:
        return shown
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default in (None, ()):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


if __name__ == "__main__":
    print(page(), end="")
