"""The notebook of the documentation, executed: ten lines from arrays to a table and LaTeX."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "measure.ipynb"


def test_the_notebook_shows_a_table_and_latex(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)  # it is kept without
    assert sum(bool(line) and "import" not in line for cell in code for line in cell.source.splitlines()) <= 10
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, (table,), (latex,) = (cell.outputs for cell in code)
    assert "<table>" in table.data["text/html"] and "A gap lies between the modalities" in table.data["text/html"]
    assert table.data["text/plain"].startswith("Image and text rows sit in cones")
    assert "\\begin{tabular}{ll" in latex.text and latex.text.lower().count("modality gap &") == 2
