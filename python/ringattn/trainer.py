"""transformers' Trainer and accelerate with sequences cut over ranks.

    class MyTrainer(ringattn.trainer.TrainerMixin, transformers.Trainer): ...
    ctx = rt.init()                                                    # or rt.init(mesh["cp"])
    ringattn.hf.register()
    MyTrainer(model=AutoModelForCausalLM.from_config(config, attn_implementation="ringattn"), args=..., ...).train()

    with ringattn.trainer.same_batches(ctx):                           # accelerate
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

Both packages have a context parallelism of their own (cp_size), which takes no other backend; leave that at 1. Their
processes are dp groups of ctx.ranks ranks each: the ranks of a group get the same batches, and gradients are averaged
over all processes, as they do it anyway.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import UnsupportedError
from .torch.batch import IGNORED, shard_batch, shifted_labels
from .torch.context import Context, current
from .torch.functional import token_loss


def data_parallel(ctx: Context) -> Tuple[int, int]:
    """(which group of ranks this one is, how many groups there are) among the processes of the default group.
    Collective."""
    if ctx.group is None or not dist.is_initialized():
        return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = dist.get_process_group_ranks(ctx.group)[0]
    firsts: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(firsts, mine)
    groups = sorted(set(firsts))
    return groups.index(mine), len(groups)


@contextmanager
def same_batches(ctx: Optional[Context] = None) -> Iterator[None]:
    """Data loaders that accelerate prepares inside deal batches to groups of ranks, not to each rank. Collective."""
    from accelerate import accelerator as module

    index, groups = data_parallel(current(ctx))
    before = module.prepare_data_loader

    def prepare_data_loader(*arguments: Any, **how: Any) -> Any:
        # A dispatcher would read on one process and deal to every rank.
        return before(*arguments, **{**how, "num_processes": groups, "process_index": index, "dispatch_batches": False})

    module.prepare_data_loader = prepare_data_loader
    try:
        yield
    finally:
        module.prepare_data_loader = before


class TrainerMixin:
    """In front of transformers.Trainer, or of a subclass: batches are cut over ctx, the current context.

    The loss is the mean over all tokens of all micro-batches and, with args.average_tokens_across_devices, of all
    groups, as Trainer's is. Evaluation gives the loss; logits are cut, so there is no compute_metrics.
    """

    ring_context: Optional[Context] = None  # instead of the current one

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        config = getattr(self.accelerator, "parallelism_config", None)
        if config is not None and (getattr(config, "cp_size", 1) or 1) * (getattr(config, "sp_size", 1) or 1) > 1:
            raise UnsupportedError("parallelism_config has a context parallelism of its own; leave cp_size and "
                                   "sp_size at 1")
        if getattr(self, "label_smoother", None) is not None:
            raise UnsupportedError("label_smoothing_factor: ringattn's loss of a cut sequence has none; set it to 0")
        if getattr(self, "compute_loss_func", None) is not None:
            raise UnsupportedError("compute_loss_func: logits are cut; the loss is ringattn.torch.cross_entropy")
        if getattr(self, "compute_metrics", None) is not None:
            raise UnsupportedError("compute_metrics: logits are cut; evaluation gives the loss only")
        # The loss below is divided by the tokens of all micro-batches; Trainer need not divide it once more.
        self.model_accepts_loss_kwargs = True

    def _ring(self) -> Context:
        return current(self.ring_context)

    def _get_dataloader(self, *arguments: Any, **how: Any) -> Any:
        with same_batches(self._ring()):
            return super()._get_dataloader(*arguments, **how)

    def get_batch_samples(self, *arguments: Any) -> Tuple[List[Any], Optional[Tensor]]:
        """The micro-batches of a step, and how many labels they have, each group's batches counted once."""
        samples, _ = super().get_batch_samples(*arguments)
        return samples, self._count(samples)

    def _count(self, samples: List[Dict[str, Any]]) -> Optional[Tensor]:
        labels = [shifted_labels(batch) for batch in samples]
        if not labels or any(x is None for x in labels):
            return None
        count = sum((x != IGNORED).sum() for x in labels).to(self.args.device)
        if self.args.average_tokens_across_devices and dist.is_initialized():
            count = self.accelerator.gather(count).sum() / self._ring().ranks
        return count

    def compute_loss(self, model: Any, inputs: Dict[str, Any], return_outputs: bool = False,
                     num_items_in_batch: Any = None) -> Any:
        """This rank's summand of the loss: the mean over all processes is the whole's."""
        ctx = self._ring()
        batch = shard_batch(inputs, ctx=ctx)
        labels, own = batch.pop("shift_labels"), batch.pop("num_items_in_batch")
        outputs = model(**batch)
        across = self.args.average_tokens_across_devices and dist.is_initialized()
        if num_items_in_batch is None:
            num_items_in_batch, across = own, False
        processes = dist.get_world_size() if across else ctx.ranks
        loss = token_loss(outputs.logits, labels) * processes / num_items_in_batch
        return (loss, outputs) if return_outputs else loss

    def prediction_step(self, model: Any, inputs: Dict[str, Any], prediction_loss_only: bool,
                        ignore_keys: Optional[List[str]] = None) -> Tuple[Tensor, None, None]:
        if not prediction_loss_only:
            raise UnsupportedError("logits are cut; set args.prediction_loss_only=True")
        with torch.no_grad(), self.compute_loss_context_manager():
            return self.compute_loss(model, self._prepare_inputs(inputs)).detach(), None, None
