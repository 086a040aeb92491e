"""A program's side of a session: hooks and markers of one process, and its line to whoever controls the clocks.

Loaded into other people's programs, so it imports nothing but the standard library; PyTorch is handed in. Whatever fails
here costs the program nothing but its plan.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from wastenot.control.harmless import Harmless
from wastenot.control.hooks import Hooks
from wastenot.control.markers import Markers
from wastenot.control.wire import SEATED_BY, VARIABLE, Line, Message, hello

_SEEN_AFTER = 3  # steps of the optimizer: by then a whole iteration has been seen


class Rank:
    """Reports what a process reaches.

    Args:
        path: of the session's socket.
        torch: PyTorch, where the program uses it.

    Attributes:
        harmless: what the program calls it through: what fails hangs up, and the program continues.
    """

    def __init__(self, path: str, torch: Any = None) -> None:
        self.harmless = Harmless(self.close)
        self._path, self._torch = path, torch
        self._line: Line | None = None
        self._welcome: Message = {}
        self._markers: Markers | None = None
        self._hooks: Hooks | None = None
        self._automatic = False
        self._steps = 0
        self._seated: int | None = None
        self._instructed_by_hand = False
        self._over = False

    # ---- for those who use it --------------------------------------------------------------------------------

    def watch_everything(self) -> None:
        """Mark the iterations of whatever optimizer the program uses, until it marks or watches something itself."""
        if self._torch is None or self._hooks is not None:
            return
        self._automatic = True
        self._hooks = Hooks(
            self._record, self._torch, on_step=self._stepped, on_first_step=self._configure, harmless=self.harmless
        )
        self._hooks.watch_all_optimizers()

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Mark the iterations of a model.

        Args:
            model: a module, as the program calls it.
            optimizer: one or several; by default every optimizer of the program ends an iteration.
        """
        self._by_hand()
        if self._hooks is None:
            self._hooks = Hooks(self._record, self._torch, on_step=self._stepped, harmless=self.harmless)
            self._configure()
            if optimizer is None:
                self._hooks.watch_all_optimizers(find_models=False)
        optimizers = () if optimizer is None else tuple(optimizer) if isinstance(optimizer, (list, tuple)) else (optimizer,)
        self._hooks.watch(model, optimizers=optimizers)

    def mark(self, name: str) -> None:
        """Mark a place by hand."""
        self._by_hand()
        self._record(name)

    def note(self, name: str) -> None:
        """Mark a place that hooks do not know of, such as the end of an epoch; those being applied continue."""
        self._record(name)

    def instruct(self, marker: str, pipeline_rank: int) -> None:
        """Mark the begin of an instruction of a pipeline by hand; stages that are watched mark none from then on.

        Args:
            marker: of the instruction.
            pipeline_rank: this process's.
        """
        self._instructed_by_hand = True
        self._instruct(marker, pipeline_rank)

    def _instruct(self, marker: str, pipeline_rank: int) -> None:
        if self._seated is None and not self._over:
            self._by_hand()
            self._seated = pipeline_rank
            if self._began():
                self._tell_gpu()
                environment = {name: os.environ[name] for name in SEATED_BY if name in os.environ}
                self._try_to_send({"pipeline_rank": pipeline_rank, "environment": environment})
        self._record(marker)

    def instruct_stage(self, name: str, micro_batch: int, stage: int, pipeline_rank: int) -> None:
        """Mark an instruction of one of PyTorch's pipeline stages."""
        if not self._instructed_by_hand:
            self.harmless.call(self._instruct, f"{name}:{micro_batch}:{stage}", pipeline_rank)

    def connect(self) -> Message:
        """Connect to the session, if it is not connected yet.

        Returns:
            Its welcome.

        Raises:
            OSError: there is no session, or it does not answer.
            ValueError: it refuses this program; the text says why.
        """
        if self._line is None:
            line = Line.to(self._path)
            program = "python" if self._torch is None else f"torch {self._torch.__version__}"
            answer = line.ask(hello(program))
            if not answer.get("welcome"):
                line.close()
                raise ValueError(str(answer.get("refused", "the session did not understand")))
            line.socket.settimeout(None)
            self._line, self._welcome = line, answer
        return self._welcome

    def close(self) -> None:
        """Stop marking and disconnect, once the GPU has reached what was marked."""
        self._over = True
        if self._hooks is not None and not self.harmless.broken:  # a hook that failed is still being called
            self._hooks.detach()
        markers, self._markers = self._markers, None
        try:
            if markers is not None:
                markers.close()
        finally:
            if self._line is not None:
                with suppress(OSError):
                    self._line.close_when_heard()

    # ---- inside ----------------------------------------------------------------------------------------------

    def _by_hand(self) -> None:
        if self._automatic and self._hooks is not None:
            self._hooks.detach()
            self._hooks, self._automatic = None, False

    def _configure(self) -> None:
        """Learn from the session what it wants to be told."""
        if self._hooks is not None and self._began():
            self._hooks.configure(wanted=map(str, self._welcome["wanted"]), by_layers=bool(self._welcome["by_layers"]))

    def _began(self) -> bool:
        """Whether there is a session; connects at the first call."""
        if self._over:
            return False
        try:
            self.connect()
        except (OSError, ValueError) as error:
            self._over = True
            print(f"wastenot: {self._path}: {error}; this process runs without the plan", file=sys.stderr)
            return False
        return True

    def _record(self, *names: str) -> None:
        if self._over:
            return
        if self._markers is None:
            if not self._began():
                return
            on_gpu = self._tell_gpu()
            self._markers = Markers(self._send_markers, self._torch if on_gpu else None)
        self._markers.record(*names)

    def _tell_gpu(self) -> bool:
        """Say which GPU PyTorch runs on; whether it runs on one."""
        torch = self._torch
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return False
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._try_to_send({"gpu": str(properties.uuid)})
        return True

    def _send_markers(self, names: tuple[str, ...], at_s: float) -> None:
        assert self._line is not None
        try:
            self._line.send({"markers": names, "at_s": at_s})
        except OSError:
            self._session_ended()
            raise

    def _stepped(self) -> None:
        self._steps += 1
        if self._steps == _SEEN_AFTER and self._hooks is not None and self._line is not None:
            self._try_to_send({"seen": asdict(self._hooks.seen())})

    def _try_to_send(self, message: Message) -> None:
        if self._line is not None:
            with suppress(OSError):
                self._line.send(message)

    def _session_ended(self) -> None:
        """The session disconnected. If it died, a command resets what it set, as nobody else may be there."""
        self._over = True
        line, reset = self._line, self._welcome.get("reset")
        said_goodbye = False
        if line is not None:
            with suppress(OSError, ValueError):
                line.socket.setblocking(False)
                said_goodbye = any(message.get("bye") for message in line.taken(line.socket.recv(1 << 16)))
        if said_goodbye or not reset:
            return
        print(f"wastenot: {self._path}: has ended early; this process runs on without the plan", file=sys.stderr)
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        with suppress(OSError):
            subprocess.Popen(
                reset, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
