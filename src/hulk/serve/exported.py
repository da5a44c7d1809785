"""Launch files as one archive."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from hulk.domain.gpu import Precision
from hulk.errors import InputError
from hulk.export import TARGETS
from hulk.export.whole import Launch, export_jobs
from hulk.io.hosts_file import HostList
from hulk.runtime.choice import choose_jobs
from hulk.runtime.settings import Settings
from hulk.serve.messages import Recipe, Source
from hulk.view.build import Shown

DATA = Path("/data")
"""Where launch files of the page look for text to train on: nobody has said where it is."""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same plan gives the same archive


def export_zip(recipe: Recipe, shown: Shown, to: str) -> bytes:
    """What starts a plan's jobs on a target, as `hulk export` writes it, zipped."""
    target = TARGETS.get(to)
    chosen = choose_jobs(shown.plan, shown.jobs, None)
    if not chosen:
        raise InputError("no job of this plan trains, so there is nothing to export")
    # Workers have no loss scaling, which fp16 needs: jobs that name it train in the other format of that size.
    half = any(job.precision is Precision.FP16 for job in chosen)
    settings = Settings(data=DATA, precision="bf16" if half else None)
    with TemporaryDirectory() as folder:
        files = (_file(recipe.cluster, folder, "cluster"), _file(recipe.jobs, folder, "jobs"))
        made = export_jobs(target, shown.plan, shown.cluster, chosen, Launch(files, HostList(), settings))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name, file in made.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = (0o100000 | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, file.text)
    return archive.getvalue()


def _file(source: Source, folder: str, kind: str) -> str:
    """A bundled name, or a file with the text, which exporters read again."""
    if source.name is not None:
        return source.name
    text = source.text or ""
    path = Path(folder) / f"{kind}.{'json' if text.lstrip()[:1] in ('{', '[') else 'yaml'}"
    path.write_text(text, encoding="utf-8")
    return str(path)
