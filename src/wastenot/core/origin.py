"""Where numbers come from; shown wherever they are shown."""

from __future__ import annotations

from typing import Literal, get_args

Origin = Literal["measured", "simulated", "synthetic", "forecast"]
"""``measured`` on a device; ``simulated`` by a simulated GPU; ``synthetic``, made up for a demonstration; ``forecast``
for what was never observed."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)
