"""Policies of wastenotd read from their files, or refused by the first mistake in them."""

from __future__ import annotations

from pathlib import Path

from wastenot.devices.clockd.policy import Policy, policy_of, read_files


def read_policy(path: Path, jobs: Path | None = None) -> Policy:
    """A policy, with the rules of jobs in a folder.

    Raises:
        BadInputError: there is a mistake in a file.
    """
    files, mistakes = read_files(path, jobs)
    for mistake in mistakes:
        raise mistake
    return policy_of(path, files)
