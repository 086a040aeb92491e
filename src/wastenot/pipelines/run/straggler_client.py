"""What anyone may ask a straggler server, or tell it: not the ranks, but people and what watches a cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from wastenot.control.places import make_socket_path
from wastenot.core.errors import BadInputError, DeviceError
from wastenot.pipelines.run.straggler_wire import ask, read_token


@dataclass(frozen=True, slots=True)
class StragglerClient:
    """A straggler server, from another process or machine.

    Every call raises :class:`wastenot.DeviceError` where no server answers, and :class:`wastenot.BadInputError` where it
    refuses or an argument makes no sense.

    Attributes:
        at: where it listens, a path or HOST:PORT; by default the socket of the user's server.
        token_file: file of the token that it wants, for HOST:PORT.
    """

    at: str | None = None
    token_file: str | os.PathLike[str] | None = None

    def status(self) -> dict[str, Any]:
        """Who is slow, and what each pipeline runs (``wastenot.straggler/1``)."""
        status: dict[str, Any] = self._ask({"ask": "status"})["status"]
        return status

    def tell(self, replica: int, slower: float, for_s: float | None = None) -> None:
        """Tell the server that a pipeline is slower.

        Args:
            replica: which, from 0.
            slower: by which fraction, such as 0.2.
            for_s: for which time; by default until it is told otherwise.
        """
        self._ask({"ask": "tell", "replica": replica, "slower": slower, "for_s": for_s})

    def clear(self, replica: int | None = None) -> None:
        """What was told of a pipeline, or of all of them, holds no more: what is measured counts."""
        self._ask({"ask": "clear", "replica": replica})

    def stop(self) -> None:
        """End the server; ranks keep their plans for 200 iterations at most."""
        self._ask({"ask": "stop"})

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        address, token = self.at or default_address(), token_in(self.token_file)
        try:
            return ask(address, message, token)
        except OSError as error:
            raise DeviceError(
                f"{address}: no straggler server answers ({error.strerror or error}); start one with "
                "'wastenot pipeline straggler PLAN.json'"
            ) from error
        except ValueError as error:
            raise BadInputError(f"{address}: {error}") from error


def default_address() -> str:
    """The socket of the user's server; its folder is made where it is missing."""
    return str(make_socket_path("straggler"))


def token_in(path: str | os.PathLike[str] | None) -> str | None:
    """The token in a file; ``None`` where no file is given.

    Raises:
        BadInputError: the file cannot be read, is open to others, or its token is short.
    """
    try:
        return None if path is None else read_token(path)
    except OSError as error:
        raise BadInputError(f"`token_file` {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInputError(f"`token_file` {error}") from error
