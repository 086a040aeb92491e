"""Small files that commands of serving read: steps of an engine, measured servers, a scenario."""

from testbed import ROOT

HEADER = "phase,sequences,tokens,context,core_mhz,time_s,power_w\n"


def row(phase, size, context, clock):
    ratio = 2000 / clock
    attended = size * (context + (size / 2 if phase == "prefill" else 0))
    time = max(1e-4 * size * ratio, 0.015 + 0.002 * ratio) + 5e-9 * attended
    volt = 0.75 + 0.5 * max(clock / 2000 - 0.6, 0)
    power = 100 + 300 * clock / 2000 * volt**2
    shape = f"1,{size}" if phase == "prefill" else f"{size},1"
    return f"{phase},{shape},{context},{clock},{time:.6g},{power:.6g}\n"


CLOCKS = (800, 1100, 1400, 1700, 2000)
STEPS = HEADER + "".join(
    [row("decode", b, c, f) for f in CLOCKS for b in (1, 8, 64, 256) for c in (256, 2048)]
    + [row("prefill", n, 0, f) for f in CLOCKS for n in (128, 512, 2048)]
    + [f"idle,,,,{f},,80\n" for f in CLOCKS]
)

SERVERS = """task,model_id,gpu_model,num_gpus,max_num_seqs,energy_per_token_joules,median_itl_ms,p99_itl_ms,avg_power_watts
chat,org/small,H100,1,8,0.40,8,11,400
chat,org/small,H100,1,64,0.10,20,60,500
chat,org/small,H100,1,256,0.08,70,90,600
chat,org/large,H100,4,8,3.0,18,20,1800
chat,org/large,B200,4,64,0.6,28,40,2400
"""

ENGINE = ROOT / "data" / "serving" / "llama-8b-sim-h200.json"
DRAWN = 'kind = "poisson"\nrate_per_s = 10\nduration_s = 10.0'
SCENARIO = f"""
[cluster]
engines = "{ENGINE}"
hosts = 1
gpus_per_host = 4
[[traffic]]
{DRAWN}
[run]
policies = ["single-pool", "scale-clocks"]
"""
