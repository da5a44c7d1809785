"""Who adds up what with whom: parameters with the same holders, in buckets. Works without torch.

Replicas may be cut differently and sliced differently. So a parameter is cut wherever any holder's slices are, and each
piece is added up among the ranks that hold it, one a stage. What every rank of a stage has (norms) is added up among
the stages' leads, which then hand it to their stage. All stages with a copy take part: those of all replicas, and
within a replica those that share a parameter (tied embedding and head). Of what is split among holders, each group
adds up its own while passes run (`hulk.runtime.sharded`); here the groups add up theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hulk.domain.options import Sync
from hulk.runtime.entries import SYNC, Entry, Key, Place, Range, Ranks, cut_everywhere, slot_of
from hulk.runtime.seats import Seating
from hulk.runtime.shards import RowPiece, Shards

LARGEST = 16 * 2**20
"""Elements of a bucket: 64 MiB of fp32, so that the copy that is sent stays small beside the gradients."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a parameter's divided dimension, or all of it (None)."""

    entry: Entry
    span: Range | None

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return self.entry.elements if self.span is None else (self.span[1] - self.span[0]) * self.entry.row


@dataclass(frozen=True, slots=True)
class Bucket:
    """Pieces that the same ranks add up. `ranks` has one rank of each stage in `holders`, in the same order."""

    ranks: Ranks
    holders: tuple[Place, ...]
    whole: bool
    pieces: tuple[Piece | RowPiece, ...]

    @property
    def unsplit(self) -> list[Piece]:
        """Its pieces of parameters that every holder has all of."""
        return [piece for piece in self.pieces if isinstance(piece, Piece)]

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return sum(piece.elements for piece in self.pieces)

    @property
    def layers(self) -> tuple[int, int]:
        """First and last layer that bring its parameters."""
        homes = [piece.entry.home for piece in self.pieces]
        return min(homes), max(homes)

    def rank_of(self, place: Place) -> int:
        """The rank that takes part for a stage."""
        return self.ranks[self.holders.index(place)]


def plan_buckets(
    entries: Sequence[Entry], seating: Seating, shards: Shards | None = None, *, largest: int = LARGEST
) -> list[Bucket]:
    """All buckets of a job, the last layers first: the order in which every rank goes through those it is in."""
    open_buckets: dict[tuple[Ranks, bool], list[Piece | RowPiece]] = {}
    sizes: dict[tuple[Ranks, bool], int] = {}
    places: dict[tuple[Ranks, bool], tuple[Place, ...]] = {}
    done: list[Bucket] = []

    def close(key: tuple[Ranks, bool]) -> None:
        done.append(Bucket(key[0], places[key], key[1], tuple(open_buckets.pop(key))))
        del sizes[key]

    for entry in sorted(entries, key=lambda e: -e.home):
        for piece, holders, ranks, whole in _parts(entry, seating, shards):
            key = (ranks, whole)
            if key in sizes and sizes[key] + piece.elements > largest:
                close(key)
            places[key] = holders
            open_buckets.setdefault(key, []).append(piece)
            sizes[key] = sizes.get(key, 0) + piece.elements
    for key in list(open_buckets):
        close(key)
    # A bucket is ready when the backward pass has reached its first layer; a total order keeps ranks from waiting for
    # one another in a circle.
    return sorted(done, key=lambda b: (-b.layers[0], -b.layers[1], b.whole, b.ranks))


def _parts(
    entry: Entry, seating: Seating, shards: Shards | None
) -> Iterator[tuple[Piece | RowPiece, tuple[Place, ...], Ranks, bool]]:
    """The pieces of a parameter with the stages and ranks that add them up, and whether the stages' leads do it for
    all."""
    holders = entry.holders(seating)
    if len(holders) < 2:
        return
    if shards is not None and shards.is_split(entry):
        for rows, places, ranks in shards.pieces(entry):
            yield rows, places, ranks, False
        return
    sliced = any(len(seating.ranks(*place)) > 1 for place in holders)
    for piece, ranks in _pieces(entry, holders, seating):
        # Where no stage is sliced, norms travel with the rest: a bucket of their own would cost its latencies.
        yield piece, holders, ranks, sliced and piece.span is None


def _pieces(entry: Entry, holders: Sequence[Place], seating: Seating) -> list[tuple[Piece, Ranks]]:
    if entry.dim is None:
        return [(Piece(entry, None), tuple(seating.ranks(*place)[0] for place in holders))]
    counts = [len(seating.ranks(*place)) for place in holders]
    divisions = [entry.ranges(n, slot) for n in set(counts) for slot in range(n)]
    result = []
    for span in cut_everywhere(divisions):
        ranks = tuple(seating.ranks(*place)[slot_of(entry, n, span)] for place, n in zip(holders, counts, strict=True))
        result.append((Piece(entry, span), ranks))
    return result


@dataclass(frozen=True, slots=True)
class Route:
    """How one rank adds up a bucket: alone (both None), in one ring (`between` only), or region by region: reduced to
    the first rank of `inside`, exchanged by those firsts in `between`, and spread in `inside`."""

    inside: Ranks | None
    between: Ranks | None


def routes(bucket: Bucket, sync: Sync, regions: Mapping[int, str]) -> dict[int, Route]:
    """For each rank of a bucket its route; `regions` is by rank."""
    if sync is Sync.RING:
        return dict.fromkeys(bucket.ranks, Route(None, bucket.ranks))
    by_region: dict[str, list[int]] = {}
    for rank in bucket.ranks:
        by_region.setdefault(regions[rank], []).append(rank)
    firsts = tuple(members[0] for members in by_region.values())
    result = {}
    for members in by_region.values():
        inside = tuple(members) if len(members) > 1 else None
        for rank in members:
            result[rank] = Route(inside, firsts if rank == members[0] and len(firsts) > 1 else None)
    return result


def bucket_groups(
    buckets: Sequence[Bucket], sync: Sync, regions: Mapping[int, str], shards: Shards | None = None
) -> set[Key]:
    """The groups that the buckets need."""
    keys: set[Key] = set()
    for bucket in buckets:
        keys.add((SYNC, bucket.ranks))
        if shards is not None and bucket.unsplit:  # parameters spread in them where the optimizer is sharded
            keys |= {(SYNC, ranks) for ranks in spread_among(bucket, shards)}
        for route in routes(bucket, sync, regions).values():
            keys |= {(SYNC, ranks) for ranks in (route.inside, route.between) if ranks is not None}
    return keys


def spread_among(bucket: Bucket, shards: Shards) -> list[Ranks]:
    """The ranks of a bucket by group: among those, owners of parameters send what they have updated."""
    return [tuple(bucket.rank_of(place) for place in group) for group in shards.groups(bucket.holders)]
