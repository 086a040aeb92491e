"""Runs of a scenario shared over the machines of a Ray cluster, which need wastenot and none of the scenario's files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.install import install_line
from wastenot.serving.cluster.run_record import Run
from wastenot.serving.cluster.runs import Share, simulated
from wastenot.serving.cluster.scenario import Scenario


def over_machines(address: str) -> Share:
    """Runs shared over a Ray cluster, one for each of its cores at a time.

    Args:
        address: of the cluster, such as ``10.0.0.1:6379``; ``auto`` for the one that this machine is part of.

    Raises:
        MissingExtraError: the ``cluster`` extra is not installed.
    """
    ray = _ray()

    def share(scenario: Scenario, runs: Sequence[Run]) -> Iterator[tuple[Run, str]]:
        if not runs:
            return
        joined = not ray.is_initialized()
        if joined:
            try:
                ray.init(address, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise BadInputError(
                    f"ray: no cluster answers at '{address}' ({str(error).splitlines()[0]}); start one: ray start --head"
                ) from error
        waiting: dict[Any, Run] = {}
        try:
            remote, known = ray.remote(num_cpus=1)(simulated), ray.put(scenario)
            waiting |= {remote.remote(known, run): run for run in runs}
            while waiting:
                ended, _ = ray.wait(list(waiting))
                for each in ended:
                    yield waiting.pop(each), _result(ray, each)
        finally:
            for each in waiting:
                ray.cancel(each, force=True)
            if joined:
                ray.shutdown()

    return share


def _result(ray: Any, each: Any) -> str:
    try:
        text: str = ray.get(each)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BadInputError):
            raise BadInputError(*error.cause.args) from error
        raise
    return text


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except Exception as error:  # it looks for accelerators when imported, which may fail in any way
        raise MissingExtraError(
            f"sharing work over machines needs Ray, which cannot be imported ({error!r}): {install_line('cluster')}"
        ) from error
