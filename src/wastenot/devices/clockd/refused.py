"""Refusals: what a client is told instead of getting what it asked for."""

from __future__ import annotations

from typing import Literal

RefusalKind = Literal["busy", "device", "leased", "lost", "message", "policy", "queued", "refused", "version"]


class RefusedError(Exception):
    """What a client asked for is refused.

    Attributes:
        kind: for programs.
        text: for people.
    """

    def __init__(self, kind: RefusalKind, text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text
