"""Which requests kept their deadlines: one rule for engines and clusters."""

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.requests import Requests


@dataclass
class Answers:
    first_token_s: FloatArray
    finish_s: FloatArray
    late_tokens: IndexArray


def test_each_deadline_counts_and_a_request_without_an_answer_kept_none() -> None:
    came_s = np.arange(6.0)
    requests = Requests(came_s, np.full(6, 100), np.full(6, 11))
    first_s, last_s = np.array([0.1, 0.3, 0.1, 0.1, 0.1, np.nan]), np.array([2.0, 2.0, 2.0, 2.0, 9.0, np.nan])
    answers = Answers(came_s + first_s, came_s + last_s, np.array([0, 0, 1, 2, 0, 0]))
    deadlines = Deadlines(share=0.9, end_to_end_s=5.0)
    assert deadlines.kept(requests, answers).tolist() == [True, False, True, False, False, False]
