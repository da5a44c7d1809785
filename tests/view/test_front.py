"""Hulk in Python: the public names, what they print and draw, and the notebook of the examples."""

from __future__ import annotations

import json
import subprocess
import sys
from xml.etree import ElementTree

import nbformat
import pytest

import hulk
import small
from hulk.view.pictures import map_picture, timeline_picture
from serving import ROOT


@pytest.fixture(scope="module")
def planned():
    return hulk.Planned(small.plan(), small.cluster(), small.jobs(), small.compute())


def test_importing_it_loads_next_to_nothing():
    code = "import hulk, sys; print('numpy' in sys.modules, 'hulk.front' in sys.modules, hulk.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", hulk.__version__]


def test_there_are_ten_names_and_all_are_documented():
    assert len(hulk.__all__) == 10
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in hulk.__all__:
        assert getattr(hulk, name) is not None
        assert f"hulk.{name}" in page
    with pytest.raises(AttributeError):
        _ = hulk.nothing


def test_a_plan_prints_what_the_page_says(planned):
    text = str(planned)
    for told in planned.words["jobs"].values():
        assert told["headline"] in text
        assert told["bottleneck"] in text
    assert "small" in repr(planned)
    assert planned.to_json()["hulk"] == "price/1"


def test_pictures_are_whole_and_text_in_them_is_text(planned):
    for picture in (planned.map(), planned.timeline(), planned.timeline("second")):
        assert ElementTree.fromstring(picture.svg).tag.endswith("svg")
    with pytest.raises(hulk.HulkError):
        planned.timeline("nobody")
    document = planned.document(timeline=True)
    document["cluster"]["regions"][0]["label"] = document["title"] = "<script>alert(1)</script>"
    document["timeline"]["bert"]["rows"][0]["machine"] = "<img src=x>"
    land = {"transform": {"scale": [1, 1], "translate": [0, 0]}, "arcs": [], "objects": {}}
    land["objects"]["land"] = {"type": "GeometryCollection", "geometries": []}
    for svg in (map_picture(document, land).svg, timeline_picture(document, "bert").svg):
        assert "<script" not in svg
        assert "<img" not in svg


def test_a_plan_is_saved_as_a_plan_file_or_as_a_report(planned, tmp_path):
    planned.save(tmp_path / "plan.json")
    again = hulk.load(tmp_path / "plan.json", small.cluster(), small.jobs())
    assert again.plan == planned.plan
    planned.save(tmp_path / "report.html")
    assert "hulk-data" in (tmp_path / "report.html").read_text(encoding="utf-8")
    planned.map().save(tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text().startswith("<svg")


def test_what_if_in_python(planned):
    slower = planned.with_settings("link rome paris bandwidth=10 Mbit/s")
    assert slower.price.jobs["bert"].step > planned.price.jobs["bert"].step
    left = planned.lose("oslo-1", seconds=1)
    assert not left.cluster.has_machine("oslo-1")
    assert left.story


def test_the_notebook_runs(tmp_path, monkeypatch):
    """Its code cells one after the other, as a kernel would run them."""
    notebook = nbformat.read(ROOT / "examples" / "hulk.ipynb", as_version=4)
    nbformat.validate(notebook)
    monkeypatch.chdir(ROOT / "examples")
    names: dict[str, object] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, "notebook", "exec"), names)
            assert cell.outputs == []  # nothing that was printed once is kept
    assert json.dumps(sorted(names.keys() & {"plan", "small", "slow", "left"})) == '["left", "plan", "slow", "small"]'
