"""A whole iteration under the power limit, as a user meets it."""

import json

import pytest

HEAD = "kernel,count,core_mhz,memory_mhz,time_s,energy_j,pass,block,time_se_s,energy_se_j,effective_core_mhz,temperature_c\n"
# time at 1.5 GHz, its exponent, power there, its exponent
KERNELS = {"product": (2e-3, -1.0, 730.0, 2.2), "softmax": (6e-4, -0.9, 430.0, 1.8), "permute": (5e-4, -0.05, 480.0, 1.1)}
LIMIT_W = 690.0


def row(name, requested):
    time_s, slower, power_w, more = KERNELS[name]
    clock = 1980.0 if requested is None else requested
    clock = min(clock, 1500.0 * (LIMIT_W / power_w) ** (1.0 / more))  # where the limit holds it by itself
    taken_s, drawn_w = time_s * (clock / 1500.0) ** slower, power_w * (clock / 1500.0) ** more
    shown = "" if requested is None else f"{requested:g}"
    return f"{name},24,{shown},,{taken_s:.9g},{taken_s * drawn_w:.9g},forward,layer,{taken_s * 1e-3:.3g},{2e-3 * taken_s * drawn_w:.3g},{clock:.6g},55"  # noqa: E501


@pytest.fixture
def swept(wastenot):
    clocks = [None, *range(1200, 1981, 60)]
    rows = "\n".join(row(name, clock) for name in KERNELS for clock in clocks)
    (wastenot.folder / "natural.csv").write_text(HEAD + rows + "\n")
    ran = wastenot("study", "import", "natural.csv", "--study", "my.db", "--device-name", "Test GPU", "--workload", "tiny")
    assert ran.code == 0, ran.err
    return wastenot


def test_it_predicts_the_iteration_and_two_plans(swept):
    said = json.loads(swept("kernel", "iteration", "--study", "my.db", "--json").out)
    assert said["limited"]
    assert said["power_limit_w"] == pytest.approx(LIMIT_W, rel=1e-6)
    assert said["energy_j"]["value"] / said["time_s"]["value"] == pytest.approx(LIMIT_W, rel=1e-6)
    total_s = sum(kernel["count"] * kernel["time_s"] for kernel in said["kernels"])
    assert total_s == pytest.approx(said["time_s"]["value"])
    alone_s = sum(24 * time_s * (min(1980.0, 1500.0 * (LIMIT_W / power_w) ** (1.0 / more)) / 1500.0) ** slower
                  for time_s, slower, power_w, more in KERNELS.values())  # fmt: skip
    assert said["alone"]["time_s"] == pytest.approx(alone_s, rel=1e-6)
    assert said["alone"]["time_s"] != pytest.approx(said["time_s"]["value"], rel=1e-3)
    assert [each["kernel"] for each in said["extrapolated"]] == ["product"]
    assert said["fastest"]["time_s"] < said["time_s"]["value"]
    assert said["fastest"]["power_w"] <= LIMIT_W * (1 + 1e-6)
    assert said["least_energy"]["energy_j"] < said["fastest"]["energy_j"]
    assert said["fastest"]["core_mhz"]["permute"] < said["fastest"]["core_mhz"]["product"]
    assert said["fastest"]["time_change"]["low"] <= said["fastest"]["time_change"]["high"]


def test_it_says_so_in_text(swept):
    text = " ".join(swept("kernel", "iteration", "--study", "my.db").out.split())
    for part in ("Fastest plan", "Least energy", "the power limit holds it there: 690 W", "were not seen at", "permute"):
        assert part in text


def test_a_limit_that_does_not_bind(swept):
    said = json.loads(swept("kernel", "iteration", "--study", "my.db", "--power-limit", "5000", "--json").out)
    assert (said["limited"], said["core_mhz"]["value"]) == (False, 1980.0)
    assert said["fastest"]["time_change"]["value"] == pytest.approx(0.0, abs=1e-3)
    assert "does not hold it down" in swept("kernel", "iteration", "--study", "my.db", "--power-limit", "5000").out


def test_a_warmer_gpu_is_slower(swept):
    cold, same, warm = (
        json.loads(swept("kernel", "iteration", "--study", "my.db", "--json", *flags).out)
        for flags in ([], ["--temperature", "55"], ["--temperature", "65"])
    )
    assert same["time_s"]["value"] == cold["time_s"]["value"]
    # 1 % more power of all kernels is as 1 % less limit.
    less = json.loads(swept("kernel", "iteration", "--study", "my.db", "--json", "--power-limit", str(LIMIT_W / 1.01)).out)
    assert warm["time_s"]["value"] == pytest.approx(less["time_s"]["value"], rel=1e-6)
    assert warm["time_s"]["value"] > cold["time_s"]["value"]
    assert "--temperature" in swept.refuse("kernel", "iteration", "--study", "my.db", "--temperature", "nan")


def test_what_cannot_be_predicted_is_refused(swept):
    assert "--power-limit" in swept.refuse("kernel", "iteration", "--study", "my.db", "--power-limit", "-3")
    assert "draws" in swept.refuse("kernel", "iteration", "--study", "my.db", "--power-limit", "100")
    swept("study", "import", "sweep.csv", "--study", "bare.db")
    assert "clock it runs at by default is unknown" in swept.refuse("kernel", "iteration", "--study", "bare.db")
