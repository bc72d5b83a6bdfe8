"""What changes when several processes train one model.

    DDP    rank 0 writes and probes its own copy of the model; the others only take part in sums of counts.
    FSDP   every rank runs each probe, because a pass gathers the weights from all of them; rank 0 writes.
    TP     as FSDP; counts of experts are summed over the data-parallel group only (`watch(..., group=)`).
    EP     each rank counts the assignments of its own tokens to all experts; the sum over ranks is recorded.
    PP     each stage writes a log of its own (`ds.init(stage=i, layer_offset=n)`), and `ds.read` merges them.
"""

from __future__ import annotations

from typing import Any, List, Sequence

from ._blocks import need


def world_size() -> int:
    """Ranks of the default process group; 1 without one."""
    dist = need("torch.distributed", "distributed")
    return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 1


def is_sharded(model: Any) -> bool:
    """Does a forward pass need every rank: parameters in FSDP units, or tensors distributed over a mesh?"""
    if any("FullyShardedDataParallel" in c.__name__ or c.__name__ == "FSDPModule" for m in model.modules() for c in type(m).__mro__):
        return True
    return any(hasattr(p, "full_tensor") for p in model.parameters())


def sum_counts(counts: Any, group: Any = None) -> Any:
    """Counts summed over the ranks of a group; every rank of it must call.  Without a process group they are as they were."""
    if world_size() == 1:
        return counts
    dist = need("torch.distributed", "distributed")
    dist.all_reduce(counts, group=group)
    return counts


def agree(values: Sequence[float]) -> List[float]:
    """The values of rank 0 on every rank; every rank must call."""
    if world_size() == 1:
        return list(values)
    torch, dist = need("torch", "distributed"), need("torch.distributed", "distributed")
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    t = torch.tensor(list(values), dtype=torch.float64, device=device)
    dist.broadcast(t, 0)
    return [float(x) for x in t.tolist()]
