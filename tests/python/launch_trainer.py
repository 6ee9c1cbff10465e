"""Run by launch_all.py: transformers' Trainer and accelerate with sequences cut over pairs of ranks, and with 4 ranks
two such pairs; parameters after some steps against one process by hand. Rank 0 prints what it has shown."""
import tempfile

import torch
import torch.distributed as dist
import transformers

import ringattn
import ringattn.hf
import ringattn.torch as rt
from ringattn.trainer import TrainerMixin, data_parallel, same_batches
from test_training import by_hand, close, tiny

STEPS, RATE, MICRO_BATCHES = 3, 0.5, 2


class Trainer(TrainerMixin, transformers.Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def say(text):
    if dist.get_rank() == 0:
        print("shown:", text, flush=True)


def examples(count):
    """Sequences of many lengths; some are two documents, which positions tell."""
    torch.manual_seed(2)
    made = []
    for i in range(count):
        n = 17 + 5 * i % 23
        ids = torch.randint(0, 61, (n,))
        cuts = [0, n // 3, n] if i % 3 == 1 else [0, n]
        made.append({"input_ids": ids, "labels": ids.clone(), "cuts": cuts,
                     "position_ids": torch.cat([torch.arange(b - a) for a, b in zip(cuts, cuts[1:])])})
    return made


def collate(batch):
    return {name: torch.stack([x[name] for x in batch]) for name in ("input_ids", "labels", "position_ids")}


def tokens(example):
    return len(example["input_ids"]) - (len(example["cuts"]) - 1)


def by_one_process(data, micro_batches, weights):
    """The model after the steps, each over so many examples; weights(examples) -> what each example's mean counts."""
    model = tiny("sdpa")
    losses = []
    for step in range(STEPS):
        own = data[step * micro_batches:(step + 1) * micro_batches]
        loss = sum(w * by_hand(model, collate([x]), x["cuts"]) for x, w in zip(own, weights(own)))
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
        losses.append(loss.item())
    return model, losses


def changes(model):
    """What training has changed, which is what gradients were summed to."""
    return {name: p.detach() - q.detach() for (name, p), q in zip(model.named_parameters(), tiny("sdpa").parameters())}


def by_trainer(ctx, folder):
    groups = data_parallel(ctx)[1]
    data = examples(STEPS * MICRO_BATCHES * groups)
    arguments = transformers.TrainingArguments(
        folder, per_device_train_batch_size=1, per_device_eval_batch_size=1,
        gradient_accumulation_steps=MICRO_BATCHES, max_steps=STEPS, optim="sgd", learning_rate=RATE,
        lr_scheduler_type="constant", max_grad_norm=0.0, logging_steps=1, save_strategy="no", report_to=[],
        use_cpu=True, ddp_backend="gloo", remove_unused_columns=False, disable_tqdm=True)
    trainer = Trainer(model=tiny("ringattn"), args=arguments, train_dataset=data, data_collator=collate,
                      eval_dataset=data[:2 * groups])
    trainer.train()
    # The mean over all tokens of a step.
    mean = lambda own: [tokens(x) / sum(map(tokens, own)) for x in own]
    # Micro-batches are dealt to the groups in turn, so that a step has the next ones in order.
    one, losses = by_one_process(data, MICRO_BATCHES * groups, mean)
    got = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(got) == STEPS and all(abs(a - b) < 1e-4 for a, b in zip(got, losses)), (got, losses)
    worst = close(changes(trainer.accelerator.unwrap_model(trainer.model)), changes(one))
    want = sum(by_hand(one, collate([x]), x["cuts"]).item() for x in data[:2 * groups]) / (2 * groups)
    assert abs(trainer.evaluate()["eval_loss"] - want) < 1e-6 * want
    say(f"Trainer over {groups} x {ctx.ranks} ranks, as one process to {worst:.1e}")


def by_accelerate(ctx):
    import accelerate

    groups = data_parallel(ctx)[1]
    data = examples(STEPS * groups)
    accelerator = accelerate.Accelerator(cpu=True)
    model = tiny("ringattn")
    loader = torch.utils.data.DataLoader(data, batch_size=1, collate_fn=collate)
    with same_batches(ctx):
        model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=RATE), loader)
    for batch in rt.ShardedLoader(loader, ctx):
        logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits
        loss = rt.cross_entropy(logits, batch["shift_labels"], batch["num_items_in_batch"], ctx)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    one, _ = by_one_process(data, groups, lambda own: [1 / len(own)] * len(own))
    worst = close(changes(accelerator.unwrap_model(model)), changes(one))
    say(f"accelerate over {groups} x {ctx.ranks} ranks, as one process to {worst:.1e}")


def refusals(ctx, folder):
    arguments = transformers.TrainingArguments(folder, use_cpu=True, report_to=[], label_smoothing_factor=0.1)
    try:
        Trainer(model=tiny("ringattn"), args=arguments, train_dataset=examples(2))
    except ringattn.UnsupportedError as error:
        assert "label_smoothing_factor" in str(error)
        say("what Trainer cannot do is refused")


def show():
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "cp"))
    ctx = rt.init(mesh["cp"])
    ringattn.hf.register()
    with tempfile.TemporaryDirectory() as folder:
        by_trainer(ctx, folder)
        refusals(ctx, folder)
    by_accelerate(ctx)
    dist.barrier()
    ctx.close()
