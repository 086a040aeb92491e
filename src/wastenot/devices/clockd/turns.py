"""Whose turn a GPU is: users who wait for it, and those who have had it for as long as the policy lets them."""

from __future__ import annotations

from collections.abc import Callable

_PAUSE_S = 10.0  # for which a user who has had the GPU as long as allowed does not get it again; a shorter one is none
_WAITS_S = 10.0  # after which a user who was refused a GPU and has not asked again is not waiting for it any more


class Turns:
    """Turns of users at a GPU."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._used_s: dict[int, tuple[float, float]] = {}  # since when, and until when, users have had it
        self._waiting: dict[int, float] = {}  # users in the order of their first request, and their last
        self._barred_s: dict[int, float] = {}  # users who have had it for as long as they may

    def since_s(self, user: int) -> float:
        """Since when a user has the GPU if it acquires it now: one that is given back and taken again never was."""
        now_s = self._now_s()
        since_s, until_s = self._used_s.get(user, (now_s, now_s))
        return since_s if now_s - until_s < _PAUSE_S and user not in self._barred_s else now_s

    def barred_for_s(self, user: int) -> float:
        """For how long a user does not get the GPU."""
        return self._barred_s.get(user, self._now_s()) - self._now_s()

    def bar(self, user: int) -> None:
        """Let a user who has had the GPU for as long as the policy allows wait before it gets it again."""
        self._barred_s[user] = self._now_s() + _PAUSE_S
        del self._used_s[user]

    def wait(self, user: int) -> None:
        """Note that a user waits for the GPU, at the end of the queue unless it is in it."""
        self._waiting[user] = self._now_s()

    def first(self) -> int | None:
        """The user who waits for the GPU for longest; ``None`` where nobody does."""
        now_s = self._now_s()
        self._waiting = {user: at_s for user, at_s in self._waiting.items() if now_s - at_s < _WAITS_S}
        return next(iter(self._waiting), None)

    def began(self, user: int) -> None:
        """A user has it, and waits no more."""
        self._waiting.pop(user, None)

    def ended(self, user: int, since_s: float) -> None:
        """A user has had it since then, until now."""
        self._used_s[user] = (since_s, self._now_s())

    def forget(self) -> None:
        """Forget what does not count any more."""
        now_s = self._now_s()
        self._barred_s = {user: at_s for user, at_s in self._barred_s.items() if at_s > now_s}
        self._used_s = {user: used for user, used in self._used_s.items() if now_s - used[1] < _PAUSE_S}
