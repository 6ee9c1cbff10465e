"""Run by torchrun: a tiny Llama under DeepSpeed's ZeRO, stages 2 and 3, with its sequence cut over the ranks; loss and
gradients against one process. Rank 0 prints what it has shown."""
import os
import pathlib
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from deepspeed.utils import safe_get_full_grad  # noqa: E402

import ringattn.hf  # noqa: E402
import ringattn.torch as rt  # noqa: E402
from test_training import N, batch_of, by_hand, close, gradients, tiny  # noqa: E402

TOLERANCE = 1e-6  # ZeRO keeps gradients in float32


def under_zero(stage):
    model = tiny("ringattn").float()
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
    return engine, model


def main():
    deepspeed.init_distributed("gloo")
    ctx = rt.init()
    ringattn.hf.register()
    for packed in (False, True):
        batch = batch_of(packed)
        one = tiny("sdpa").float().double()  # the same parameters, in double
        want = by_hand(one, batch, [0, 9, 10, 30, N] if packed else [0, N])
        want.backward()
        expected = gradients(one)
        for stage in (2, 3):
            engine, model = under_zero(stage)
            own = rt.shard_batch(batch, ctx=ctx)
            logits = engine(input_ids=own["input_ids"], position_ids=own["position_ids"]).logits
            loss = rt.cross_entropy(logits, own["shift_labels"], own["num_items_in_batch"], ctx)
            engine.backward(loss)
            assert abs(float(rt.mean_loss(loss, ctx)) - want.item()) < TOLERANCE * want.item()
            got = {name: safe_get_full_grad(parameter) for name, parameter in model.named_parameters()}
            worst = close(got, expected)
            engine.step()
            if dist.get_rank() == 0:
                print(f"shown: ZeRO-{stage}, {'packed' if packed else 'one document'}, as one process to {worst:.1e}",
                      flush=True)
    ctx.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
