"""`hulk schema`: the JSON Schema of a file format."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """The files people write."""

    CLUSTER = "cluster"
    JOBS = "jobs"
    PLAN = "plan"


def schema(which: Annotated[Format, typer.Argument(help="cluster, jobs or plan")]) -> None:
    """Print the JSON Schema of a file format, for editors and checkers."""
    from hulk.io.schema import schema as schema_of

    typer.echo(json.dumps(schema_of(which.value), indent=2, ensure_ascii=False))
