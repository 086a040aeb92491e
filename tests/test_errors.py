"""Errors name arguments to who calls the library, and flags to who types them."""

import pytest

from wastenot.cli.main import flag_of
from wastenot.core.errors import BadInputError


def test_str_shows_the_arguments_and_the_command_line_its_flags() -> None:
    error = BadInputError("`clock_tolerance_mhz` -1: must be at least 0; plan by `granularity` kernel, or fix 'a `b` c'")
    assert str(error).startswith("clock_tolerance_mhz -1: must be at least 0; plan by granularity kernel")
    assert error.text(flag_of).startswith("--clock-tolerance -1: must be at least 0; plan by --granularity kernel")


@pytest.mark.parametrize(
    ("argument", "flag"),
    [("max_slowdown", "--max-slowdown"), ("core_step_mhz", "--core-step"), ("exact_time", "exact_time")],
)
def test_an_argument_without_a_flag_keeps_its_name(argument: str, flag: str) -> None:
    assert flag_of(argument) == flag
