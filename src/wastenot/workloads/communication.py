"""How long GPUs take to exchange data, by bandwidth and latency: the α–β model.

A message of n bytes takes ``latency + n / bandwidth``; collectives are rings of such messages (Thakur, Rabenseifner,
Gropp, IJHPCA 2005). Times are lower bounds of what NCCL takes; where it was measured, the profile holds that instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wastenot.core.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Link:
    """What connects GPUs.

    Attributes:
        name: such as ``nvlink4``.
        bytes_per_s: that a GPU sends while it receives as many.
        latency_s: of a message, however small.
        source: of the numbers, for a reader to check.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    source: str

    def __post_init__(self) -> None:
        if not 0.0 < self.bytes_per_s < float("inf"):
            raise BadInputError(f"link {self.name}: {self.bytes_per_s:g} bytes/s: must be above 0")
        if not 0.0 <= self.latency_s < float("inf"):
            raise BadInputError(f"link {self.name}: latency of {self.latency_s:g} s: must be at least 0")


_ASSUMED: Final = "the latency is assumed"
# Half of the bandwidth that datasheets state, which is of both directions together.
LINKS: Final = {
    link.name: link
    for link in (
        Link("nvlink3", 300e9, 5e-6, f"600 GB/s by the A100 datasheet; {_ASSUMED}"),
        Link("nvlink4", 450e9, 5e-6, f"900 GB/s by the H100 and H200 datasheets; {_ASSUMED}"),
        Link("nvlink5", 900e9, 5e-6, f"1.8 TB/s by the B200 datasheet; {_ASSUMED}"),
        Link("pcie4", 32e9, 10e-6, f"64 GB/s for 16 lanes; {_ASSUMED}"),
        Link("hdr", 25e9, 10e-6, f"InfiniBand HDR, 200 Gb/s and one adapter for each GPU; {_ASSUMED}"),
        Link("ndr", 50e9, 10e-6, f"InfiniBand NDR, 400 Gb/s and one adapter for each GPU; {_ASSUMED}"),
    )
}


def point_to_point_s(link: Link, size_bytes: float) -> float:
    """Time of one message, such as the activations of a micro-batch on their way to the next stage."""
    return link.latency_s + size_bytes / link.bytes_per_s


def all_reduce_s(link: Link, size_bytes: float, gpus: int) -> float:
    """Time of a ring all-reduce: 2 (n - 1) messages of 1/n of the data each, as of a reduce-scatter and an all-gather.

    Args:
        link: between neighbours of the ring.
        size_bytes: that each GPU holds, before and after.
        gpus: in the ring; one alone takes no time.
    """
    return 2.0 * all_gather_s(link, size_bytes, gpus)


def all_gather_s(link: Link, size_bytes: float, gpus: int) -> float:
    """Time of a ring all-gather: n - 1 messages of 1/n of the ``size_bytes`` that each GPU holds afterwards."""
    return (gpus - 1) * (link.latency_s + size_bytes / gpus / link.bytes_per_s)
