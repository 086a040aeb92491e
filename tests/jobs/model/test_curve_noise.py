"""Batch sizes whose runs scatter differently: a lone unlucky run does not decide what is believed."""

import pytest

from wastenot.jobs.judge.made import made_job
from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.tables.records import JobRun, JobTerms, Speed

_EPOCH_S = {64: 19.0, 128: 12.0, 256: 10.0, 512: 7.8, 1024: 7.1}


def _learned(runs):
    terms = JobTerms("job", tuple(_EPOCH_S), 64, 1.0, max_epochs=100, eta=0.0)
    learner = Learner(terms, "cpu")
    for number, (size, epochs) in enumerate(runs, 1):
        learner.measured(Speed("cpu", size, terms.settings[0], _EPOCH_S[size], None))
        learner.began(JobRun(number, size, "cpu", "running", 0, 0.0, None))
        learner.ended(JobRun(number, size, "cpu", "reached", epochs, epochs * _EPOCH_S[size], None))
    return learner


def test_a_lone_unlucky_run_does_not_keep_larger_batch_sizes_from_being_tried_for_long():
    learner = _learned([(64, 4), (256, 7)] + [(128, epochs) for epochs in (4, 5, 4, 4, 5, 4, 4, 4, 5, 4) * 2])
    decision = learner.choose()
    assert decision.batch_size > 128, decision.why


def test_batch_sizes_are_noisy_each_for_itself():
    noise = _learned([(64, 10)] * 12 + [(128, epochs) for epochs in (10, 16, 9, 18, 10, 15)])._epochs.belief().noise_variance
    assert noise[1] > 4.0 * noise[0]


@pytest.mark.parametrize("seed", range(500, 503))
def test_made_up_jobs_of_uneven_noise_are_learned(seed):
    trace = made_job("uneven noise", seed)
    regret = simulate(trace, lambda each: Learner(each.terms, each.device), 60, seed).regret
    assert regret[-1] - regret[-20] < 5.0  # the last twenty cost at most a quarter more each than the best pair's
