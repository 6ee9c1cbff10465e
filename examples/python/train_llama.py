"""Trains a tiny Llama, made from a config, with every sequence cut over the ranks, under FSDP2 or DeepSpeed's ZeRO.

    torchrun --nproc-per-node 2 train_llama.py                     # or 4, or one: the losses are the same
    torchrun --nproc-per-node 2 train_llama.py --device cuda       # a GPU for each rank, over NCCL
    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 train_llama.py --zero 3
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig

import ringattn.hf
import ringattn.torch as rt

STEPS, TOKENS, VOCABULARY = 8, 203, 97


def make_model():
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512)
    torch.manual_seed(0)  # every rank starts from the same
    return AutoModelForCausalLM.from_config(config, attn_implementation="ringattn")


def make_batch(step, device):
    """Every rank has the whole batch: two documents packed into one row, each counting up from somewhere."""
    torch.manual_seed(step)
    first = int(torch.randint(20, TOKENS - 20, ()))
    documents = [(torch.arange(n) + int(torch.randint(0, VOCABULARY, ()))) %
                 VOCABULARY for n in (first, TOKENS - first)]
    ids = torch.cat(documents)[None].to(device)
    return {"input_ids": ids, "labels": ids.clone(), "cu_seqlens": torch.tensor([0, first, TOKENS]),
            "position_ids": torch.cat([torch.arange(len(d)) for d in documents])[None].to(device)}


def with_fsdp2(model, device):
    """The model, and what makes a step of a loss."""
    mesh = dist.init_device_mesh(device, (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    def step(loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step


def with_zero(model, stage):
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}, "gradient_clipping": 0.0,
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def step(loss):
        engine.backward(loss)
        engine.step()

    return engine, step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero", type=int, choices=(2, 3), help="DeepSpeed's stage; without it FSDP2")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked = parser.parse_args()
    stage, device = asked.zero, asked.device
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    ctx = rt.init()                        # 1. the ranks, from the default group
    ringattn.hf.register()                 # 2. attn_implementation="ringattn"
    model = make_model().to(device)        # 3. parameters over the same ranks that the sequence is cut over
    model, take_step = with_zero(model, stage) if stage else with_fsdp2(model, device)
    for number in range(STEPS):
        batch = rt.shard_batch(make_batch(number, device), ctx=ctx)    # 4. this rank's rows
        logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits
        loss = rt.cross_entropy(logits, batch["shift_labels"], batch["num_items_in_batch"], ctx)   # 5. the whole's mean
        take_step(loss)
        mean = rt.mean_loss(loss, ctx)
        if dist.get_rank() == 0:
            print(f"step {number}: loss {mean:.5f}", flush=True)
    ctx.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
