"""The document that the page shows: one JSON value with all that is drawn and said of a plan.

The page computes no time, no size and no price: it draws what stands here. Everything is SI (seconds, bytes, bytes/s,
dollars, dollars a second), and words are those of the terminal. `hulk.view.build` makes it. A number that is not known,
or that JSON has no word for, is null.
"""

from __future__ import annotations

from typing import (
    Any,
    Literal,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from typing_extensions import TypedDict

FORMAT = "view/1"
"""The format and its version."""


class RegionView(TypedDict):
    """A place. Degrees; `egress` in dollars a byte; `label` is the name for people."""

    name: str
    label: str
    latitude: float | None
    longitude: float | None
    egress: float


class MachineView(TypedDict):
    """A machine. `memory` is bytes of one GPU, `network` bytes/s of all its cards, `price` dollars a second."""

    name: str
    region: str
    gpu: str
    gpus: int
    memory: float
    network: float
    price: float


class LinkView(TypedDict):
    """What connects two regions, or, a = b, the machines of one: seconds one way, bytes/s of one flow, and bytes/s that
    all flows share (null: no limit is known). `origin` is that of the latency. Blocked: latency null, bandwidth 0."""

    a: str
    b: str
    latency: float | None
    bandwidth: float
    origin: Literal["measured", "estimated", "blocked"]
    bandwidth_origin: Literal["measured", "estimated", "blocked"]
    trunk: float | None


class ClusterView(TypedDict):
    """The machines and where they are. `links_left_out`: pairs of regions beyond those that are listed."""

    name: str
    about: str
    regions: list[RegionView]
    machines: list[MachineView]
    links: list[LinkView]
    links_left_out: int


class JobView(TypedDict):
    """What is trained. `deadline` in seconds; `place`: rules for layers, in words."""

    name: str
    model: str
    parameters: float
    layers: int
    sequence: int
    global_batch: int
    precision: str
    optimizer: str
    tokens: float | None
    deadline: float | None
    weight: float
    allow: list[str] | None
    deny: list[str]
    place: list[str]


class PartView(TypedDict):
    """GPUs of a machine."""

    machine: str
    gpus: list[int]


class StageView(TypedDict):
    """Layers `first` to `last` on GPUs of a machine, and of those `beside` it where it is on several. `slot`: which
    group of GPUs of its pipeline (stages of interleaved pipelines share one). What only a price knows is null where the
    job cannot run: seconds of one microbatch, the share of the step it is at work, bytes of one GPU."""

    machine: str
    region: str
    gpu: str
    gpus: list[int]
    first: int
    last: int
    slot: int
    forward: float | None
    backward: float | None
    send: float | None
    busy: float | None
    memory_used: float | None
    memory: float
    memory_parts: dict[str, float] | None
    beside: NotRequired[list[PartView]]


class PipelineView(TypedDict):
    """One replica. `like`: the first pipeline (by number) with the same layers on the same GPUs of the same regions."""

    microbatches: int
    like: int
    stages: list[StageView]


class CutView(TypedDict):
    """How one job is cut; `options` in words."""

    options: str
    pipelines: list[PipelineView]


class LinkTraffic(TypedDict):
    """What a job sends over the link of two regions (a = b: inside one) in a step: bytes of activations and their
    gradients, and of sums over replicas. `cost` is the share of its step in which the busiest connection over the link
    is at work: the messages of one pipeline between two machines one way, or sums (null: the job cannot run)."""

    job: str
    a: str
    b: str
    messages: float
    sums: float
    cost: float | None


class PairTraffic(TypedDict):
    """The same between two machines, both directions and both kinds together, columns side by side: numbers of machines
    and jobs in their lists. The heaviest only: `left_out` pairs are not here."""

    a: list[int]
    b: list[int]
    job: list[int]
    bytes: list[float]
    left_out: int


class TrafficView(TypedDict):
    """What moves in a step."""

    links: list[LinkTraffic]
    pairs: PairTraffic


class TimelineRow(TypedDict):
    """What one group of GPUs, or its network, does in a step, one thing after another.

    lane  "compute" or "network"; a network row may have spans that overlap
    at    start and length of each span in turn, in `unit` of the timeline: [start0, length0, start1, length1, …]
    kind  a letter for each span: f forward, b backward, w gradients of weights, u update; t transfer, s sync
    micro the microbatch of each span, -1 where there is none, or the span stands for several or for a part of one
    """

    pipeline: int
    slot: int
    machine: str
    gpus: list[int]
    lane: Literal["compute", "network"]
    at: list[int]
    kind: str
    micro: list[int]


class JobTimelineView(TypedDict):
    """One step of a job. `unit` is seconds; where `resolution` (seconds) is more than 0, a row shows every span up to
    the first of the two times `in_full` (seconds) and from the second on, and between them one thing for each such
    piece of time, each as often as it took time. `rows_left_out`: rows that are not here, since there are too many."""

    step: float
    unit: float
    resolution: float
    in_full: list[float]
    spans: int
    rows: list[TimelineRow]
    rows_left_out: int


class BreakdownPart(TypedDict):
    """A part of a step: compute, bubble, transfer, sync or update."""

    part: str
    seconds: float
    share: float
    text: str


class JobWords(TypedDict):
    """What the terminal says of a job that runs; `would_help` is null where nobody looked."""

    headline: str
    group: list[str]
    plan: str
    cut: list[str]
    step: list[BreakdownPart]
    sharing: str | None
    memory: str
    cost: str
    deadline: str | None
    bottleneck: str
    would_help: list[str] | None


class Words(TypedDict):
    """What the terminal says of a plan: of the jobs that run, those that cannot or wait with the reason, and idle
    machines."""

    jobs: dict[str, JobWords]
    cannot_run: dict[str, str]
    waiting: dict[str, str]
    idle: str | None
    notes: list[str]


class Bar(TypedDict):
    """Seconds of a step of one job by one system, as the paper draws them; null: the job waits."""

    system: str
    job: str
    computation: float | None
    communication: float | None


class ComparisonView(TypedDict):
    """`hulk compare`: its JSON, its verdict and notes in words, and the bars."""

    comparison: dict[str, Any]
    verdict: str
    notes: list[str]
    bars: list[Bar]


class ReplanView(TypedDict):
    """`hulk replan`: its JSON, and the lines that the terminal prints."""

    replan: dict[str, Any]
    lines: list[str]


class Saved(TypedDict):
    """Where a plan stands in the history. `when` in seconds since 1970; `how`: what made it, in words."""

    id: str
    parent: str | None
    when: float
    how: str


class Document(TypedDict):
    """All that the page shows. `plan` is a plan file's JSON, `price` that of `hulk price --json`."""

    hulk: Literal["view/1"]
    version: str
    title: str
    cluster: ClusterView
    jobs: list[JobView]
    plan: dict[str, Any]
    price: dict[str, Any]
    owner: list[int]
    cut: dict[str, CutView]
    traffic: TrafficView
    words: Words
    timeline: dict[str, JobTimelineView] | None
    comparison: ComparisonView | None
    replan: ReplanView | None
    saved: Saved | None
