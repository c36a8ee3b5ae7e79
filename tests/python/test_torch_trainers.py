# SPDX-License-Identifier: Apache-2.0
"""Trainers of others as sites of a run: Hugging Face's, Lightning's, and the diffs that docs/python-from.md shows."""
import os
import pathlib
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch_bodies as bodies  # noqa: E402
from test_torch import equal, toml, torch2, values  # noqa: E402, F401 (fixtures)

import isthmus  # noqa: E402
import isthmus.torch  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def alone(toml, tmp_path):  # noqa: F811
    """A run of one site, "east"."""
    def write(**given):
        path = toml(sites=True, **{"steps": 12, "more": "H = 4", **given})
        text = path.read_text()
        path.write_text(text[: text.rindex("[[site]]")] + "[net]\nplaintext = true\n")
        return path
    return write


NOTHING_SENT = 'H = 1000\nfinal_sync = "none"'


# ---- Hugging Face ----

def gpt2(seed=7, dropout=0.1):
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    set_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                                      resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout))


def samples(count=20):
    drawn = torch.randint(0, 32, (count, 16), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": each, "labels": each} for each in drawn]


class Seen:
    """What a Trainer's model was given: the samples of every step."""

    def __init__(self, model):
        self.batches = []
        model.register_forward_pre_hook(self.saw, with_kwargs=True)

    def saw(self, module, args, named):
        self.batches.append(named["input_ids"].clone())


def trainer_of(tmp_path, callback=None, count=20, **options):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = gpt2()
    seen = Seen(model)
    args = transformers.TrainingArguments(str(tmp_path / "hf"), **{
        "max_steps": 1000, "per_device_train_batch_size": 2, "learning_rate": 1e-2, "save_strategy": "no",
        "report_to": [], "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no", "warmup_steps": 3, **options})
    trainer = transformers.Trainer(model, args, train_dataset=samples(count), callbacks=[callback] if callback else [])
    return trainer, seen


def end_of(trainer):
    return bodies.digest(trainer.model.state_dict(), trainer.optimizer.state_dict()["state"],
                         trainer.lr_scheduler.state_dict()["last_epoch"], torch.get_rng_state())


class Stop:
    """The run stops after step `at` with a checkpoint."""

    def __init__(self, callback, at):
        step = callback.on_step_end

        def on_step_end(args, state, control, **more):
            if state.global_step == at:
                callback.site.stop()
            return step(args, state, control, **more)

        callback.on_step_end = on_step_end


@pytest.mark.parametrize("options", [
    {}, {"gradient_accumulation_steps": 3}, {"bf16": True}, {"max_grad_norm": 0.0, "optim": "adafactor"},
    {"lr_scheduler_type": "cosine", "gradient_accumulation_steps": 2, "bf16": True}])
def test_the_trainer_is_the_bare_trainer_where_nothing_is_sent(alone, tmp_path, options):
    bare, there = trainer_of(tmp_path, max_steps=12, **options)
    bare.train()
    hf = pytest.importorskip("isthmus.hf")
    callback = hf.Callback(alone(more=NOTHING_SENT), site="east", out=tmp_path / "x")
    trainer, here = trainer_of(tmp_path, callback, max_steps=12, **options)
    trainer.train()
    assert callback.outcome.exit_code == 0 and trainer.state.global_step == 12
    assert equal(here.batches, there.batches)
    assert end_of(trainer) == end_of(bare)


def test_the_trainers_losses_and_targets_are_those_of_its_steps(alone, tmp_path):
    """The loss of a step of several micro-batches is the mean over its items, which the Trainer normalizes by."""
    hf = pytest.importorskip("isthmus.hf")
    callback = hf.Callback(alone(steps=6, more=NOTHING_SENT), site="east", out=tmp_path / "x")
    trainer, _ = trainer_of(tmp_path, callback, gradient_accumulation_steps=3, logging_strategy="steps",
                            logging_steps=1)
    trainer.train()
    wanted = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    table = isthmus.open(tmp_path / "x").table("train")
    assert len(wanted) == 6 and list(table["loss"]) == pytest.approx(wanted, rel=1e-3)
    assert table["tokens"][-1] == (3 + 3 + 3 + 1 + 3 + 3) * 2 * 16  # an epoch has ten micro-batches


@pytest.mark.parametrize("options", [
    {"count": 20}, {"count": 24, "gradient_accumulation_steps": 2},
    {"count": 24, "bf16": True, "dataloader_num_workers": 2}])
@pytest.mark.parametrize("at", [6, 9, 11])  # it stops one step later
def test_the_trainer_resumes_with_every_bit(alone, tmp_path, options, at):
    """In an epoch and between two (20 samples are 10 steps of 2): weights, moments, schedule, random numbers and the
    order of samples."""
    hf = pytest.importorskip("isthmus.hf")
    file = alone(steps=25)

    def play(out, stop=None):
        callback = hf.Callback(file, site="east", out=out)
        if stop:
            Stop(callback, stop)
        trainer, seen = trainer_of(tmp_path, callback, **options)
        trainer.train()
        assert trainer.state.global_step == callback.outcome.steps
        return callback.outcome, seen.batches, end_of(trainer)

    whole, batches, end = play(tmp_path / "whole")
    first, before, _ = play(tmp_path / "x", at)
    again, after, same = play(tmp_path / "x")
    assert (whole.exit_code, first.exit_code, again.exit_code) == (0, 130, 0)
    assert equal(before + after, batches)
    assert same == end


@pytest.mark.parametrize("options, words", [
    ({"save_strategy": "steps", "save_steps": 1000}, 'save_strategy="no"'),
    ({"accelerator_config": {"use_seedable_sampler": False}}, "RandomSampler draws another order"),
    ({"count": 22, "gradient_accumulation_steps": 2}, "no multiple of gradient_accumulation_steps"),
])
def test_what_a_trainer_cannot_do_is_warned_of(alone, tmp_path, options, words):
    hf = pytest.importorskip("isthmus.hf")
    file = alone(steps=12)
    for stop in (4, None):
        callback = hf.Callback(file, site="east", out=tmp_path / "x")
        if stop:
            Stop(callback, stop)
        trainer, _ = trainer_of(tmp_path, callback, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.train()
    assert [each for each in caught if words in str(each.message)], [str(each.message) for each in caught]


def test_a_trainer_of_too_few_steps_is_refused(alone, tmp_path):
    hf = pytest.importorskip("isthmus.hf")
    callback = hf.Callback(alone(steps=12), site="east", out=tmp_path / "x")
    trainer, _ = trainer_of(tmp_path, callback, max_steps=11)
    with pytest.raises(isthmus.ConfigError, match="ends after 11 steps, and the run has 12"):
        trainer.train()
    assert callback.site.closed


# ---- Lightning ----

def lit(tmp_path, callback=None, loader=None, epochs=-1, interval="step", **options):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.net = bodies.Net()
            self.losses, self.batches = [], []

        def training_step(self, batch, number):
            x, y = batch
            loss = torch.nn.functional.cross_entropy(self.net(x).float().reshape(-1, 11), y.reshape(-1))
            self.batches.append(x.clone())
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            opt = torch.optim.AdamW(self.parameters(), lr=1e-2)
            sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + 0.1 * step))
            return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": interval}}

    module = Module()
    torch.manual_seed(5)
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, logger=False,
                                enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
                                callbacks=[callback] if callback else [], default_root_dir=tmp_path, **options)
    return trainer, module, stateful(0) if loader is None else loader


def stateful(workers, shuffle=True):
    data = pytest.importorskip("torchdata.stateful_dataloader")
    pairs = [tuple(each[0] for each in bodies.batch_of(0, t)) for t in range(20)]
    torch.manual_seed(8)  # of its order
    return data.StatefulDataLoader(pairs, batch_size=2, shuffle=shuffle, num_workers=workers)


def end_of_lit(trainer, module):
    return bodies.digest(module.state_dict(), trainer.optimizers[0].state_dict()["state"],
                         trainer.lr_scheduler_configs[0].scheduler.state_dict()["last_epoch"], torch.get_rng_state())


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 3, "gradient_clip_val": 0.5},
                                     {"precision": "bf16-mixed"}])
def test_lightnings_trainer_is_the_bare_one_where_nothing_is_sent(alone, tmp_path, options):
    pytest.importorskip("lightning")
    from isthmus.lightning import Callback

    bare, there, loader = lit(tmp_path, max_steps=12, **options)
    bare.fit(there, loader)
    callback = Callback(alone(more=NOTHING_SENT), site="east", out=tmp_path / "x")
    trainer, here, loader = lit(tmp_path, callback, **options)
    trainer.fit(here, loader)
    assert callback.outcome.exit_code == 0 and trainer.global_step == 12
    assert equal(here.batches, there.batches) and here.losses == there.losses
    assert end_of_lit(trainer, here) == end_of_lit(bare, there)
    if options.get("accumulate_grad_batches") == 3:  # an epoch's last step has one micro-batch
        steps = isthmus.open(tmp_path / "x").table("train")["loss"]
        assert steps[0] == pytest.approx(sum(here.losses[:3]) / 3) and steps[3] == pytest.approx(here.losses[9])


@pytest.mark.parametrize("at", [6, 9])  # it stops at a later step, which sites agree on ahead of time; an epoch has 10
@pytest.mark.parametrize("workers", [0, 2])
def test_lightnings_trainer_resumes_with_every_bit(alone, tmp_path, at, workers):
    pytest.importorskip("lightning")
    from isthmus.lightning import Callback

    file = alone(steps=25)

    def play(out, stop=None):
        loader = stateful(workers)
        callback = Callback(file, site="east", out=out, state={"loader": loader})
        trainer, module, _ = lit(tmp_path, callback, loader)
        if stop:
            step = callback.on_train_batch_end

            def on_train_batch_end(*given):
                if callback.site.t == stop:
                    callback.site.stop()
                step(*given)

            callback.on_train_batch_end = on_train_batch_end
        trainer.fit(module, loader)
        return callback.outcome, module.batches, end_of_lit(trainer, module)

    whole, batches, end = play(tmp_path / "whole")
    first, before, _ = play(tmp_path / "x", at)
    again, after, same = play(tmp_path / "x")
    assert (whole.exit_code, first.exit_code, again.exit_code) == (0, 130, 0) and at < first.steps < 25
    assert equal(before + after, batches)
    assert same == end


def test_lightnings_trainer_tells_of_a_plain_loader_and_of_errors(alone, tmp_path):
    pytest.importorskip("lightning")
    from isthmus.lightning import Callback

    file = alone(steps=12)
    pairs = [tuple(each[0] for each in bodies.batch_of(0, t)) for t in range(20)]
    for stop in (True, False):
        callback = Callback(file, site="east", out=tmp_path / "x")
        trainer, module, _ = lit(tmp_path, callback, torch.utils.data.DataLoader(pairs), interval="epoch")
        train = module.training_step
        if stop:
            module.training_step = lambda *given: (callback.site.stop(), train(*given))[1]
            trainer.fit(module, torch.utils.data.DataLoader(pairs))
        else:
            def fails(*given):
                raise KeyError("mine")

            module.training_step = fails
            with pytest.warns(RuntimeWarning) as told, pytest.raises(KeyError, match="mine"):
                trainer.fit(module, torch.utils.data.DataLoader(pairs))
            texts = " ".join(str(each.message) for each in told)
            assert "no loader is in `state`" in texts and "changes by epochs" in texts
            assert callback.site.closed


# ---- the diffs of docs/python-from.md ----

ROOT = pathlib.Path(__file__).resolve().parents[2]


def diff_of(heading):
    text = (ROOT / "docs/python-from.md").read_text()
    return text[text.index(f"## {heading}\n"):].split("```diff\n", 1)[1].split("```", 1)[0]


def patched(text, diff):
    """`text` with the hunks of `diff`, each of which fits once, as `patch` would have it."""
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        assert text.count("\n" + before) == 1, f"{before!r} is there {text.count(before)} times"
        text = text.replace("\n" + before, "\n" + after)
    return text


def two_sites(folder, file, script, arguments=lambda name: []):
    """The script as sites east and west, each in a folder of its own with its run.toml; the runs that they leave."""
    sites = {}
    try:
        for name in ("east", "west"):
            (folder / name).mkdir()
            (folder / name / "run.toml").write_text(file.read_text().replace("[run]", '[run]\nout = "run"'))
            sites[name] = subprocess.Popen(
                [sys.executable, script, *arguments(name)], cwd=folder / name, env={**os.environ, "ISTHMUS_SITE": name},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = {name: each.communicate(timeout=240)[0] for name, each in sites.items()}
    finally:
        for each in sites.values():
            each.kill()
            each.wait()
    assert [each.returncode for each in sites.values()] == [0, 0], said
    return [isthmus.open(folder / name / "run") for name in sites]


class Breaks:
    """The gradient of one micro-batch is not finite."""

    def __init__(self, model, at):
        self.calls, self.at = 0, at
        next(iter(model.parameters())).register_hook(self.scaled)

    def scaled(self, gradient):
        self.calls += 1
        return gradient * float("inf") if self.calls == self.at else gradient


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2, "bf16": True}, {"max_grad_norm": 0.0}])
def test_the_trainer_under_ddp_of_one_site_is_the_bare_trainer(alone, tmp_path, options):
    """The mean of one gradient is the gradient: averaged, clipped and applied as the Trainer itself would."""
    bare, _ = trainer_of(tmp_path, max_steps=12, **options)
    bare.train()
    hf = pytest.importorskip("isthmus.hf")
    callback = hf.Callback(alone(method="ddp", more=""), site="east", out=tmp_path / "x")
    trainer, _ = trainer_of(tmp_path, callback, max_steps=12, **options)
    trainer.train()
    assert callback.outcome.exit_code == 0 and end_of(trainer) == end_of(bare)
    assert trainer.args.max_grad_norm == bare.args.max_grad_norm


def test_a_step_of_the_trainer_that_does_not_count_moves_no_schedule(alone, tmp_path):
    hf = pytest.importorskip("isthmus.hf")
    callback = hf.Callback(alone(method="ddp", more=""), site="east", out=tmp_path / "x")
    trainer, _ = trainer_of(tmp_path, callback)
    Breaks(trainer.model, 5)
    trainer.train()
    steps = {int(each["step"]) for each in trainer.optimizer.state_dict()["state"].values()}
    assert callback.outcome.steps == 12 and steps == {11} and trainer.lr_scheduler.state_dict()["last_epoch"] == 11
    assert all(torch.isfinite(each).all() for each in trainer.model.parameters())


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}])
def test_lightnings_trainer_under_ddp_of_one_site_is_the_bare_one(alone, tmp_path, options):
    pytest.importorskip("lightning")
    from isthmus.lightning import Callback

    bare, there, loader = lit(tmp_path, max_steps=12, **options)
    bare.fit(there, loader)
    callback = Callback(alone(method="ddp", more=""), site="east", out=tmp_path / "x")
    trainer, here, loader = lit(tmp_path, callback, **options)
    trainer.fit(here, loader)
    assert callback.outcome.exit_code == 0 and end_of_lit(trainer, here) == end_of_lit(bare, there)
    wanted = there.losses if not options else [sum(there.losses[i : i + 2]) / 2 for i in range(0, 24, 2)]
    assert list(isthmus.open(tmp_path / "x").table("train")["loss"]) == pytest.approx(wanted)
    callback = Callback(alone(method="ddp", more=""), site="east", out=tmp_path / "y")
    trainer, here, loader = lit(tmp_path, callback)
    Breaks(here, 5)
    trainer.fit(here, loader)
    assert {int(each["step"]) for each in trainer.optimizers[0].state_dict()["state"].values()} == {11}
    assert trainer.lr_scheduler_configs[0].scheduler.state_dict()["last_epoch"] == 11


@pytest.mark.parametrize("heading, script, needs, most", [
    ("nanoGPT", "train.py", (), 5), ("Hugging Face's Trainer", "run_clm.py", ("transformers", "accelerate"), 2)])
@pytest.mark.parametrize("method", ["diloco", "ddp"])
def test_the_diffs_shown_make_sites_of_their_loops(toml, tmp_path, heading, script, needs, most, method):  # noqa: F811
    """Two sites of the patched loop end with the same weights, and train, each on samples of its own."""
    for each in needs:
        pytest.importorskip(each)
    diff = diff_of(heading)
    assert sum(line.startswith("+") for line in diff.splitlines()) <= most
    loop = (ROOT / "tests/python/loops" / script).read_text()
    (tmp_path / script).write_text(patched(loop, diff))
    if method == "ddp" and script == "train.py":
        pytest.skip("nanoGPT's loop has another line under ddp: site.average_gradients")
    file = toml(steps=40, sites=True, more="H = 10" if method == "diloco" else "", method=method, ckpt="40 steps")
    seeds = {"east": "1", "west": "2"}
    runs = two_sites(tmp_path, file, tmp_path / script, lambda name: [] if not needs else [
        "--output_dir", f"{name}.hf", "--do_train", "--save_strategy", "no", "--max_steps", "1000",
        "--report_to", "none", "--learning_rate", "1e-2", "--use_cpu", "--disable_tqdm", "true", "--seed", seeds[name]])
    weights = [each.weights() for each in runs]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    losses = [each.table("worker") for each in runs]
    table = runs[0].table("train")
    assert len(table["loss"]) == 40 and table["loss"][-1] < 0.9 * table["loss"][0]
    if script == "train.py":
        assert table["lr"][0] == pytest.approx(1e-2 * 2 / 6)  # iter_num is t
    own = [losses[0]["loss"][losses[0]["w"] == worker] for worker in (0, 1)]
    assert (own[0] != own[1]).any()
