"""A thread for each GPU, in which alone its driver is called: one that hangs keeps nobody waiting who uses another GPU.

    event loop ──put──▶ jobs of a GPU, first come, first served ──▶ its thread ──▶ driver
        ▲                                                            │ wake
        └──────────── finish: who asked is answered ◀────────────────┘

All decisions are the event loop's: the thread only does jobs in their order. So what follows a call that hangs, such as
restoring what it sets, is put behind it, and takes place when it returns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from wastenot.devices.clockd.refused import RefusedError

Answer = Callable[[RefusedError | None], None]
"""Takes why something was refused, or ``None``; called once, by the event loop."""


@dataclass(slots=True, eq=False)
class Job:
    """Something to do with a GPU.

    Attributes:
        do: does it; raises RefusedError.
        answer: of whoever asked for it.
        name: of one that need not be put twice.
        owner: who gets something by it, so that it is not begun once the owner has been answered; ``None`` where it is done
            in any case.
        answered: whether whoever asked for it has been answered.
    """

    do: Callable[[], None]
    answer: Answer
    name: str = ""
    owner: object = None
    answered: bool = False

    def tell(self, refusal: RefusedError | None) -> None:
        """Answer, unless that has been done."""
        if not self.answered:
            self.answered = True
            self.answer(refusal)


def nobody(_: RefusedError | None) -> None:
    """Nobody has asked."""


class Worker:
    """A thread that does jobs, one after another.

    Args:
        name: of the thread.
        now_s: the clock.
        wake: called by the thread when there is something to finish.

    Attributes:
        jobs: put and not finished yet, in their order.
        hung: whether who waits for it has been told that it does not answer; until it finishes a job.
    """

    def __init__(self, name: str, now_s: Callable[[], float], wake: Callable[[], None]) -> None:
        self.jobs, self.hung = deque[Job](), False
        self._now_s, self._wake = now_s, wake
        self._put, self._done = SimpleQueue[Job | None](), deque[RefusedError | None]()
        self._since_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Have a job done after those that wait."""
        self.jobs.append(job)
        self._put.put(job)

    def once(self, name: str, do: Callable[[], None]) -> None:
        """Have something done for nobody, unless a job of that name is not finished yet."""
        if not self.has(name):
            self.put(Job(do, nobody, name))

    def has(self, name: str) -> bool:
        """Whether a job of a name is not finished yet."""
        return any(job.name == name for job in self.jobs)

    def busy_s(self) -> float:
        """For how long it has been doing what it does."""
        since_s = self._since_s
        return 0.0 if since_s is None else self._now_s() - since_s

    def finish(self) -> bool:
        """Answer those whose jobs are done; whether there were any."""
        count = len(self._done)
        for _ in range(count):
            self.jobs.popleft().tell(self._done.popleft())
        return count > 0

    def stop(self) -> None:
        """Do what waits, then nothing more."""
        self._put.put(None)

    def has_ended(self, longest_s: float) -> bool:
        """Whether everything is done, after waiting for it for so long."""
        self._thread.join(longest_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._put.get()) is not None:
            self._since_s = self._now_s()
            refusal = None
            try:
                if job.owner is None or not job.answered:
                    job.do()
            except RefusedError as error:
                refusal = error
            except Exception as error:  # a mistake in this program is no reason to leave the GPU alone
                refusal = RefusedError("message", f"wastenotd failed: {type(error).__name__}: {error}")
            self._done.append(refusal)
            self._since_s = None
            self._wake()
