"""The built files of the page are those of its sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
WEB = ROOT / "web"
BUILT = ROOT / "src" / "hulk" / "page_files"


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
@pytest.mark.skipif(not (WEB / "node_modules").is_dir(), reason="make web/node_modules installs what this needs")
def test_they_are_what_the_sources_make(tmp_path):
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=WEB, check=True, capture_output=True, timeout=120)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made.keys() == {path.name for path in BUILT.iterdir()}
    different = [name for name, content in made.items() if content != (BUILT / name).read_bytes()]
    assert not different, "make page"


def test_they_are_small_and_ask_nobody_for_anything():
    script = (BUILT / "page.js").read_text(encoding="utf-8")
    assert len(script.encode()) < 400_000
    assert "</script" not in script.lower()
    for name in ("page.js", "page.css", "index.html"):
        text = (BUILT / name).read_text(encoding="utf-8")
        assert "@import" not in text
        assert "cdn" not in text.lower()
