"""What a study keeps of servers and of simulated clusters."""
