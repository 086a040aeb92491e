"""What clocks that other processes may want to set too have in common, whether this process sets them or a daemon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wastenot.core.errors import ClocksRefusedError
from wastenot.core.processes import Terminated
from wastenot.devices.common.rights import forbidden


class SharedClocks(ABC):
    """Clocks that other processes may want to set too, so that they are claimed.

    Attributes:
        on_change: called once a setting has been changed for the first time.
        on_interrupt: called when a claim was interrupted and what it changed is undone.
    """

    def __init__(self) -> None:
        self._claimed = self._changed = False
        self.on_change: Callable[[], None] = _nothing
        self.on_interrupt: Callable[[], None] = _nothing

    @abstractmethod
    def outcome(self) -> str:
        """What becomes of the clocks afterwards, in words."""

    @abstractmethod
    def release(self) -> None:
        """Undo what was changed, and end the lease unless it is claimed."""

    @abstractmethod
    def claim(self) -> None:
        """Begin to hold the lease at the default clocks too, until :meth:`end_claim`.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """

    def end_claim(self) -> None:
        """Undo what was changed and end the lease."""
        self._claimed = False
        self.release()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lease inside the context, as :meth:`claim` does, so that no other process sets clocks meanwhile."""
        if self._claimed or self._no_claim():
            yield
            return
        self.claim()
        try:
            yield
        except (KeyboardInterrupt, Terminated):
            self.end_claim()
            if self._changed:
                self.on_interrupt()
            raise
        finally:
            self.end_claim()

    def _no_claim(self) -> bool:
        """Whether nothing may be set here, so that there is nothing to claim."""
        return forbidden() is not None

    def _note_change(self) -> None:
        if not self._changed:
            self._changed = True
            self.on_change()


def check_profile(unique_id: str, profile: str | None, available: tuple[str, ...]) -> None:
    """Refuse a profile that is not available, by a ClocksRefusedError that lists those that are."""
    if profile is not None and profile not in available:
        have = f"it has {', '.join(available)}" if available else "none may be set here"
        raise ClocksRefusedError(f"{unique_id}: no workload power profile '{profile}'; {have}")


def _nothing() -> None:
    pass
