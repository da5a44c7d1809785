"""What if: changes to a cluster in a person's words, "link zurich-amsterdam bandwidth=10 Gbit/s".

They make another cluster of the one that was read; no file is touched. What a change does not name stays as it is, but
for what a cluster file would derive from it: memory and price of another GPU type, the price of more or fewer GPUs
where it is the type's, and flows inside a region that were estimated from its slowest network card.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Annotated, Any

from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine, Origin, pair
from hulk.errors import InputError, nearest
from hulk.io.cluster_file import MAX_GPUS, Bandwidth, Cards, Egress, FlowBandwidth, Latency, Price
from hulk.io.fields import Entry, Flag, Text, shown, validate, whole
from hulk.io.gpus import Memory
from hulk.io.own_gpus import gpu_here
from hulk.io.yamlfile import Document, Loc
from hulk.units import format_bandwidth, format_money, format_size, format_time

_MOST_TEXT = 1000
_MOST_PAIRED = 60  # regions whose pairs are looked through for a name like a mistyped one
_EXAMPLE = "write it like 'link rome-paris bandwidth=10 Gbit/s', 'machine rome-1 gpus=4' or 'region rome egress=0 $/GB'"
_FIELD = re.compile(r"(?:^|\s)([A-Za-z_]+)\s*=\s*")
_WORDS: Mapping[str, Mapping[str, bool]] = {"blocked": {"true": True, "false": False}}


class LinkSetting(Entry):
    """What may be set of a link."""

    latency: Latency | None = None
    """One way."""
    bandwidth: FlowBandwidth | None = None
    """Of one flow."""
    trunk: Bandwidth | None = None
    """What all flows between the two regions share."""
    egress: Egress | None = None
    """Price of a byte sent over it."""
    blocked: Flag = False
    """The two ends cannot talk to each other."""


class MachineSetting(Entry):
    """What may be set of a machine."""

    gpu: Text | None = None
    """The GPU type."""
    gpus: Annotated[int, whole(1, MAX_GPUS)] | None = None
    """How many GPUs."""
    memory: Memory | None = None
    """Memory of one GPU."""
    network: Cards | None = None
    """What its network cards do, per direction."""
    price: Price | None = None
    """Price of the whole machine."""


class RegionSetting(Entry):
    """What may be set of a region."""

    egress: Egress
    """Price of a byte sent out of it."""


@dataclass(frozen=True)
class _Given(Document):
    """The fields of a setting as a document; what is wrong in it has no line."""

    def line(self, loc: Loc) -> int | None:
        return None


@dataclass(frozen=True)
class _Setting:
    """A setting, taken apart: what is meant, by which names, and the fields."""

    kind: str
    names: Sequence[str]
    given: Document


def apply_settings(cluster: Cluster, texts: Iterable[str]) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster with these changes, one after the other, and what each of them changed, in words.

    InputError that names the setting for one that says nothing, names nothing, or cannot be.
    """
    said = []
    for text in texts:
        where = f"--set {shown(text)}"
        try:
            setting = _read(text, where)
            change = {"link": _set_link, "machine": _set_machines, "region": _set_region}[setting.kind]
            cluster, words = change(cluster, setting)
        except InputError as error:
            raise error if error.where else error.at(where) from None
        said.append(words)
    return cluster, tuple(said)


def _read(text: str, where: str) -> _Setting:
    if len(text) > _MOST_TEXT:
        raise InputError(f"longer than {_MOST_TEXT} characters", hint=_EXAMPLE)
    found = list(_FIELD.finditer(text))
    kind, *names = text[: found[0].start() if found else None].split() or [""]
    kinds = ("link", "machine", "region")
    if kind not in kinds:
        raise InputError(
            f"{shown(kind)} is no link, machine or region", hint=nearest(kind, kinds) if kind else _EXAMPLE
        )
    if not found or not names:
        raise InputError("a name and a value are needed", hint=_EXAMPLE)
    ends = [each.start() for each in found[1:]] + [len(text)]
    fields: dict[str, Any] = {}
    for each, end in zip(found, ends, strict=True):
        if each[1] in fields:
            raise InputError(f"{each[1]} is given twice")
        fields[each[1]] = _plain(each[1], text[each.end() : end].strip())
    return _Setting(kind, names, _Given(where, fields, ""))


def _plain(key: str, text: str) -> object:
    """A value as a file would have it: a count is a number there, and a yes or no is one."""
    if key == "gpus" and re.fullmatch(r"-?[0-9]{1,50}", text):
        return int(text)
    return _WORDS.get(key, {}).get(text, text)


# ---- Regions and links ----------------------------------------------------------------------------------------------


def _set_region(cluster: Cluster, setting: _Setting) -> tuple[Cluster, str]:
    if len(setting.names) != 1:
        raise InputError("one region can be named", hint=_EXAMPLE)
    region = cluster.region(setting.names[0])
    wanted = validate(setting.given, RegionSetting)
    changed = tuple(replace(each, egress=wanted.egress) if each is region else each for each in cluster.regions)
    words = f"region {region.name}: egress {_per_gb(region.egress)} → {_per_gb(wanted.egress)}"
    return replace(cluster, regions=changed), words


def _set_link(cluster: Cluster, setting: _Setting) -> tuple[Cluster, str]:
    a, b, are_regions = _ends(cluster, setting.names)
    wanted = validate(setting.given, LinkSetting)
    return _set_regions(cluster, a, b, wanted) if are_regions else _set_pair(cluster, a, b, wanted)


def _set_regions(cluster: Cluster, a: str, b: str, wanted: LinkSetting) -> tuple[Cluster, str]:
    """The link between two regions, or inside one, and those of their machines that have one of their own."""
    ends = f"between {a} and {b}" if a != b else f"inside {a}"
    if a == b and (wanted.trunk is not None or wanted.egress is not None):
        raise InputError("trunk and egress belong to a link between two regions")
    key = pair(a, b)
    old = cluster.region_links[key]
    new = _changed_link(old, wanted, ends)
    own = dict(cluster.machine_links)
    for machines, link in cluster.machine_links.items():
        if pair(*(cluster.machine(name).region for name in machines)) == key and not link.blocked:
            own[machines] = _changed_link(link, wanted, ends)
    changed = replace(cluster, region_links={**cluster.region_links, key: new}, machine_links=own)
    others = sum(own[machines] is not link for machines, link in cluster.machine_links.items())
    besides = f", and {others} links of single machines" if others else ""
    return changed, f"link {ends}: {_way(old)} → {_way(new)}{besides}"


def _set_pair(cluster: Cluster, a: str, b: str, wanted: LinkSetting) -> tuple[Cluster, str]:
    """The link between two machines."""
    if a == b:
        raise InputError(f"a link from {a!r} to itself")
    if wanted.trunk is not None:
        raise InputError("a trunk is what two regions share: name two regions")
    if wanted.egress is not None and cluster.machine(a).region == cluster.machine(b).region:
        raise InputError("trunk and egress belong to a link between two regions")
    ends = f"between {a} and {b}"
    old = cluster.link(a, b)
    new = _changed_link(old, wanted, ends)
    changed = replace(cluster, machine_links={**cluster.machine_links, pair(a, b): new})
    return changed, f"link {ends}: {_way(old)} → {_way(new)}"


def _changed_link(link: Link, wanted: LinkSetting, ends: str) -> Link:
    given = [key for key in ("latency", "bandwidth", "trunk", "egress") if getattr(wanted, key) is not None]
    if wanted.blocked:
        if given:
            raise InputError(f"a blocked link has no {given[0]}")
        return BLOCKED
    if link.blocked and (wanted.latency is None or wanted.bandwidth is None):
        raise InputError(f"the link {ends} is blocked", hint="give its latency and its bandwidth in one --set")
    changes: dict[str, Any] = {key: getattr(wanted, key) for key in given}
    for key in ("latency", "bandwidth"):
        if key in changes:
            changes[f"{key}_origin"], changes[key] = changes[key].origin, changes[key].value
    return replace(link, **changes)


def _ends(cluster: Cluster, names: Sequence[str]) -> tuple[str, str, bool]:
    """The two ends that are meant, and whether they are regions. Names may have a "-" in them, as what joins them has:
    the one way to cut that gives two known regions, or two known machines."""
    regions = {region.name for region in cluster.regions}
    if len(names) > 2:
        raise InputError("a link has two ends", hint=_EXAMPLE)
    cuts = [(names[0], names[-1])] if len(names) == 2 else list(_cuts(names[0]))
    fits = [(a, b, True) for a, b in cuts if a in regions and b in regions]
    fits += [(a, b, False) for a, b in cuts if cluster.has_machine(a) and cluster.has_machine(b)]
    if not fits:
        raise _no_ends(cluster, "-".join(names), cuts)
    if len(fits) > 1:
        ways = " or ".join(f"{'regions' if are else 'machines'} {a} and {b}" for a, b, are in fits)
        hint = "put a space between the two names" if len({fit[:2] for fit in fits}) > 1 else "rename one of them"
        raise InputError(f"this may be {ways}", hint=hint)
    return fits[0]


def _cuts(word: str) -> Iterator[tuple[str, str]]:
    """All ways to cut a word at a dash; an en dash, which `hulk explain` prints, is in no name."""
    marks = "–" if "–" in word else "-"
    return ((word[:i], word[i + 1 :]) for i, letter in enumerate(word) if letter in marks and 0 < i < len(word) - 1)


def _no_ends(cluster: Cluster, word: str, cuts: Sequence[tuple[str, str]]) -> InputError:
    """Why a link has no two ends here: the name that is not known, and the nearest known one."""
    regions = [region.name for region in cluster.regions]
    known = {*regions, *(machine.name for machine in cluster.machines)}
    if any(a in known and b in known for a, b in cuts):
        return InputError("one end is a region, the other a machine", hint="name two regions or two machines")
    halves = [(a, b) if a in known else (b, a) for a, b in cuts if a in known or b in known]
    if halves:
        _, other = max(halves, key=lambda half: len(half[0]))
        return InputError(f"no region or machine {other!r} in cluster {cluster.name!r}", hint=nearest(other, known))
    pairs = [f"{a}-{b}" for a, b in combinations(regions[:_MOST_PAIRED], 2)]
    pairs += [f"{b}-{a}" for a, b in combinations(regions[:_MOST_PAIRED], 2)]
    hint = nearest(word, pairs) or "name two regions or two machines, with a - or a space between them"
    return InputError(f"no two regions or machines {word!r} in cluster {cluster.name!r}", hint=hint)


def _way(link: Link) -> str:
    if link.blocked:
        return "blocked"
    trunk = "" if link.trunk is None else f", trunk {format_bandwidth(link.trunk)}"
    egress = "" if link.egress is None else f", egress {_per_gb(link.egress)}"
    return f"{format_time(link.latency)} at {format_bandwidth(link.bandwidth)}{trunk}{egress}"


def _per_gb(price: float) -> str:
    return f"{format_money(price * 1e9)}/GB"


# ---- Machines -------------------------------------------------------------------------------------------------------


def _set_machines(cluster: Cluster, setting: _Setting) -> tuple[Cluster, str]:
    if len(setting.names) != 1:
        raise InputError("one machine can be named", hint="with a * in its name several: 'machine rome-* gpus=4'")
    name = setting.names[0]
    if "*" in name:
        named = {machine.name for machine in cluster.machines if fnmatchcase(machine.name, name)}
        if not named:
            raise InputError(f"no machine {name!r} in cluster {cluster.name!r}")
    else:
        named = {cluster.machine(name).name}
    wanted = validate(setting.given, MachineSetting)
    own = {gpu.name.lower(): gpu for gpu in cluster.gpus}
    changes = {
        machine.name: (machine, _changed_machine(machine, wanted, own))
        for machine in cluster.machines
        if machine.name in named
    }
    words = {_changed_words(old, new) for old, new in changes.values()}
    told = words.pop() if len(words) == 1 else f"{len(words)} kinds of them changed"
    changed = replace(
        cluster,
        machines=tuple(changes.get(machine.name, (machine, machine))[1] for machine in cluster.machines),
    )
    changed, inside = _with_flows_of_cards(cluster, changed)
    who = f"machine {name}" if len(named) == 1 else f"{len(named)} machines {name}"
    return changed, f"{who}: {told}{inside}"


def _changed_machine(machine: Machine, wanted: MachineSetting, own: Mapping[str, Any]) -> Machine:
    kind = machine.gpu if wanted.gpu is None else gpu_here(wanted.gpu, own)
    gpus = wanted.gpus or machine.gpus
    usual = math.isclose(machine.price, machine.gpus * machine.gpu.price)
    changed = replace(
        machine,
        gpu=kind,
        gpus=gpus,
        memory=machine.memory if kind == machine.gpu else kind.memory,
        price=gpus * kind.price if usual else machine.price,
    )
    if wanted.memory is not None:
        changed = replace(changed, memory=wanted.memory)
    if wanted.price is not None:
        changed = replace(changed, price=wanted.price)
    if wanted.network is not None:
        cards = wanted.network
        changed = replace(changed, network=cards.count * cards.each, cards=cards.count)
    return changed


def _changed_words(old: Machine, new: Machine) -> str:
    pairs = zip(_parts(old), _parts(new), strict=True)
    return ", ".join(f"{before} → {after}" for before, after in pairs if before != after) or "as it was"


def _parts(machine: Machine) -> tuple[str, ...]:
    cards = format_bandwidth(machine.card)
    return (
        f"{machine.gpus} × {machine.gpu.name}",
        f"{format_size(machine.memory)} a GPU",
        cards if machine.cards == 1 else f"{machine.cards} × {cards}",
        f"{format_money(machine.price * 3600)} an hour",
    )


def _with_flows_of_cards(old: Cluster, new: Cluster) -> tuple[Cluster, str]:
    """The new cluster, where a flow inside a region that was taken to be as fast as the slowest card there still is;
    and what changed by that, in words."""
    links, words = dict(new.region_links), ""
    before, after = _slowest_cards(old), _slowest_cards(new)
    for region, card in before.items():
        link = links[region, region]
        estimated = link.bandwidth_origin is Origin.ESTIMATED and link.bandwidth == card
        if estimated and after[region] != card:
            links[region, region] = replace(link, bandwidth=after[region])
            words += f", a flow inside {region} {format_bandwidth(card)} → {format_bandwidth(after[region])}"
    return (replace(new, region_links=links), words) if words else (new, "")


def _slowest_cards(cluster: Cluster) -> dict[str, float]:
    """Bytes/s of the slowest network card of every region with machines."""
    found: dict[str, float] = {}
    for machine in cluster.machines:
        found[machine.region] = min(machine.card, found.get(machine.region, math.inf))
    return found
