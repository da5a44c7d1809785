"""Pictures for notebooks: a plan on the map, a step, a comparison, as SVG that stands alone. Text is text: nothing that
a file holds becomes markup. The page draws more, and answers to the mouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10, sqrt
from pathlib import Path
from typing import Any

from hulk.errors import InputError, nearest
from hulk.io.files import write_atomic
from hulk.units import format_time
from hulk.view.document import ComparisonView, Document, JobTimelineView, TimelineRow

# Colours that people who see few can tell apart (Okabe and Ito), the page's own.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
_KINDS = {"f": "#0072b2", "b": "#e69f00", "w": "#f0e442", "u": "#009e73", "t": "#999999", "s": "#cc79a7"}
_TITLES = {"f": "forward", "b": "backward", "w": "weights", "u": "update", "t": "transfer", "s": "sync"}
_WIDTH, _HEIGHT = 960.0, 480.0
_MOST_ROWS = 40


@dataclass(frozen=True)
class Picture:
    """A picture: `svg` is its text. Notebooks draw it."""

    svg: str

    def save(self, path: str | Path) -> None:
        """Write it to a file (SVG)."""
        write_atomic(path, self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<picture, {len(self.svg):,} characters of SVG>"


def map_picture(document: Document, land: Mapping[str, Any]) -> Picture:
    """Machines as dots where they are, sized by memory and coloured by job, and what moves between regions."""
    parts = [f'<path d="{"".join(_coasts(land))}" fill="#e4e7e4" stroke="#c9cec9" stroke-width=".5"/>']
    places = {
        region["name"]: _at(region["longitude"], region["latitude"])
        for region in document["cluster"]["regions"]
        if region["latitude"] is not None and region["longitude"] is not None
    }
    moved: dict[tuple[str, str], float] = {}
    for link in document["traffic"]["links"]:
        ends = link["a"], link["b"]
        moved[ends] = moved.get(ends, 0.0) + link["messages"] + link["sums"]
    most = max(moved.values(), default=1.0)
    for (a, b), size in moved.items():
        if a != b and a in places and b in places:
            (x1, y1), (x2, y2) = places[a], places[b]
            width = 0.5 + 3.5 * sqrt(size / most)
            parts.append(
                f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#8a94a0" '
                f'stroke-width="{width:.2f}" stroke-opacity=".7"/>'
            )
    parts += _dots(document, places)
    parts += _legend([job["name"] for job in document["jobs"]], _HEIGHT - 8)
    return _svg(parts, _WIDTH, _HEIGHT, f"A map: {document['title']}")


def _dots(document: Document, places: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Machines of a region side by side."""
    inside: dict[str, list[int]] = {}
    machines = document["cluster"]["machines"]
    for index, machine in enumerate(machines):
        inside.setdefault(machine["region"], []).append(index)
    for region in document["cluster"]["regions"]:
        if region["name"] not in places:
            continue
        x, y = places[region["name"]]
        own = inside.get(region["name"], [])
        columns = max(1, round(sqrt(len(own))))
        for place, index in enumerate(own):
            machine, owner = machines[index], document["owner"][index]
            radius = 2.0 + 1.2 * log10(1 + machine["memory"] * machine["gpus"] / 1e10)
            dx, dy = (place % columns - (columns - 1) / 2) * 8, place // columns * 8
            colour = _COLOURS[owner % len(_COLOURS)] if owner >= 0 else "#bbbbbb"
            job = document["jobs"][owner]["name"] if owner >= 0 else "idle"
            title = escape(f"{machine['name']}: {machine['gpus']} × {machine['gpu']}, {job}")
            yield (
                f'<circle cx="{x + dx:.1f}" cy="{y + dy:.1f}" r="{radius:.1f}" fill="{colour}" stroke="#fff" '
                f'stroke-width=".7"><title>{title}</title></circle>'
            )
        yield f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle" font-size="9">{escape(region["label"])}</text>'


def _at(longitude: float, latitude: float) -> tuple[float, float]:
    """Degrees as a place of the picture."""
    return (longitude + 180) / 360 * _WIDTH, (80 - latitude) / 140 * _HEIGHT


def _coasts(land: Mapping[str, Any]) -> Iterator[str]:
    """The outlines of TopoJSON's land as one path."""
    (sx, sy), (tx, ty) = land["transform"]["scale"], land["transform"]["translate"]
    arcs: list[list[tuple[float, float]]] = []
    for arc in land["arcs"]:
        x = y = 0.0
        points = []
        for dx, dy in arc:
            x, y = x + dx, y + dy
            points.append(_at(x * sx + tx, y * sy + ty))
        arcs.append(points)
    for shape in _polygons(next(iter(land["objects"].values()))):
        for ring in shape:
            points = [point for number in ring for point in (arcs[number] if number >= 0 else arcs[~number][::-1])]
            last = points[0][0]
            for number, (x, y) in enumerate(points):
                # An outline that goes on at the other edge of the map is two.
                mark = "M" if number == 0 else "ZM" if abs(x - last) > _WIDTH / 2 else "L"
                yield f"{mark}{x:.1f},{y:.1f}"
                last = x
            yield "Z"


def _polygons(thing: Mapping[str, Any]) -> Iterator[Sequence[Sequence[int]]]:
    if thing["type"] == "GeometryCollection":
        for part in thing["geometries"]:
            yield from _polygons(part)
    elif thing["type"] == "Polygon":
        yield thing["arcs"]
    elif thing["type"] == "MultiPolygon":
        yield from thing["arcs"]


def timeline_picture(document: Document, job: str | None = None) -> Picture:
    """A step of one job: a row for each group of GPUs, and one for its network."""
    timeline = document["timeline"] or {}
    name = next(iter(timeline), "") if job is None else job
    if name not in timeline:
        raise InputError(f"no timeline of job {name!r}", hint=nearest(name, timeline))
    its: JobTimelineView = timeline[name]
    rows, left, height = its["rows"][:_MOST_ROWS], 150.0, 14.0
    scale = (_WIDTH - left - 10) / 1e6
    parts: list[str] = []
    for number, row in enumerate(rows):
        parts += _spans(row, left, scale, 24 + number * height, height - 3)
    foot = 24 + len(rows) * height + 14
    shown = f"{name}: {format_time(its['step'])} a step"
    if len(its["rows"]) + its["rows_left_out"] > len(rows):
        shown += f"; {len(rows)} of {len(its['rows']) + its['rows_left_out']} rows"
    parts.append(f'<text x="4" y="14" font-size="12" font-weight="bold">{escape(shown)}</text>')
    parts += _legend(list(_TITLES.values()), foot, list(_KINDS.values()))
    return _svg(parts, _WIDTH, foot + 10, f"A timeline: {shown}")


def _spans(row: TimelineRow, left: float, scale: float, y: float, height: float) -> Iterator[str]:
    what = f"{row['pipeline'] + 1}.{row['slot'] + 1} {row['machine']}" if row["lane"] == "compute" else "network"
    yield f'<text x="{left - 6:.1f}" y="{y + height - 2:.1f}" text-anchor="end" font-size="9">{escape(what)}</text>'
    by_kind: dict[str, list[str]] = {}
    for kind, begin, length in zip(row["kind"], row["at"][::2], row["at"][1::2], strict=True):
        across = max(length * scale, 0.3)
        by_kind.setdefault(kind, []).append(
            f"M{left + begin * scale:.2f},{y:.1f}h{across:.2f}v{height:.1f}h-{across:.2f}z"
        )
    for kind, paths in by_kind.items():
        yield f'<path d="{"".join(paths)}" fill="{_KINDS[kind]}"/>'


def bars_picture(comparison: ComparisonView) -> Picture:
    """Seconds of a step by job and system, computation and communication, on a logarithmic scale."""
    bars = [bar for bar in comparison["bars"] if bar["computation"] is not None]
    seconds = [value for bar in bars for value in (bar["computation"], bar["communication"]) if value]
    least, most = log10(min(seconds, default=1.0)) - 0.3, log10(max(seconds, default=1.0))
    left, height = 170.0, 9.0
    scale = (_WIDTH - left - 90) / max(most - least, 1e-9)
    parts, y = [], 20.0
    for bar in bars:
        label = escape(f"{bar['job']}, {bar['system']}")
        parts.append(f'<text x="{left - 6}" y="{y + height + 3:.1f}" text-anchor="end" font-size="10">{label}</text>')
        for part, colour in (("computation", _COLOURS[0]), ("communication", _COLOURS[1])):
            value = float(bar[part] or 0.0)  # type: ignore[literal-required]
            if value > 0:
                across = (log10(value) - least) * scale
                parts.append(f'<rect x="{left}" y="{y:.1f}" width="{across:.1f}" height="{height}" fill="{colour}"/>')
                words = escape(format_time(value))
                parts.append(f'<text x="{left + across + 4:.1f}" y="{y + 8:.1f}" font-size="9">{words}</text>')
            y += height
        y += 6
    parts += _legend(["computation", "communication"], y + 12)
    return _svg(parts, _WIDTH, y + 20, "Computation and communication by job and system")


def _legend(names: Sequence[str], y: float, colours: Sequence[str] = _COLOURS) -> Iterator[str]:
    x = 8.0
    for number, name in enumerate(names):
        yield f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" fill="{colours[number % len(colours)]}"/>'
        yield f'<text x="{x + 14:.1f}" y="{y:.1f}" font-size="11">{escape(name)}</text>'
        x += 30 + 6.5 * len(name)


def _svg(parts: Sequence[str], width: float, height: float, title: str) -> Picture:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'font-family="sans-serif" fill="#222" style="background:#fff;max-width:{width:.0f}px">'
    )
    return Picture(f"{head}<title>{escape(title)}</title>{''.join(parts)}</svg>")
