"""Training: the network learns to complete plans of which a random part is revealed. It goes on where it stopped."""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from hulk.gnn.batches import Batch, Item, collate, grouped, reveal
from hulk.gnn.checkpoint import load_checkpoint, load_model, save_checkpoint
from hulk.gnn.labels import Example
from hulk.gnn.loss import completion_loss
from hulk.gnn.model import Proposer, Shape
from hulk.gnn.parts import part_of

CHECKPOINT, BEST, HISTORY = "checkpoint.safetensors", "best.safetensors", "history.json"
_VALIDATION = 20
_WARM_UP = 0.03
_LEAST = 0.02
_CLIP = 1.0
_AHEAD = 4


@dataclass(frozen=True)
class Settings:
    """How to train. `parts`: scenes within each scene to learn from besides; `pairs` and `most` bound a batch: pairs of
    class and job, and examples; `check_every` steps the validation is done and a checkpoint written."""

    shape: Shape = field(default_factory=Shape)
    steps: int = 20_000
    parts: int = 8
    rate: float = 1.5e-3
    decay: float = 0.03
    pairs: int = 60_000
    most: int = 64
    seed: int = 0
    check_every: int = 500


@dataclass(frozen=True)
class Point:
    """The curves at one step: mean training loss since the last point, and the validation's loss and cross-entropy."""

    step: int
    loss: float
    validation_loss: float
    validation_entropy: float
    gap: float | None = None


def split(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """For training and for validation: by seed, so that more data moves nothing from one to the other."""
    train = [example for example in examples if example.seed % _VALIDATION]
    return train, [example for example in examples if not example.seed % _VALIDATION]


def with_parts(examples: Sequence[Example], settings: Settings) -> list[Example]:
    """Examples, and after them parts of each, which depend on its seed, not on the others."""
    made = []
    for example in examples:
        rng = np.random.default_rng([settings.seed, 1, example.seed])
        made += [part_of(example, rng) for _ in range(settings.parts)]
    return [*examples, *(part for part in made if part)]


def train(
    examples: Sequence[Example],
    folder: Path,
    settings: Settings,
    *,
    device: torch.device,
    progress: Callable[[int, float], None] | None = None,
    judged: Callable[[Proposer], float] | None = None,
) -> tuple[Proposer, list[Point]]:
    """Train, or go on from the folder's checkpoint; the answer is the network that did best in validation. `progress`
    hears step and loss; `judged` prices proposals at every check, where given. The folder gets checkpoints and
    curves."""
    folder.mkdir(parents=True, exist_ok=True)
    to_learn, held_out = split(examples)
    learning = [Item.of(example) for example in with_parts(to_learn, settings)]
    held_back = [Item.of(example) for example in held_out]
    torch.manual_seed(settings.seed)
    model = Proposer(settings.shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=settings.decay)
    done, history = 0, []
    if (folder / CHECKPOINT).exists():
        done = load_checkpoint(folder / CHECKPOINT, model, optimizer, settings.shape, device)
        history = [point for point in load_history(folder) if point.step <= done]
    losses: list[float] = []
    rates = _rates(optimizer, settings, done)
    for step, batch in _ahead(learning, range(done, settings.steps), settings):
        loss = _step(model, optimizer, batch, settings.seed * 1_000_003 + step, device)
        rates.step()
        losses.append(loss)
        if progress:
            progress(step + 1, loss)
        if (step + 1) % settings.check_every == 0 or step + 1 == settings.steps:
            checked = validate(model, held_back, settings, device)
            gap = judged(model.eval()) if judged else None
            if not any(point.validation_loss <= checked[0] for point in history):
                save_checkpoint(folder / BEST, model, None, settings.shape, step + 1)
            history.append(Point(step + 1, float(np.mean(losses)), *checked, gap))
            losses = []
            save_checkpoint(folder / CHECKPOINT, model, optimizer, settings.shape, step + 1)
            (folder / HISTORY).write_text(json.dumps([asdict(p) for p in history], indent=1) + "\n", encoding="utf-8")
    best, _ = load_model(folder / BEST, device)
    return best, history


def _rates(optimizer: torch.optim.Optimizer, settings: Settings, done: int) -> LRScheduler:
    """The learning rate of each step: up in a line, down along a cosine; `done` steps are behind it."""
    warm = max(1, int(_WARM_UP * settings.steps))
    up = LinearLR(optimizer, start_factor=1 / warm, total_iters=max(1, warm - 1))
    down = CosineAnnealingLR(optimizer, max(1, settings.steps - warm), eta_min=_LEAST * settings.rate)
    rates = SequentialLR(optimizer, [up, down], milestones=[warm])
    with warnings.catch_warnings():
        # torch misses the optimizer's steps between these: an earlier run has made them.
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(done):
            rates.step()
    return rates


def validate(model: Proposer, items: Sequence[Item], settings: Settings, device: torch.device) -> tuple[float, float]:
    """Loss and cross-entropy on the best plans of examples held out, the same parts revealed every time."""
    if not items:
        return float("nan"), float("nan")
    rng = np.random.default_rng(0)
    draw = torch.Generator(device=device).manual_seed(0)
    found, weights = [], []
    model.eval()
    with torch.no_grad():
        for items_of in grouped(items, rng, pairs=settings.pairs, most=settings.most):
            batch = collate(items_of, None).to(device)
            loss, entropy = completion_loss(model, batch, reveal(batch.target, draw))
            found.append((float(loss), float(entropy)))
            weights.append(len(items_of))
    mean = np.average(np.array(found), axis=0, weights=weights)
    return float(mean[0]), float(mean[1])


def load_history(folder: Path) -> list[Point]:
    """The curves so far."""
    path = folder / HISTORY
    return [Point(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def draw_curves(history: Sequence[Point], path: Path) -> None:
    """Loss, cross-entropy and, where proposals were priced, their gap over steps, as a picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    steps = [point.step for point in history]
    known = [(p.step, p.gap) for p in history if p.gap is not None]
    panels = 3 if known else 2
    figure, axes = plt.subplots(1, panels, figsize=(4 * panels, 3.2), layout="constrained")
    axes[0].plot(steps, [p.loss for p in history], label="training")
    axes[0].plot(steps, [p.validation_loss for p in history], label="validation")
    axes[0].set(title="loss", xlabel="step")
    axes[0].legend()
    axes[1].plot(steps, [p.validation_entropy for p in history])
    axes[1].set(title="validation cross-entropy, nats", xlabel="step")
    if known:
        axes[2].plot([step for step, _ in known], [100 * gap for _, gap in known])
        axes[2].set(title="median gap of proposals, %", xlabel="step")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _step(model: Proposer, optimizer: torch.optim.Optimizer, batch: Batch, seed: int, device: torch.device) -> float:
    model.train()
    batch = batch.to(device)
    torch.manual_seed(seed)  # dropout, too, is a function of the step
    draw = torch.Generator(device=device).manual_seed(seed)
    loss, _ = completion_loss(model, batch, reveal(batch.target, draw))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
    optimizer.step()
    return float(loss.detach())


def _ahead(items: Sequence[Item], steps: range, settings: Settings) -> Iterator[tuple[int, Batch]]:
    """The batches of these steps in order, a few of them made ahead while the device works."""
    with ThreadPoolExecutor(_AHEAD) as pool:
        coming: deque[Future[Batch]] = deque()
        for step in steps:
            while len(coming) < 2 * _AHEAD and step + len(coming) < steps.stop:
                coming.append(pool.submit(_batch, items, step + len(coming), settings))
            yield step, coming.popleft().result()


def _batch(items: Sequence[Item], step: int, settings: Settings) -> Batch:
    """The batch of a step: a function of the seed and the step, so that a stopped run goes on as if it had not been.
    A few examples of about one size, around one drawn at random."""
    rng = np.random.default_rng([settings.seed, step])
    pool = [items[i] for i in rng.choice(len(items), min(len(items), 4 * settings.most), replace=False)]
    groups = grouped(pool, rng, pairs=settings.pairs, most=settings.most)
    # A group is drawn by its size, so that every example is seen about equally often.
    sizes = np.array([len(group) for group in groups], float)
    return collate(groups[int(rng.choice(len(groups), p=sizes / sizes.sum()))], rng)
