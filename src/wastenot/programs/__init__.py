"""Programs under plans: ``wn.apply``, ``wn.tune``, trainers of other libraries, programs that know nothing of wastenot."""
