"""Traces of a small training job, in the form that Zeus publishes: epochs to a target, and power by limit."""

TRAIN = "dataset,network,batch_size,optimizer,run,target_metric,target_epoch\n" + "".join(
    f"digits,mlp,{size},sgd,{run},{target},{epochs + run + more}\n"
    for size, epochs in ((16, 6), (32, 6), (64, 9), (128, 30))
    for run in (0, 1)
    for target, more in ((0.5, 0), (0.9, 4))
)
POWER = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n" + "".join(
    f"digits,mlp,{size},sgd,{limit},{40 + 1600 / size + 4000 / limit},{0.8 * limit}\n"
    for size in (16, 32, 64, 128)
    for limit in (250, 200, 150)
)
