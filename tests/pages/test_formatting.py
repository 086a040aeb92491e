"""Numbers as pages show them."""

from wastenot.pages.formatting import saved_range


def test_a_range_of_savings_has_the_sign_of_the_saving_beside_it_unless_it_may_be_a_loss():
    def plain(*arguments, **options):
        return saved_range(*arguments, **options).replace("\N{NO-BREAK SPACE}", " ")

    assert plain((-0.0208, -0.0144)) == "1.44 % to 2.08 % saved"
    assert plain((-0.003, -0.0019), what="faster", name="time") == "0.19 % to 0.30 % faster"
    assert plain((-0.003, 0.0019), what="faster", name="time") == "time −0.30 % to +0.19 %"
