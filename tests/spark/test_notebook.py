"""The example notebook runs from top to bottom, and is in the repository without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "contrib/spark/examples/notebook.ipynb"
CELL_SECONDS = 240


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    found = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(found)
    return found


def test_it_has_no_outputs(notebook: nbformat.NotebookNode) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 6
    assert [(cell.outputs, cell.execution_count) for cell in cells] == [([], None)] * len(cells)


def test_it_runs(notebook: nbformat.NotebookNode, tmp_path: Path) -> None:
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    results = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    assert results[-1] == "20000", "all that was published"
    assert any("image/png" in output.get("data", {}) for output in outputs), "the plot"
