"""Which process of a distributed job this is, from torch.distributed or the launcher's environment."""
from __future__ import annotations

import os
import sys
from typing import Any, Optional, Tuple

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "LOCAL_RANK")
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def _from_environment(names: Tuple[str, ...]) -> Optional[int]:
    for name in names:
        try:
            return int(os.environ[name])
        except (KeyError, ValueError):
            continue
    return None


def _group() -> Optional[Any]:
    """torch.distributed, when the program has imported it and joined a process group."""
    dist = sys.modules.get("torch.distributed")
    try:
        return dist if dist is not None and dist.is_available() and dist.is_initialized() else None
    except AttributeError:  # a build without it
        return None


def rank() -> int:
    """0 for the process that writes, and for a program that is not distributed."""
    group = _group()
    return int(group.get_rank()) if group is not None else _from_environment(_RANKS) or 0


def world_size() -> int:
    """How many processes the job has, 1 when unknown."""
    group = _group()
    return int(group.get_world_size()) if group is not None else _from_environment(_SIZES) or 1
