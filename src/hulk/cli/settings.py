"""`--set`: what if something of the cluster were different."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hulk.domain.cluster import Cluster

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="what if: 'link rome-paris bandwidth=10 Gbit/s', 'machine rome-1 gpus=4', 'region rome egress=0.05 $/GB'; "
        "may be given several times",
    ),
]


def with_settings(cluster: Cluster, settings: Sequence[str] | None, *, quiet: bool) -> Cluster:
    """The cluster with what is set of it. Prints a line for each unless it is to be quiet."""
    if not settings:
        return cluster
    from hulk.cli.screen import console
    from hulk.io.settings import apply_settings

    changed, said = apply_settings(cluster, settings)
    for words in () if quiet else said:
        console().print(f"set: {words}", soft_wrap=True)
    return changed


def set_json(settings: Sequence[str] | None) -> dict[str, object]:
    """What was set, for programs: nothing where nothing was."""
    return {"set": list(settings)} if settings else {}
