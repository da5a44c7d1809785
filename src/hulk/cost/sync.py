"""Gradient sync, told once: who adds up what with whom, how many bytes that is, in which groups, and when it can begin.

The compiled closed forms (`hulk.cost.sync_times`) read these functions and the arrays they fill; `hulk.cost.sums` makes
values of the same, which are played, paid for, and looked at by what-ifs.

What is added up, in the order in which every stage goes through it:

- gradient sets, the last layers first. Layers are cut wherever any replica cuts them; each piece is a set, added up
  among the stages that hold it, one of each replica;
- what layers share: once, among all stages that have it (`Rules.shares_once`), where some stage has it besides the
  first of its pipeline (`is_apart`; otherwise it is part of the first set); or, in other engines, with the sets, and
  then between each pipeline's first stage and the others that have it, one after the other.

Members add up in a ring or, by region, in chains: those of a region onto its first, which do a ring, and back.
"""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import EXPERT, Durations, Encoded, Ints, Tables, spared_seconds
from hulk.cost.compiled import constant, inlined, inner, kernel, lean, maker
from hulk.cost.orders import is_split

PIECE = 2.0**20
"""Bytes of a chain's pieces, at least: small ones would cost more in messages than they hide."""
MOST_PIECES = constant(16)
_NONE, _MANY = constant(0), constant(1 << 30)


@inner
def chain_pieces(size: float) -> int:
    """In how many pieces a chain adds up `size` bytes."""
    return int(min(max(size // PIECE, 1.0), MOST_PIECES))


@inner
def buckets_of(tables: Tables, size: float) -> float:
    """In how many buckets `size` bytes are added up."""
    return max(1.0, float(np.ceil(size / tables.rules.bucket)))


@inner
def set_bytes(tables: Tables, a: int, b: int, apart: bool) -> float:
    """Bytes on the wire of the gradients of layers a..b. `apart`: what layers share has a sum of its own."""
    params: float = tables.split[b + 1] - tables.split[a] + tables.whole[b + 1] - tables.whole[a]
    params += tables.elsewhere[b + 1] - tables.elsewhere[a]
    if tables.rules.shares_once:  # it counts with the first layer
        params -= tables.tied[b + 1] - tables.tied[a]
        if apart and a == 0:
            params -= tables.shared
    return params * tables.wire_bytes


@lean
def spared_bytes(tables: Tables, plan: Encoded, a: int, b: int) -> float:
    """Bytes less that a sum over all replicas would have for the experts of layers a..b, which only those add up that
    have the same ones: a ring of fewer moves a little less, and one of one nothing."""
    degree, replicas = plan.options[EXPERT], plan.microbatches.shape[0]
    holders = max(replicas * tables.context / degree, 1.0)
    fewer = (1.0 - 1.0 / holders) / (1.0 - 1.0 / replicas)
    experts = (tables.elsewhere[b + 1] - tables.elsewhere[a]) * degree / (degree - 1.0)
    spared: float = max(0.0, 1.0 - fewer) * experts * tables.wire_bytes
    return spared


@inlined
def lanes(tables: Tables, ranks: int) -> int:
    """Flows that stages have between them whose GPUs, `ranks` of each, send slices: where GPUs share sequences, in
    Hulk's own runtime the first of these for all."""
    return ranks if tables.rules.flow_per_rank else max(1, int(ranks / tables.context))


@inlined
def shared_bytes(tables: Tables) -> float:
    """Bytes on the wire of the gradients of what layers share, counted once."""
    return tables.shared * tables.wire_bytes


@inlined
def tied_bytes(tables: Tables, plan: Encoded, n: int) -> float:
    """Bytes on the wire of the gradients of what stage n's layers share with the first layer, which has its own."""
    params: float = tables.tied[plan.last[n] + 1] - tables.tied[plan.first[n]]
    return params * tables.wire_bytes


@lean
def is_apart(tables: Tables, plan: Encoded) -> bool:
    """Whether what layers share has a sum of its own: some stage has it besides the first of its pipeline."""
    if tables.shared == 0.0 or not tables.rules.shares_once:
        return False
    for p in range(plan.microbatches.shape[0]):
        for n in range(plan.starts[p] + 1, plan.starts[p + 1]):
            if tied_bytes(tables, plan, n) > 0:
                return True
    return False


@kernel
def shared_holders(tables: Tables, plan: Encoded) -> Ints:
    """The stages that hold what layers share, in the plan's order."""
    count = 0
    members = np.empty(plan.starts[-1], np.int64)
    for p in range(plan.microbatches.shape[0]):
        for n in range(plan.starts[p], plan.starts[p + 1]):
            if n == plan.starts[p] or tied_bytes(tables, plan, n) > 0:
                members[count] = n
                count += 1
    return members[:count]


@inlined
def move_to(plan: Encoded, holders: Ints, layer: int) -> None:
    """Move `holders`, a stage of each pipeline, to those that hold a layer."""
    for p in range(holders.shape[0]):
        while plan.first[holders[p]] > layer:
            holders[p] -= 1
        while plan.last[holders[p]] < layer:
            holders[p] += 1


@kernel
def holders_of(plan: Encoded, layers: Ints) -> Ints:
    """[layers, P] the stage of each pipeline that holds each of these layers."""
    found = np.empty((layers.shape[0], plan.microbatches.shape[0]), np.int64)
    at = plan.starts[:-1].copy()
    for i in range(layers.shape[0]):
        move_to(plan, at, layers[i])
        found[i] = at
    return found


@maker
def cut_sets(tables: Tables, plan: Encoded, apart: bool, out: Durations) -> int:
    """Fill in the gradient sets: first and last layer, and bytes. Returns how many there are; none for one replica."""
    if plan.microbatches.shape[0] == 1:
        return 0
    holders = plan.starts[:-1].copy()
    layers = tables.cut.shape[0]
    position, sets = _NONE, 0
    while position < layers:
        move_to(plan, holders, position)
        end = layers - 1
        for p in range(holders.shape[0]):
            end = min(end, plan.last[holders[p]])
        out.set_first[sets], out.set_last[sets] = position, end
        out.set_size[sets] = set_bytes(tables, position, end, apart)
        if plan.options[EXPERT] > 1:
            out.set_size[sets] -= spared_bytes(tables, plan, position, end)
        sets += 1
        position = end + 1
    return sets


@inlined
def flows_of(plan: Encoded, members: Ints) -> int:
    """Ranks of these stages that have one of their own kind in each of the others: each sends in a flow of its own."""
    flows = _MANY
    for i in range(members.shape[0]):
        flows = min(flows, plan.ranks[members[i]])
    return flows


@lean
def rails_of(plan: Encoded, members: Ints) -> int:
    """Ranks of these stages that every machine has at least: where each sends in a flow of its own, a sum between
    machines has so many flows, whichever stages the ranks belong to."""
    least = _MANY
    for i in range(members.shape[0]):
        here, known = 0, False
        for j in range(members.shape[0]):
            if plan.machine[members[j]] == plan.machine[members[i]]:
                if j < i:
                    known = True
                    break
                here += plan.ranks[members[j]]
        if not known:
            least = min(least, here)
    return least


@kernel
def chain_up(region: Ints, chain: Ints, before: Ints) -> int:
    """Members of one region make a chain, in their order, and the first leads. From the members' regions, fills in
    which chain each is in, and which member is before it (−1: it leads). Returns how many chains there are."""
    chains = 0
    for i in range(region.shape[0]):
        before[i] = -1
        for j in range(i - 1, -1, -1):
            if region[j] == region[i]:
                before[i] = j
                break
        if before[i] >= 0:
            chain[i] = chain[before[i]]
        else:
            chain[i] = chains
            chains += 1
    return chains


@lean
def _spared_of(tables: Tables, plan: Encoded, n: int, lowest: int, last: int, part: float) -> float:
    """Of these seconds, what stage n is spared since some of its layers are not computed again. Apart: `still_to_do` is
    written out in many places, and hardly any plan asks."""
    k, after = plan.kind[n], plan.last[n] + 1 - plan.kept[n]
    every, kept = tables.backward[k], tables.kept[tables.update.shape[0] + k]
    inside = spared_seconds(every, kept, lowest, last, after)
    return spared_seconds(every, kept, plan.first[n], lowest - 1, after) + part * inside


@inlined
def still_to_do(tables: Tables, plan: Encoded, n: int, lowest: int, last: int, part: float) -> float:
    """Seconds of stage n's last backward that are left when it has what it adds up: when it has been through layers
    `last` to `lowest`, but for a part of them. None are, where sums wait for the whole pass, as they do where gradients
    of weights are passes of their own."""
    if not tables.rules.overlap_sync or is_split(plan):
        return 0.0
    k = plan.kind[n]
    before: float = tables.backward[k, lowest] - tables.backward[k, plan.first[n]]
    inside: float = tables.backward[k, last + 1] - tables.backward[k, lowest]
    left: float = before + part * inside
    return left if plan.kept[n] == 0 else left - _spared_of(tables, plan, n, lowest, last, part)


@inlined
def sends_weights(tables: Tables, has_owners: bool, replicas: int) -> bool:
    """Whether owners send what they have updated to all other holders, after sums that everyone has."""
    return has_owners and tables.rules.sends_weights and replicas > 1
