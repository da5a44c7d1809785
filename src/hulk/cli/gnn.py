"""`hulk gnn`: make the graph network anew: examples, training, a look at how good it is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

    from hulk.gnn.labels import Example
    from hulk.propose.network import Proposing

app = typer.Typer(
    name="gnn",
    help="Make the graph network that proposes deals: examples, training, evaluation. Needs: pip install 'hulk[train]'",
    no_args_is_help=True,
    rich_markup_mode=None,
)
DataArgument = Annotated[Path, typer.Argument(help="folder of examples")]
RunArgument = Annotated[Path, typer.Argument(help="folder of the training run: checkpoint, curves, network.onnx")]
WorkersOption = Annotated[int, typer.Option(min=1, max=1024, help="processes side by side")]
RayOption = Annotated[bool, typer.Option("--ray", help="over the Ray cluster this machine belongs to")]
SeedOption = Annotated[int, typer.Option(min=0, help="the same seed gives the same result")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")]
SamplesOption = Annotated[int, typer.Option(min=1, max=1024, help="proposals for each scene")]


@app.command("data")
def data(
    folder: DataArgument,
    scenes: Annotated[int, typer.Option(min=1, help="how many clusters with jobs to draw")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="seed of the first scene; the next ones follow")] = 0,
    smallest: Annotated[int, typer.Option(min=4, max=100_000, help="machines of the smallest clusters")] = 4,
    machines: Annotated[int, typer.Option(min=4, max=100_000, help="machines of the largest clusters")] = 1000,
    jobs: Annotated[int, typer.Option(min=1, max=1000, help="jobs at most")] = 20,
    searches: Annotated[int, typer.Option(min=1, help="searches for each scene; plans within 3 % are kept")] = 3,
    moves: Annotated[int, typer.Option(min=1, help="moves of each search at most")] = 200_000,
    time_limit: Annotated[float, typer.Option(min=0.1, help="seconds of each search at most")] = 8.0,
    network: Annotated[Path | None, typer.Option(help="folder of a trained network, to begin searches with")] = None,
    workers: WorkersOption = 1,
    ray: RayOption = False,
) -> None:
    """Draw clusters and jobs, and plan them with the planner's own search: what the network learns from.

    With --network, searches begin with that network's proposals: they find better plans, which train the next one. A
    run that was stopped goes on where it was.
    """
    from hulk.cli.progress import bar
    from hulk.cli.screen import console
    from hulk.gnn.generator import Scale
    from hulk.gnn.labels import Budget, make_shards

    with bar("shards", console()) as bars:
        task = bars.add_task("planning scenes", total=None)
        make_shards(
            folder,
            range(seed, seed + scenes),
            scale=Scale(smallest, machines, jobs),
            budget=Budget(searches, moves, longest=time_limit),
            workers=workers,
            use_ray=ray,
            network=network,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )


@app.command("train")
def train(
    examples: DataArgument,
    folder: RunArgument,
    steps: Annotated[int, typer.Option(min=1, help="steps of the optimizer")] = 20_000,
    rate: Annotated[float, typer.Option(min=1e-6, max=1.0, help="learning rate at its highest")] = 1.5e-3,
    hidden: Annotated[int, typer.Option(min=8, max=1024, help="width of the network")] = 64,
    rounds: Annotated[int, typer.Option(min=1, max=16, help="rounds of messages")] = 4,
    edges: Annotated[str, typer.Option(help="full, or zeroed to see what edge features are worth")] = "full",
    kind: Annotated[str, typer.Option(help="edge, or gcn for a plain graph convolution")] = "edge",
    parts: Annotated[int, typer.Option(min=0, help="scenes within each scene to learn from besides")] = 8,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="share of states to drop in training")] = 0.1,
    priced: Annotated[int, typer.Option(min=0, help="held-out scenes to price proposals for at every check")] = 16,
    check_every: Annotated[int, typer.Option(min=1, help="steps between checks")] = 500,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
) -> None:
    """Train the network on examples and export it as ONNX with its model card.

    A run that was stopped goes on from its last checkpoint.
    """
    _require_training()
    from dataclasses import asdict

    from hulk.cli.progress import bar
    from hulk.cli.screen import console
    from hulk.errors import InputError
    from hulk.gnn.export import export
    from hulk.gnn.judge import TorchNetwork, judge, scenes_of, summary
    from hulk.gnn.labels import load_examples, scale_of
    from hulk.gnn.model import EDGES, KINDS, Proposer, Shape
    from hulk.gnn.train import Settings, draw_curves, split
    from hulk.gnn.train import train as run
    from hulk.io.profiles import bundled_compute

    for given, known in ((edges, EDGES), (kind, KINDS)):
        if given not in known:
            raise InputError(f"unknown choice {given!r}", hint="known: " + ", ".join(known))
    where = _device(device)
    known_examples, scale = load_examples(examples), scale_of(examples)
    scenes = scenes_of(split(known_examples)[1][:priced], scale=scale, compute=bundled_compute())
    settings = Settings(
        shape=Shape(hidden=hidden, pair=max(8, hidden // 2), rounds=rounds, edges=edges, kind=kind, dropout=dropout),
        steps=steps, parts=parts, rate=rate, seed=seed, check_every=check_every,
    )  # fmt: skip

    def judged(model: Proposer) -> float:
        return summary(judge(TorchNetwork(model, where), scenes, samples=8))["network_median_gap"]

    with bar("steps", console()) as bars:
        task = bars.add_task("training", total=steps)
        model, history = run(
            known_examples, folder, settings, device=where, judged=judged if scenes else None,
            progress=lambda step, loss: bars.update(task, completed=step, description=f"training, loss {loss:.3f}"),
        )  # fmt: skip
    draw_curves(history, folder / "curves.png")
    best = min(history, key=lambda point: point.validation_loss, default=None)  # the one that is kept
    card = {
        "examples": len(known_examples), "scenes": f"{scale.least} to {scale.most} machines, up to {scale.jobs} jobs",
        "steps": steps, "parts": parts, "seed": seed, "shape": asdict(settings.shape),
        "validation_entropy": best.validation_entropy if best else None, "median_gap": best.gap if best else None,
    }  # fmt: skip
    path = export(model, folder, card=card)
    typer.echo(f"wrote {path}")


@app.command("eval")
def evaluate(
    examples: DataArgument,
    network: Annotated[Path | None, typer.Option(help="folder with network.onnx; the bundled one if not given")] = None,
    scenes: Annotated[int, typer.Option(min=1, help="held-out scenes to look at")] = 64,
    samples: SamplesOption = 16,
) -> None:
    """Price a network's proposals on scenes it was not trained on, beside random deals and the paper's policy."""
    _require_training()
    from hulk.gnn.labels import load_examples
    from hulk.gnn.train import split
    from hulk.propose.network import bundled_network, load_network

    loaded = load_network(network) if network else bundled_network()
    if loaded is None:
        raise typer.Exit(2)
    _show_verdicts(examples, loaded, split(load_examples(examples))[1][:scenes], samples)


def _show_verdicts(folder: Path, network: Proposing, held_out: list[Example], samples: int) -> None:
    from hulk.cli.progress import bar
    from hulk.cli.screen import console, table
    from hulk.gnn.judge import WAYS, judge, scenes_of, summary
    from hulk.gnn.labels import scale_of
    from hulk.io.profiles import bundled_compute

    with bar("scenes", console()) as bars:
        task = bars.add_task("pricing proposals", total=len(held_out))
        scenes = scenes_of(held_out, scale=scale_of(folder), compute=bundled_compute())
        verdicts = judge(
            network, scenes, samples=samples,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )  # fmt: skip
    figures = summary(verdicts)
    rows = table("deal", "median gap", "scenes with a waiting job", right=("median gap", "scenes with a waiting job"))
    for way in WAYS:
        gap = figures[f"{way}_median_gap"]
        shown = f"{100 * gap:.1f} %" if math.isfinite(gap) else "a job waits"
        rows.add_row(way, shown, f"{100 * figures[f'{way}_waiting']:.0f} %")
    console().print(rows)


def _require_training() -> None:
    """A clear word where the extra is not installed."""
    from importlib.util import find_spec

    from hulk.errors import InputError

    missing = [name for name in ("torch", "torch_geometric", "safetensors") if find_spec(name) is None]
    if missing:
        raise InputError(f"this needs {', '.join(missing)}", hint="pip install 'hulk[train]'")


def _device(name: str) -> torch.device:
    import torch

    from hulk.errors import InputError

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"no device {name!r} on this machine", hint="try auto or cpu") from None
    return device
