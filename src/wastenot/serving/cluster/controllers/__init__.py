"""Controllers of a cluster: each decides what runs where, at which clock."""
