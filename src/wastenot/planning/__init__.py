"""Planning: from what kernels cost at each setting to the settings to use. Pure functions of a sweep."""
