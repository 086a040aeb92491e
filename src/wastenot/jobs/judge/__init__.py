"""Jobs that recur, simulated from traces of others' runs, with policies side by side."""
