"""Commands about kernels: plan, sweep, search, validate, natural clocks, forecasts, latencies."""
