"""Long-context inference: one forward pass of a transformers model over a sequence that is cut over the ranks.

    torchrun --nproc-per-node 2 long_context.py           # or: python long_context.py, one rank

Every rank holds its rows of every activation; no rank ever sees the whole. What is wanted of the logits, the surprise
at each token, is a sum that the ranks add up.
"""
import os

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig

import ringattn.hf
import ringattn.torch as rt

TOKENS, VOCABULARY = 1501, 97


def make_model():
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2 * TOKENS)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation="ringattn").eval()


def main():
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    ctx = rt.init()
    ringattn.hf.register()
    model = make_model()
    torch.manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (1, TOKENS))
    batch = rt.shard_batch({"input_ids": ids, "labels": ids}, ctx=ctx)
    with torch.inference_mode():
        # No cache: it would hold this rank's keys as if they were all.
        logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
        loss = rt.cross_entropy(logits, batch["shift_labels"], batch["num_items_in_batch"], ctx)
        mean = rt.mean_loss(loss, ctx)
    if ctx.rank == 0:
        print(f"{ctx.ranks} ranks, {logits.shape[1]} of {TOKENS} tokens here: {mean:.6f} nats per token", flush=True)
    ctx.close()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
