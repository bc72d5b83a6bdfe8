"""Writes and reads runs of depthscope, a terminal workbench for adaptive-depth transformers.

    import depthscope as ds
    run = ds.init(name="a", config=config, steps=1000, layers=12)
    run.log({"loss": loss, "lr": lr}, step=step)
    run.finish()
    data = ds.read("runs/a")

Nothing outside the standard library is imported; torch, numpy and pandas are used where the program has them.
"""
from __future__ import annotations

from ._read import RunData, read
from ._run import Run, init
from ._serve import serve
from ._version import __version__
from ._watch import Watch, watch
from .callbacks import DepthscopeCallback, DepthscopeLightningCallback, DepthscopeLogger

__all__ = ["DepthscopeCallback", "DepthscopeLightningCallback", "DepthscopeLogger", "Run", "RunData", "Watch", "init", "read",
           "serve", "watch", "__version__"]
