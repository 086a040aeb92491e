"""Numbers as people write them, and the questions asked where they may mean something else."""

import pytest
import typer

from wastenot.terminal import quantities


@pytest.mark.parametrize(
    ("text", "value"),
    [("2%", 0.02), ("2 %", 0.02), ("2\u00a0%", 0.02), ("-1%", -0.01), ("−1 %", -0.01), ("0.02", 0.02), ("200%", 2.0),
     (".5", 0.5), ("1e-3", 0.001), ("7.3%", 0.073), (0.3, 0.3)],
)  # fmt: skip
def test_fractions_are_read_with_and_without_per_cent(text, value):
    assert quantities.slowdown(text) == value


@pytest.mark.parametrize(("text", "says"), [
    ("2", "2 would be 200 % slower; for 2 % write 2% or 0.02; for 200 % write 200%"),
    ("1", "1 would be 100 % slower; for 1 % write 1% or 0.01; for 100 % write 100%"),
    ("-5", "-5 would be 500 % faster; for -5 % write -5% or -0.05"),
    ("much", "'much' is not a fraction such as 0.02, or 2%"),
    ("2 ms", "'2 ms' is not a fraction such as 0.02, or 2%"),
    ("", "'' is not a fraction such as 0.02, or 2%"),
])  # fmt: skip
def test_a_slowdown_that_may_be_meant_in_per_cent_is_questioned(text, says):
    with pytest.raises(typer.BadParameter) as refused:
        quantities.slowdown(text)
    assert refused.value.message == says


def test_a_share_may_be_the_whole_but_no_more():
    assert (quantities.share("1"), quantities.share("100%")) == (1.0, 1.0)
    with pytest.raises(typer.BadParameter, match=r"95 would be 9500 %; for 95 % write 95% or 0\.95$"):
        quantities.share("95")
    with pytest.raises(typer.BadParameter, match="for 1 % write 1%"):
        quantities.relative("1")


@pytest.mark.parametrize(("read", "text", "value"), [
    (quantities.seconds, "30ms", 0.03), (quantities.seconds, "250 µs", 250e-6), (quantities.seconds, "2min", 120.0),
    (quantities.seconds, "5s", 5.0), (quantities.seconds, "0", 0.0), (quantities.megahertz, "210MHz", 210.0),
    (quantities.megahertz, "1.41 GHz", 1410.0),
    (quantities.watts, "0.3kW", 300.0), (quantities.celsius, "65°C", 65.0),
])  # fmt: skip
def test_units_are_read_where_they_are_given(read, text, value):
    assert read(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(("read", "text"), [(quantities.seconds, "5 W"), (quantities.megahertz, "210 ms"),
                                            (quantities.watts, "high"), (quantities.celsius, "300 K")])  # fmt: skip
def test_a_wrong_unit_is_refused(read, text):
    with pytest.raises(typer.BadParameter, match="is not a"):
        read(text)


@pytest.mark.parametrize("text", ["50", "0.03", "1e-3", " 5 "])
def test_a_time_without_a_unit_is_asked_for_one(text):
    with pytest.raises(typer.BadParameter, match=rf"{text.strip()} has no unit: write {text.strip()}ms or {text.strip()}s"):
        quantities.seconds(text)
