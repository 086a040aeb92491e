"""Serving: what an engine's steps cost, what to choose, servers measured, and clocks that follow the load.

model       an engine's profile, step times and energies, loads and deadlines, what to recommend
simulation  one engine, request by request
policies    how an engine's clock is chosen
cluster     many engines behind a router: controllers, their simulation, scenarios and runs
bench       servers measured: requests sent to them, latencies, energy, the steady state
control     clocks of running servers
tables      what a study keeps of servers and of simulated clusters
page        the reports
documents   what is kept and printed as JSON
cli         ``wastenot serve ...``: bench, profile, recommend, simulate, control
"""
