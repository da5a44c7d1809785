"""Sequence parallelism: what tensor parallel leaves whole, divided along the sequence among the ranks of a stage.

Inside of a block, norms, residuals and what lies between them are divided. What goes into products over columns is
gathered first, and what comes out of products over rows is added up in parts, which each rank gets its own of: together
they move as much as the sums that tensor parallel has otherwise. Outside of blocks (embeddings, heads, what crosses
between stages) everything is whole on every rank.

A rank then has only its tokens' part of a norm's gradient; the parts are added up once a step (`RealWork.passes`).
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

TOKENS = -2
"""The dimension that is divided; some models have samples and tokens in one, which makes no difference to products."""


def length(tensor: torch.Tensor, mesh: DeviceMesh | None) -> int:
    """Tokens of the whole of a tensor (samples, tokens, width) that is divided among ranks; None: it is whole."""
    return tensor.shape[TOKENS] * (1 if mesh is None else mesh.size())


def join(part: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """The whole sequence as a DTensor, for products that are divided among the ranks: each has its part of the result,
    so the parts of its gradient are added up."""
    mine = DTensor.from_local(part, mesh, [Shard(TOKENS)], run_check=False)
    return mine.redistribute(placements=[Replicate()])


def whole(part: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """The whole sequence, for what every rank then does alike: each has all of its gradient."""
    joined = join(part, mesh)
    assert isinstance(joined, DTensor)
    return joined.to_local()


def mine(tensor: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """This rank's tokens of what every rank has; the gradient is whole again."""
    there = DTensor.from_local(tensor, mesh, [Replicate()], run_check=False)
    return there.redistribute(placements=[Shard(tensor.dim() + TOKENS)]).to_local().contiguous()
