# SPDX-License-Identifier: Apache-2.0
"""Which parameters take part: masters whose weights follow, layers that train later, scaled and compiled loops,
and what is refused."""
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch_bodies as bodies  # noqa: E402
from test_torch import TWO, equal, of_all, toml, values  # noqa: E402, F401 (fixtures)

import isthmus  # noqa: E402
import isthmus.torch  # noqa: E402

pytestmark = pytest.mark.torch


class MasterSGD(torch.optim.SGD):
    """SGD with momentum over float32 masters; a step copies them to the model's own narrow weights."""

    def __init__(self, weights, dtype=torch.float32, **options):
        self.weights = list(weights)
        super().__init__([each.detach().to(dtype, copy=True) for each in self.weights], **options)

    @property
    def masters(self):
        return self.param_groups[0]["params"]

    def step(self):
        for master, weight in zip(self.masters, self.weights):
            master.grad = weight.grad.to(master.dtype)
        super().step()
        with torch.no_grad():
            for master, weight in zip(self.masters, self.weights):
                weight.copy_(master)

    def zero_grad(self):
        for each in self.weights:
            each.grad = None


def narrow(dtype=torch.bfloat16):
    """Weights of `dtype`, and masters in the next wider type."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(dtype)
    wide = torch.float64 if dtype is torch.float32 else torch.float32
    return model, MasterSGD(model.parameters(), wide, lr=0.05, momentum=0.9)


def params_of(model, opt, how):
    if how == "pairs":  # under names that are not the model's
        return {f"layers.{i}.master": pair for i, pair in enumerate(zip(opt.masters, model.parameters()))}
    if how == "strided":  # masters that have a mirror
        for i, each in enumerate(opt.masters):
            opt.masters[i] = each.t().contiguous().t() if each.dim() == 2 else each
    return dict(zip([name for name, _ in model.named_parameters()], opt.masters))


def batch(index, t):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * index + t))


def follows(opt):
    return all(torch.equal(weight.detach(), master.detach().to(weight.dtype))
               for master, weight in zip(opt.masters, opt.weights))


def with_masters(file, out, how="names", dtype=torch.bfloat16, stop=None, seed_of=lambda index: 0, **options):
    found = {}

    def body(site):
        model, opt = narrow(dtype)
        with torch.no_grad():
            for each in opt.masters:
                each += seed_of(site.index)  # and not the weights
        seen = []

        def evaluate(part):
            seen.append(follows(opt))
            return 1.0, 1

        isthmus.torch.attach(site, model, opt, params=params_of(model, opt, how), evaluate=evaluate)
        assert follows(opt)  # the agreed start
        for t, x in site.steps(lambda t: batch(site.index, t)):
            (model(x.to(dtype)).float() - 1).square().mean().backward()
            opt.step()
            opt.zero_grad()
            before = values(model)
            with site.anchors():
                assert follows(opt)
            assert equal(values(model), before)
            if t == stop:
                site.stop()
            site.step(0.5)
            assert follows(opt), f"step {t}"
        found[site.index] = [values_of(opt), values(model), opt.state_dict()["state"], all(seen), len(seen)]

    isthmus.run(file, body, out=out, evaluation_parts=2, overrides=['eval.every="4 steps"'], **options)
    return found


def values_of(opt):
    return [each.detach().clone() for each in opt.masters]


def local_sgd(workers, steps, H, dtype):
    """Masters and weights of all workers, averaged every H steps."""
    trainers = [narrow(dtype) for _ in range(workers)]
    for t in range(1, steps + 1):
        for index, (model, opt) in enumerate(trainers):
            (model(batch(index, t).to(dtype)).float() - 1).square().mean().backward()
            opt.step()
            opt.zero_grad()
        if t % H == 0:
            with torch.no_grad():
                for same in zip(*(opt.masters for _, opt in trainers)):
                    mean = sum(each.double() for each in same) / workers
                    for each in same:
                        each.copy_(mean)
                for _, opt in trainers:
                    for master, weight in zip(opt.masters, opt.weights):
                        weight.copy_(master)
    return trainers[0][1]


@pytest.mark.parametrize("how", ["names", "pairs", "strided"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_models_weights_follow_their_masters(toml, tmp_path, how, dtype):
    """After each write, in anchors() and in evaluations the weights are the rounded masters, so that the forward pass
    before the optimizer's next step has them."""
    if dtype is torch.float16 and not TWO:
        pytest.skip("1.13 has no float16 arithmetic on the CPU")
    found = with_masters(toml(steps=20, method="localsgd", more='H = 5\ncodec = "fp32"'), tmp_path / "x", how, dtype)
    assert equal(found[0][0], found[1][0]) and equal(found[0][1], found[1][1])
    for worker in (0, 1):
        assert found[worker][3] and found[worker][4] >= 5
    for master, wanted in zip(found[0][0], local_sgd(2, 20, 5, dtype).masters):
        assert torch.allclose(master, wanted.detach(), rtol=1e-5, atol=1e-6)


def test_masters_of_unlike_starts_begin_with_the_first_sites(toml, tmp_path):
    alike = with_masters(toml(steps=7), tmp_path / "alike", seed_of=lambda index: 1)
    unlike = with_masters(toml(steps=7), tmp_path / "unlike", seed_of=lambda index: 1 + index)
    for worker in (0, 1):
        assert equal(unlike[worker][0], alike[worker][0]) and equal(unlike[worker][1], alike[worker][1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_masters_resume_with_every_bit(toml, tmp_path, dtype):
    file = toml(steps=24, more="H = 7")
    whole = with_masters(file, tmp_path / "whole", dtype=dtype)
    with_masters(file, tmp_path / "x", dtype=dtype, stop=11)
    again = with_masters(file, tmp_path / "x", dtype=dtype, resume="auto")
    for worker in (0, 1):
        assert equal(again[worker][0], whole[worker][0]) and equal(again[worker][1], whole[worker][1])
        assert bodies.digest(again[worker][2]) == bodies.digest(whole[worker][2])


def shapes(site):
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), params={"w": (torch.zeros(3), torch.zeros(4))})


def one_memory(site):
    w = torch.zeros(3)
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), params={"w": (w, w)})


def no_pair(site):
    isthmus.torch.attach(site, torch.nn.Linear(2, 2), params={"w": (torch.zeros(3), "weight")})


def later(site):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight.requires_grad_(False)
    isthmus.torch.attach(site, model)
    for t, _ in site.steps():
        model[1].weight.requires_grad_(t >= 7)
        site.step(0)
        assert t < 10


def added(site):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    isthmus.torch.attach(site, model)
    for t, _ in site.steps():
        if t == 7:
            model.append(torch.nn.Linear(2, 2))
        site.step(0)
        assert t < 10


@pytest.mark.parametrize("body, kind, words", [
    (shapes, isthmus.ConfigError, r"shape \(3,\), its weight \(4,\)"), (one_memory, isthmus.ConfigError, "one memory"),
    (no_pair, isthmus.ConfigError, "pair of Tensor and str"),
    (later, isthmus.RunError, "'1.weight' requires gradients now.*freeze it then"),
    (added, isthmus.RunError, "'1.weight' requires gradients now"),
])
def test_parameters_that_cannot_take_part_are_refused(toml, tmp_path, body, kind, words):
    with pytest.raises(kind, match=words):
        isthmus.run(toml(), body, out=tmp_path / "x")


def test_a_layer_that_is_thawed_again_trains_on(toml, tmp_path):
    """The remedy that the refusal names."""
    def body(site):
        model = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.ones_(model.weight)
        isthmus.torch.attach(site, model)
        model.weight.requires_grad_(False)
        for t, _ in site.steps():
            model.weight.requires_grad_(t > 4)
            with torch.no_grad():
                model.weight += site.index * (t > 4)
            site.step(0.0)
        assert torch.equal(model.weight.detach(), torch.full((2, 2), 3.0))

    isthmus.run(toml(steps=8, method="localsgd", more="H = 2"), body, out=tmp_path / "x")


def test_a_tensor_that_has_the_name_of_an_equal_parameter_is_warned_of(toml, tmp_path):
    def body(site):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        isthmus.torch.attach(site, model, params={"weight": model.weight.detach().clone()})
        for _ in site.steps():
            site.step(0)

    with pytest.warns(RuntimeWarning, match=r"does not reach the model. Give params\['weight'\] = \(tensor, param"):
        isthmus.run(toml(steps=2), body, out=tmp_path / "x")


# ---- scaled, compiled and wrapped loops ----

def scaled(file, out, stop=None, overflows=(4, 5, 13), **how):
    """A loop in float16 with a GradScaler, whose gradients overflow at worker 0 in the steps `overflows`."""
    found = {}

    def body(site):
        model, opt, sched = bodies.made()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=6)
        isthmus.torch.attach(site, model, opt, state={"sched": sched, "scaler": scaler})
        scales = []
        for t, (x, y) in site.steps(lambda t: bodies.batch_of(site.index, t)):
            with torch.autocast("cpu", torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x).reshape(-1, 11).float(), y.reshape(-1))
            scaler.scale(loss).backward()
            if t in overflows and site.index == 0:
                model.scale.grad.fill_(float("inf"))
            scaler.step(opt)
            scaler.update()
            sched.step()
            opt.zero_grad()
            scales.append(scaler.get_scale())
            if t == stop:
                site.stop()
            site.step(loss, tokens=24)
        steps = int(opt.state[model.scale]["step"])
        found[site.index] = (steps, scales, bodies.digest(model.state_dict(), opt.state_dict(), scaler.state_dict()))

    isthmus.run(file, body, out=out, **how)
    return found


@pytest.mark.skipif(not hasattr(getattr(torch, "amp", None), "GradScaler"), reason="torch.amp.GradScaler")
def test_a_step_that_the_gradient_scaler_leaves_out_counts_as_no_work(toml, tmp_path):
    """The scale halves, the optimizer does not step, the worker has no row for the step; and a resumed run has the same
    bits, the scale included."""
    file = toml(steps=20, method="localsgd", more='H = 5\ncodec = "fp32"')
    whole = scaled(file, tmp_path / "whole")
    assert [whole[worker][0] for worker in (0, 1)] == [17, 20]
    assert whole[0][1][2:5] == [1024.0, 512.0, 256.0] and min(whole[1][1]) == 1024.0
    table = isthmus.open(tmp_path / "whole").table("worker")
    assert set(range(1, 21)) - set(table["step"][table["w"] == 0]) == {4, 5, 13}
    assert list(table["step"][table["w"] == 1]) == list(range(1, 21))
    scaled(file, tmp_path / "x", stop=7)
    again = scaled(file, tmp_path / "x", resume="auto")
    assert [again[worker][2] for worker in (0, 1)] == [whole[worker][2] for worker in (0, 1)]


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch.compile")
@pytest.mark.parametrize("attached", ["compiled", "plain"])
def test_a_compiled_model_trains_as_the_plain_one(toml, tmp_path, attached):
    """Attached as the wrapper or as what it wraps: the same names and bits, and writes reach the compiled code."""
    plain, _ = of_all(toml(), tmp_path / "plain")
    found = {}

    def body(site):
        model, opt, sched = bodies.made()
        compiled = torch.compile(model, backend="eager")
        isthmus.torch.attach(site, compiled if attached == "compiled" else model, opt, state={"sched": sched})
        losses = []
        for t, batch in site.steps(lambda t: bodies.batch_of(site.index, t)):
            loss = bodies.train(compiled, opt, sched, batch)
            losses.append(loss.item())
            site.step(loss, tokens=24)
        found[site.index] = (model, losses)

    isthmus.run(toml(), body, out=tmp_path / "x")
    for worker in (0, 1):
        assert found[worker][1] == plain[worker][2] and equal(values(found[worker][0]), values(plain[worker][0]))
    names = [isthmus.open(tmp_path / each).weights().keys() for each in ("plain", "x")]
    assert names[0] == names[1]


@pytest.mark.skipif(not TWO, reason="PyTorch 2")
def test_fsdp1_is_refused_with_what_to_use(toml, tmp_path):
    """FullyShardedDataParallel itself, of one process."""
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fsdp.FullyShardedDataParallel(torch.nn.Linear(2, 2), device_id=torch.device("cpu"))
        for each in (model, torch.nn.Sequential(model)):
            with pytest.raises(isthmus.ConfigError, match=r"FSDP1 .* is not taken: use fully_shard \(FSDP2\)"):
                isthmus.run(toml(), lambda site, each=each: isthmus.torch.attach(site, each), out=tmp_path / "x")
    finally:
        torch.distributed.destroy_process_group()


def test_deepspeed_is_refused_with_what_to_use(toml, tmp_path):
    engine = type("DeepSpeedEngine", (torch.nn.Linear,), {"__module__": "deepspeed.runtime.engine"})
    with pytest.raises(isthmus.ConfigError, match="DeepSpeed engine .* is not taken: use FSDP2, or plain PyTorch"):
        isthmus.run(toml(), lambda site: isthmus.torch.attach(site, engine(2, 2)), out=tmp_path / "x")
