"""Run by torchrun with the folder of ring_flash_attn's own test scripts: runs them all, plain and compiled, with only
the import changed. Rank 0 prints what it has shown; a difference that is more than rounding fails.

Where flash_attn is missing, SDPA computes what is expected. Without GPUs the scripts get "cpu" for "cuda" and gloo for
NCCL, and graphs are not made into programs.
"""
import functools
import pathlib
import sys
import types

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention as sdpa

from ringattn.compat import ring_flash_attn

SCRIPTS = ("llama3_flash_attn_varlen_func", "llama3_prepare_cu_seqlens", "ring_flash_attn_func",
           "ring_flash_attn_varlen_func", "stripe_flash_attn_func", "zigzag_ring_flash_attn_func",
           "zigzag_ring_flash_attn_varlen_func")
# Of bfloat16, where values are below 8: some units in the last place.
LIMIT = 0.0625


def attend(qkv, causal):
    """qkv [B, S, 3, H, D] -> out [B, S, H, D], lse [B, H, S]."""
    q, k, v = (x.transpose(1, 2).float() for x in qkv.unbind(2))
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], device=qkv.device).triu(1).bool(), float("-inf"))
    return sdpa(q, k, v, is_causal=causal).transpose(1, 2).to(qkv.dtype), scores.logsumexp(-1).detach()


def flash_attn_qkvpacked_func(qkv, causal=False, **_how):
    return (*attend(qkv, causal), None)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, causal=False, **_how):
    cu = cu_seqlens.tolist()
    each = [attend(qkv[None, start:end], causal) for start, end in zip(cu, cu[1:])]
    return torch.cat([o[0] for o, _ in each]), torch.cat([lse[0] for _, lse in each], 1), None


def stand_in():
    """A module `flash_attn` where there is none."""
    try:
        import flash_attn  # noqa: F401
    except ImportError:
        made = types.ModuleType("flash_attn")
        made.flash_attn_qkvpacked_func = flash_attn_qkvpacked_func
        made.flash_attn_varlen_qkvpacked_func = flash_attn_varlen_qkvpacked_func
        sys.modules["flash_attn"] = made


def check(worst, message, values, rank0_only=False):
    """In place of the scripts' log, which prints."""
    if "diff" in message:
        worst.append(values.abs().max().item())
        assert worst[-1] < LIMIT, (message, worst[-1])


def main(folder):
    sys.path.insert(0, str(folder))
    sys.modules["ring_flash_attn"] = ring_flash_attn
    stand_in()
    import utils

    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        torch.compile = functools.partial(torch.compile, backend="aot_eager")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    dist.init_process_group = dist.destroy_process_group = lambda *_: None  # one for all
    for argument in ([], ["compile"]):
        for name in SCRIPTS:
            worst = []
            utils.log = functools.partial(check, worst)
            text = (folder / f"test_{name}.py").read_text()
            if not on_gpu:
                text = text.replace("cuda:{rank}", "cpu").replace('"cuda"', '"cpu"')
            sys.argv = [name, *argument]
            exec(compile(text, name, "exec"), {"__name__": "__main__"})
            if dist.get_rank() == 0:
                print("shown:", name, *argument, f"to {max(worst, default=0):.3g}", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
