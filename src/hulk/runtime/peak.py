"""How much of a GPU's memory a rank has needed so far."""

from __future__ import annotations

import torch


def peak_memory(device: torch.device) -> dict[str, int] | None:
    """Bytes; None where there is no GPU.

    allocated  the most that tensors took
    reserved   the most that torch's allocator held for them
    used       the most that the process took of the GPU: that, and what is outside of it (context, libraries). Other
               processes on the same GPU are counted too
    total      the GPU's memory
    """
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.max_memory_reserved(device)
    outside = total - free - torch.cuda.memory_reserved(device)
    return {
        "allocated": torch.cuda.max_memory_allocated(device),
        "reserved": reserved,
        "used": reserved + max(outside, 0),
        "total": total,
    }
