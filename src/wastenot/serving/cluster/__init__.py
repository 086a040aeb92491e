"""Many engines behind one router: pools by class of request, sized, sharded, clocked, parked; simulated and controlled."""
