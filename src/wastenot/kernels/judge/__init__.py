"""The paper on kernel-level DVFS reproduced, table by table and figure by figure, on simulated GPUs."""
