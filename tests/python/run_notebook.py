"""Runs the code cells of a notebook in order, in one namespace: run_notebook.py NOTEBOOK."""

import json
import pathlib
import sys

cells = json.loads(pathlib.Path(sys.argv[1]).read_text())["cells"]
scope = {"__name__": "__main__"}
for number, cell in enumerate(cells):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
