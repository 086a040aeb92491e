"""What is known of true costs after a noisy sweep: posteriors, expectations, plans that hold with a confidence."""
