# SPDX-License-Identifier: Apache-2.0
"""The outer loop around a PyTorch loop.

`join` takes part in a run of several sites, `attach` gives the bodies of `isthmus.run` and `isthmus.simulate`
their models, `adamw` makes the optimizer and schedule of `[inner]`, `DiLoCo` is torchft's class of that name
over a run of isthmus, `MuLoCo1` is an optimizer that takes the outer step at one site alone.
"""

from __future__ import annotations

from ._adamw import adamw
from ._diloco import DiLoCo
from ._join import attach, join
from ._muloco import MuLoCo1

__all__ = ["DiLoCo", "MuLoCo1", "adamw", "attach", "join"]
