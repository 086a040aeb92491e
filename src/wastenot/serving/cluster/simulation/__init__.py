"""Many engines behind a router, few events for each request."""
