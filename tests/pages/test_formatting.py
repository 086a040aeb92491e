"""Numbers as pages show them."""

import pytest

from wastenot.pages.formatting import digits_within, saved_range


def test_a_range_of_savings_has_the_sign_of_the_saving_beside_it_unless_it_may_be_a_loss():
    def plain(*arguments, **options):
        return saved_range(*arguments, **options).replace("\N{NO-BREAK SPACE}", " ")

    assert plain((-0.0208, -0.0144)) == "1.4 % to 2.1 % saved"
    assert plain((-0.003, -0.0019), what="faster", name="time") == "0.19 % to 0.30 % faster"
    assert plain((-0.003, 0.0019), what="faster", name="time") == "time −0.3 % to +0.2 %"


@pytest.mark.parametrize(("half_percent", "digits"), [(0.02, 2), (0.09, 2), (0.11, 1), (0.9, 1), (1.1, 1), (20.0, 1)])
def test_no_more_digits_are_shown_than_the_interval_allows(half_percent, digits):
    assert digits_within((-0.1 - half_percent / 100, -0.1 + half_percent / 100)) == digits
