"""Names of workloads say how they are run, and can be read back."""

import pytest
from hypothesis import given, strategies as st

from wastenot.core.errors import BadInputError
from wastenot.workloads.build import build_workload, run_named


@given(
    st.sampled_from(["gpt3-small", "gpt3-xl", "llama-8b"]),
    st.sampled_from(["training", "prefill", "decode"]),
    st.integers(1, 64),
    st.sampled_from([128, 1024, 4096]),
    st.sampled_from([(1, False), (2, False), (2, True)]),
    st.sampled_from(["bf16", "fp8"]),
    st.sampled_from(["unfused", "flash"]),
)
def test_a_name_is_read_back(model, phase, batch, sequence, parallel, dtype, attention):
    degree, shared = parallel
    try:
        made = build_workload(model, phase=phase, batch=batch, sequence=sequence, tensor_parallel=degree,
                              sequence_parallel=shared, dtype=dtype, attention=attention)  # fmt: skip
    except BadInputError:
        return
    assert run_named(made.name) == made.run


@pytest.mark.parametrize("name", ["gpt3", "gpt3-xl-batch", "sweep", "gpt3-xl-tp1", "gpt3-huge", "a-b-c", ""])
def test_other_names_mean_no_model(name):
    assert run_named(name) is None
