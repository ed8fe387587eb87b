"""The examples of docs/python.md run in their order."""

import re
import shutil

from conftest import REPOSITORY


def test_the_examples_run(colour_model, pictures, tmp_path, monkeypatch):
    shutil.copy(colour_model, tmp_path / "colours.fewshot")
    shutil.copy(pictures / "red/0.png", tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    text = (REPOSITORY / "docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert "yellow" in names["model"].classes and (tmp_path / "texts.fewshot").exists()
