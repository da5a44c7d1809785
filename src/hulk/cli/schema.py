"""`hulk schema`: the JSON Schema of a file format."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """The files people write."""

    CLUSTER = "cluster"
    JOBS = "jobs"
    PLAN = "plan"
    HOSTS = "hosts"
    AGENTS = "agents"


def schema(which: Annotated[Format, typer.Argument(help="cluster, jobs, plan, hosts or agents")]) -> None:
    """Print the JSON Schema of a file format, for editors and checkers."""
    from hulk.cli.screen import print_json
    from hulk.io.schema import schema as schema_of

    print_json(schema_of(which.value))
