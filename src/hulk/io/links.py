"""The links of a cluster: what the files say, and an estimate for what they leave out.

What is said of two machines wins over what is said of a group, that over what is said of a region.
What a file says wins over the same in the file that it extends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, product
from statistics import median
from typing import TYPE_CHECKING

from hulk.domain.cluster import BLOCKED, Link, Machine, Origin, Region, pair
from hulk.errors import InputError, nearest
from hulk.io import estimate
from hulk.io.fields import Stated

if TYPE_CHECKING:
    from hulk.io.cluster_build import Part
    from hulk.io.cluster_file import AssumeEntry, InsideEntry, LinkEntry
    from hulk.io.yamlfile import Loc

MAX_MACHINE_LINKS = 1_000_000

Pair = tuple[str, str]
Links = dict[Pair, Link]


@dataclass(frozen=True)
class Names:
    """Everything a link may name."""

    regions: Mapping[str, Region]
    machines: Mapping[str, Machine]
    groups: Mapping[str, tuple[str, ...]]

    def end(self, name: str) -> _End:
        """What a name in `between` or `inside` means. A group that is called like a region gives way to it."""
        if name in self.regions and name in self.machines:
            hint = "rename one of them, so that it is clear which is meant"
            raise InputError(f"{name!r} is both a region and a machine", hint=hint)
        if name in self.regions:
            return _End(name, spread=2)
        if name in self.machines:
            return _End(name, (name,))
        if name in self.groups:
            return _End(name, self.groups[name], spread=1)
        known = (*self.regions, *self.machines, *self.groups)
        raise InputError(f"no region or machine {name!r}", hint=nearest(name, known))

    def members(self, end: _End) -> Sequence[str]:
        """The machines of an end."""
        return self.by_region[end.name] if end.is_region else end.machines

    @cached_property
    def by_region(self) -> dict[str, list[str]]:
        """The machines of every region."""
        result: dict[str, list[str]] = {name: [] for name in self.regions}
        for machine in self.machines.values():
            result[machine.region].append(machine.name)
        return result


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a link. `spread` is how unspecific it is: 0 a machine, 1 a group, 2 a region (no machines listed)."""

    name: str
    machines: tuple[str, ...] = ()
    spread: int = 0

    @property
    def is_region(self) -> bool:
        return self.spread == 2


@dataclass(frozen=True, slots=True)
class _Said:
    """A link with how unspecific its author was (0: two machines) and in which file it stands."""

    link: Link
    spread: int
    part: int


@dataclass
class _Table:
    """What the files say: of regions, and of machines by the two regions that they are in."""

    names: Names
    estimator: _Estimator
    regions: dict[Pair, _Said] = field(default_factory=dict)
    machines: dict[Pair, dict[Pair, _Said]] = field(default_factory=dict)
    size: int = 0

    def add(self, entry: LinkEntry, part: int) -> None:
        """Takes one link of a file; InputError, not yet placed, where it makes no sense."""
        if entry.inside is not None:
            end = self.names.end(entry.inside)
            if entry.trunk is not None or entry.egress is not None:
                raise InputError("trunk and egress belong to a link between two regions")
            if end.is_region:
                self.add_regions(end.name, end.name, entry, part)
            elif len(end.machines) == 1:
                raise InputError(f"{end.name!r} is one machine: a link goes between two")
            else:
                self.make_room(len(end.machines) * (len(end.machines) - 1) // 2)
                self.add_machines(combinations(end.machines, 2), entry, _Said(BLOCKED, 2, part))
            return
        assert entry.between is not None
        a, b = (self.names.end(name) for name in entry.between)
        if a == b:
            hint = None if len(a.machines) == 1 else f"for the machines in it write: inside: {a.name}"
            raise InputError(f"a link from {a.name!r} to itself", hint=hint)
        if a.is_region and b.is_region:
            self.add_regions(a.name, b.name, entry, part)
            return
        if entry.trunk is not None:
            raise InputError("a trunk is what two regions share: give it on a link between two regions")
        ends = {pair(x, y): None for x, y in self.product(a, b) if x != y}  # a group and its own region overlap
        self.add_machines(ends, entry, _Said(BLOCKED, a.spread + b.spread, part))

    def add_regions(self, a: str, b: str, entry: LinkEntry, part: int) -> None:
        """Takes a link between two regions, or inside one."""
        key = pair(a, b)
        before = self.regions.get(key)
        if before is not None and before.part == part:
            raise InputError(f"a second link between {a!r} and {b!r}" if a != b else f"a second link inside {a!r}")
        self.regions[key] = _Said(self.estimator.link(a, b, entry), 2, part)
        exceptions = self.machines.get(key, {})
        for machines in [ends for ends, said in exceptions.items() if said.part < part]:
            del exceptions[machines]

    def product(self, a: _End, b: _End) -> Iterable[Pair]:
        """Every machine of one end with every machine of the other; InputError where that is too many."""
        ours, theirs = self.names.members(a), self.names.members(b)
        self.make_room(len(ours) * len(theirs))
        return product(ours, theirs)

    def make_room(self, count: int) -> None:
        """Notes that many links between machines; InputError where it is too many to hold."""
        self.size += count
        if self.size > MAX_MACHINE_LINKS:
            hint = "give links between regions, and links between machines only where they differ"
            raise InputError(f"more than {MAX_MACHINE_LINKS} links between machines", hint=hint)

    def add_machines(self, ends: Iterable[Pair], entry: LinkEntry, said: _Said) -> None:
        """Takes a link for each of these machine pairs; a more specific one that is already there stays."""
        made: dict[Pair, _Said] = {}
        for a, b in ends:
            regions = pair(self.names.machines[a].region, self.names.machines[b].region)
            if regions not in made:
                made[regions] = replace(said, link=self.estimator.link(*regions, entry))
            exceptions = self.machines.setdefault(regions, {})
            before = exceptions.get(pair(a, b))
            if before is not None and (before.part, before.spread) == (said.part, said.spread):
                raise InputError(f"a second link between {a!r} and {b!r}")
            if before is None or (before.spread, -before.part) > (said.spread, -said.part):
                exceptions[pair(a, b)] = made[regions]

    def machine_links(self) -> Links:
        """The links between machines; trunk and egress are those of the two regions unless said otherwise."""
        result: Links = {}
        for regions, exceptions in self.machines.items():
            own = self.regions.get(regions)
            made: dict[Link, Link] = {}  # a link that one entry states of many machines is one link
            for ends, said in exceptions.items():
                link = said.link
                if own is not None and not link.blocked:
                    if link not in made:
                        egress = own.link.egress if link.egress is None else link.egress
                        made[link] = replace(link, trunk=own.link.trunk, egress=egress)
                    link = made[link]
                result[ends] = link
        return result


class _Estimator:
    """Fills in what a link does not say, from what may be assumed."""

    def __init__(self, names: Names, assume: AssumeEntry) -> None:
        self.names = names
        self.assume = assume
        self.slowest = {name: estimate.bandwidth_from_latency(estimate.INSIDE_LATENCY) for name in names.regions}
        for name, members in names.by_region.items():
            if members:
                self.slowest[name] = min(names.machines[machine].card for machine in members)

    def link(self, a: str, b: str, said: LinkEntry | InsideEntry) -> Link:
        """The link between machines of two regions, or of one, of which this much is said."""
        if said.blocked:
            return BLOCKED
        latency = said.latency or self.latency(a, b)
        bandwidth = said.bandwidth or self.bandwidth(a, b, said.latency, latency.value)
        return Link(
            latency.value,
            bandwidth.value,
            latency.origin,
            bandwidth.origin,
            trunk=getattr(said, "trunk", None),
            egress=getattr(said, "egress", None),
        )

    def latency(self, a: str, b: str) -> Stated:
        """The latency that nobody stated; InputError where there is nothing to estimate it from."""
        if a == b:
            assumed = self.assume.inside.latency
            return Stated(estimate.INSIDE_LATENCY if assumed is None else assumed.value, Origin.ESTIMATED)
        metres = estimate.distance(self.names.regions[a], self.names.regions[b])
        if metres is None:
            lost = a if self.names.regions[a].latitude is None else b
            other = b if lost == a else a
            hint = f"give region {lost!r} its place (at: [latitude, longitude]), or a link with a latency to {other!r}"
            raise InputError(f"no latency is known between {a!r} and {b!r}", hint=hint)
        return Stated(estimate.latency_from_distance(metres), Origin.ESTIMATED)

    def bandwidth(self, a: str, b: str, stated: Stated | None, latency: float) -> Stated:
        """The bandwidth that nobody stated, from the latency; inside a region without one, the slowest card's."""
        if a == b and stated is None:
            assumed = self.assume.inside
            if assumed.bandwidth is not None:
                return Stated(assumed.bandwidth.value, Origin.ESTIMATED)
            if assumed.latency is None:
                return Stated(self.slowest[a], Origin.ESTIMATED)
        return Stated(estimate.bandwidth_from_latency(latency), Origin.ESTIMATED)

    def unsaid(self, a: str, b: str, measured: Sequence[Link]) -> Link:
        """The link between machines of two regions, or inside one, for all pairs of which nothing is said."""
        if measured and self.assume.unmeasured_pairs == "blocked":
            return BLOCKED
        if measured:
            return Link(
                median(link.latency for link in measured),
                median(link.bandwidth for link in measured),
                Origin.ESTIMATED,
                Origin.ESTIMATED,
            )
        if a == b:
            link = self.link(a, a, self.assume.inside)
            if link.blocked:
                return BLOCKED
            return replace(link, latency_origin=Origin.ESTIMATED, bandwidth_origin=Origin.ESTIMATED)
        if self.assume.between == "blocked":
            return BLOCKED
        latency = self.latency(a, b)
        return Link(latency.value, estimate.bandwidth_from_latency(latency.value), Origin.ESTIMATED, Origin.ESTIMATED)


def build_links(parts: Sequence[Part], names: Names) -> tuple[Links, Links]:
    """The links between all pairs of regions (and inside each), and those between machines that differ from them."""
    estimator = _Estimator(names, _assumptions(parts))
    table = _Table(names, estimator)
    for number, part in enumerate(parts):
        for loc, entry in part.links():
            try:
                table.add(entry, number)
            except InputError as error:
                raise error.at(part.document.where(_blame(loc, entry, names))) from None
    return _region_links(parts, table), table.machine_links()


def _region_links(parts: Sequence[Part], table: _Table) -> Links:
    names = table.names
    count = {name: len(members) for name, members in names.by_region.items()}
    links: Links = {}
    for a, b in combinations_with_replacement(sorted(names.regions), 2):
        said = table.regions.get((a, b))
        if said is not None:
            links[a, b] = said.link
            continue
        exceptions = table.machines.get((a, b), {})
        measured = [said.link for said in exceptions.values() if not said.link.blocked]
        try:
            links[a, b] = table.estimator.unsaid(a, b, measured)
        except InputError as error:
            if len(exceptions) < count[a] * count[b]:
                part = next(part for part in reversed(parts) if a in part.file.regions or part is parts[0])
                raise error.at(part.document.where(("regions", a))) from None
            links[a, b] = BLOCKED  # nothing is known, and no two machines need it
    return links


def _assumptions(parts: Sequence[Part]) -> AssumeEntry:
    """What the files assume together: each later file changes only what it names."""
    assume = parts[0].file.assume
    for part in parts[1:]:
        named = part.file.assume.model_fields_set
        assume = assume.model_copy(update={key: getattr(part.file.assume, key) for key in named})
    return assume


def _blame(loc: Loc, entry: LinkEntry, names: Names) -> Loc:
    """The name in the link that is wrong, or the link as a whole."""

    def wrong(name: str) -> bool:
        return name not in names.regions and name not in names.machines and name not in names.groups

    if entry.inside is not None:
        return (*loc, "inside") if wrong(entry.inside) else loc
    ends: Iterator[int] = (index for index, name in enumerate(entry.between or ()) if wrong(name))
    index = next(ends, None)
    return loc if index is None else (*loc, "between", index)
