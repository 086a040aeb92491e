"""Plans at work in programs: ``wn.apply``, trainers of other libraries, and programs that know nothing of wastenot."""
