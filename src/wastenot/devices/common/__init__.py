"""What GPUs of every vendor have in common: rights, lock, lease, journal, recovery and claim. See :mod:`.driver`."""
