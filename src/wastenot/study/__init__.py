"""Studies: durable sets of measurements, how they are stored, and how data comes in and goes out."""
