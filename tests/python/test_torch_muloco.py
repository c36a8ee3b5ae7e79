# SPDX-License-Identifier: Apache-2.0
"""MuLoCo-1 against torch's own optimizers in a loop written out, closed forms, and its state."""
import copy
import io
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch_bodies as bodies  # noqa: E402
from test_torch import equal, toml, values  # noqa: E402, F401 (fixtures)

import isthmus  # noqa: E402
import isthmus.torch  # noqa: E402
from isthmus.torch._muloco import orthogonal  # noqa: E402

pytestmark = pytest.mark.torch


def made(dtype=torch.float64, **options):
    torch.manual_seed(3)
    model = bodies.Net()
    model.layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(8, 20), torch.nn.Linear(20, 8))])
    model.drop.p = 0.0
    model.to(dtype)
    return model, isthmus.torch.MuLoCo1(model.named_parameters(), **{"inner_lr": 0.01, "sync_interval": 4, **options})


def train(model, opt, t):
    x, y = bodies.batch_of(0, t)
    loss = torch.nn.functional.cross_entropy(model(x).float().reshape(-1, 11), y.reshape(-1))
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item()


def through_singular_values(matrix):
    """The orthogonalised matrix by its singular value decomposition: the polynomial on each singular value."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / matrix.double().norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ v


@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9), (1, 6)])
def test_a_matrix_is_orthogonalised_as_its_singular_values_say(shape):
    torch.manual_seed(1)
    matrix = torch.randn(shape, dtype=torch.float64)
    assert torch.allclose(orthogonal(matrix), through_singular_values(matrix), rtol=1e-9, atol=1e-12)
    assert torch.equal(orthogonal(torch.zeros(shape)), torch.zeros(shape))
    single = orthogonal(matrix.float())
    assert single.dtype is torch.float32
    assert torch.allclose(single.double(), through_singular_values(matrix), atol=1e-4)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("adjust_lr, scale", [
    ("spectral_norm", lambda out, into: (out / into) ** 0.5),
    ("rms_norm", lambda out, into: 0.2 * max(out, into) ** 0.5),
    (None, lambda out, into: 1)])
def test_it_is_the_loop_written_out(nesterov, adjust_lr, scale):
    """Three rounds and a half: momentum and singular values for matrices of layers, torch.optim.AdamW for the rest,
    torch.optim.SGD with Nesterov momentum on the outer gradient."""
    model, opt = made(nesterov=nesterov, adjust_lr=adjust_lr, weight_decay=0.1, outer_lr=0.6, outer_momentum=0.5)
    plain = copy.deepcopy(model)
    hidden = {name: each for name, each in plain.named_parameters() if name.startswith("layers") and each.dim() == 2}
    assert len(hidden) == 2
    rest = [each for name, each in plain.named_parameters() if name not in hidden]
    adamw = torch.optim.AdamW(rest, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    outer = [each.detach().clone().requires_grad_() for each in plain.parameters()]
    sgd = torch.optim.SGD(outer, lr=0.6, momentum=0.5, nesterov=True)
    momentum = {name: torch.zeros_like(each) for name, each in hidden.items()}
    for t in range(1, 15):
        ours = train(model, opt, t)
        x, y = bodies.batch_of(0, t)
        loss = torch.nn.functional.cross_entropy(plain(x).float().reshape(-1, 11), y.reshape(-1))
        assert ours == pytest.approx(loss.item(), rel=1e-6)
        loss.backward()
        adamw.step()
        with torch.no_grad():
            for name, each in hidden.items():
                momentum[name] = 0.95 * momentum[name] + each.grad
                update = each.grad + 0.95 * momentum[name] if nesterov else momentum[name]
                each *= 1 - 0.01 * 0.1
                each -= 0.01 * scale(*each.shape) * through_singular_values(update)
            if t % 4 == 0:
                for there, here in zip(outer, plain.parameters()):
                    there.grad = there - here
                sgd.step()
                for there, here in zip(outer, plain.parameters()):
                    here.copy_(there)
        plain.zero_grad()
        for here, there in zip(model.parameters(), plain.parameters()):
            assert torch.allclose(here, there, rtol=1e-8, atol=1e-9), t


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon")
def test_its_inner_steps_are_those_of_torchs_muon():
    """bfloat16 in torch's products: 2^-8 of the update an iteration, so the distance is that of one such rounding."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(16, 8))
    other = torch.nn.Parameter(weight.detach().clone())
    ours = isthmus.torch.MuLoCo1([weight], inner_lr=0.1, sync_interval=100, weight_decay=0.1, adjust_lr=None)
    muon = torch.optim.Muon([other], lr=0.1, momentum=0.95, nesterov=False, weight_decay=0.1)
    for t in range(10):
        for each in (weight, other):
            each.grad = torch.randn(16, 8, generator=torch.Generator().manual_seed(t))
        ours.param_groups[0]["lr"] = 0.1 * 2**0.5  # torch's scale of a matrix of 16 rows and 8 columns
        ours.param_groups[0]["weight_decay"] = 0.1 / 2**0.5
        ours.step()
        muon.step()
    moved = (other - torch.randn(16, 8, generator=torch.Generator().manual_seed(0))).norm()
    assert (weight - other).norm() < 0.02 * moved


def test_an_outer_step_with_lr_one_and_no_momentum_is_none():
    bare, alone = made(outer_lr=1.0, outer_momentum=0.0), made(sync_interval=10**6)
    for t in range(1, 14):
        assert train(*bare, t) == train(*alone, t)
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(*(each[0].parameters() for each in (bare, alone))))


def test_steps_that_all_change_the_same_give_the_closed_form():
    """d the change of a round, constant: u_n = lr d (1 - mu^n) / (1 - mu), x_n = x_0 - sum of (mu u_i + lr d)."""
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    opt = isthmus.torch.MuLoCo1([{"params": [weight], "algorithm": "adamw"}], inner_lr=0.1, weight_decay=0.0,
                                outer_lr=0.7, outer_momentum=0.6, sync_interval=5, epsilon=0.0)
    for _ in range(20):
        weight.grad = torch.ones(3, dtype=torch.float64)  # AdamW's step is then lr, always
        opt.step()
    d = 0.5
    wanted = -sum(0.6 * 0.7 * d * (1 - 0.6**n) / 0.4 + 0.7 * d for n in range(1, 5))
    assert weight.tolist() == pytest.approx([wanted] * 3, rel=1e-12)


@pytest.mark.parametrize("at", [4, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_state_goes_on_with_every_bit(at, dtype):
    """In a round and between two, through a file that holds no code."""
    model, opt = made(dtype)
    for t in range(1, at + 1):
        train(model, opt, t)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, **({} if torch.__version__ < "2" else {"weights_only": True}))
    again, other = made(dtype, inner_lr=9.0, sync_interval=99, outer_lr=0.1)
    train(again, other, 1)
    again.load_state_dict(saved["model"])
    other.load_state_dict(saved["opt"])
    for t in range(at + 1, 15):
        assert train(model, opt, t) == train(again, other, t)
    assert equal(values(model), values(again))
    assert bodies.digest(opt.state_dict()) == bodies.digest(other.state_dict())
    assert {each["outer_params"].dtype for each in other.state.values()} == {torch.float32}


def test_narrow_parameters_that_do_not_train_do_not_move():
    """What rounding the outer parameters has left out is no training, and stays in them."""
    model, opt = made(torch.bfloat16, outer_momentum=0.0)
    for t in range(1, 5):
        train(model, opt, t)
    outer = [opt.state[each]["outer_params"].clone() for each in model.parameters()]
    assert not equal(outer, [each.float() for each in values(model)])
    for group in opt.param_groups:
        group["lr"] = 0.0
    before = values(model)
    for t in range(5, 13):
        train(model, opt, t)
    assert equal(values(model), before)
    assert equal([opt.state[each]["outer_params"] for each in model.parameters()], outer)


def test_parameters_that_are_loaded_between_rounds_are_the_next_rounds_start():
    model, opt = made(outer_momentum=0.0)
    for t in range(1, 5):
        train(model, opt, t)
    with torch.no_grad():
        for each in model.parameters():
            each.fill_(0.5)
    opt.param_groups[0]["lr"] = opt.param_groups[1]["lr"] = 0.0
    for t in range(5, 9):
        train(model, opt, t)
    assert all(torch.equal(each, torch.full_like(each, 0.5)) for each in values(model))


def test_schedules_clipping_and_closures_work():
    model, opt = made()
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + step))
    x, y = bodies.batch_of(0, 1)

    def closure():
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x).float().reshape(-1, 11), y.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = [(opt.step(closure).item(), sched.step())[0] for _ in range(12)]
    assert losses[-1] < losses[0]
    assert [group["lr"] for group in opt.param_groups] == pytest.approx([0.01 / 13] * 2)


def test_it_resumes_in_a_site_of_its_own(toml, tmp_path):
    file = toml(steps=14, workers=1, more='H = 1000\nfinal_sync = "none"')

    def play(stop, out, **how):
        found = []

        def body(site):
            model, opt = made(torch.float32)
            isthmus.torch.attach(site, model, opt)
            for t, _ in site.steps():
                loss = train(model, opt, t)
                if t == stop:
                    site.stop()
                site.step(loss)
            found.append(bodies.digest(model.state_dict(), opt.state_dict()))

        isthmus.run(file, body, out=out, **how)
        return found

    whole = play(None, tmp_path / "whole")
    play(6, tmp_path / "x")
    assert play(None, tmp_path / "x", resume="auto") == whole


@pytest.mark.parametrize("params, options, words", [
    ([(2, 2)], dict(outer_lr=-1.0), "outer_lr = -1.0: must be >= 0"),
    ([(2, 2)], dict(outer_momentum=1.0), "outer_momentum = 1.0: must be >= 0 and < 1"),
    ([(2, 2)], dict(sync_interval=0), "sync_interval = 0"), ([(2, 2)], dict(inner_lr=-1.0), "lr = -1.0"),
    ([(2, 2)], dict(adjust_lr="original"), "adjust_lr = 'original'"),
    ([{"params": [(2,)], "algorithm": "muon"}], {}, r"shape \(2,\) is in a group of Muon"),
    ([{"params": [(2, 2)], "algorithm": "adam"}], {}, "algorithm = 'adam'"),
])
def test_wrong_options_are_refused(params, options, words):
    def tensors(shapes):
        return [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]

    groups = isinstance(params[0], dict)
    given = [{**each, "params": tensors(each["params"])} for each in params] if groups else tensors(params)
    with pytest.raises(isthmus.ConfigError, match=words):
        isthmus.torch.MuLoCo1(given, **options)


def test_method_muloco_at_one_site_is_the_class(toml, tmp_path):
    """The run's outer step over one worker whose inner steps are Muon's, against the class that takes both. float32:
    one keeps the rate in the momentum, the other outside, so a round may differ by a few roundings of the values."""
    file = toml(method="muloco", steps=16, workers=1, more="H = 4\nlr = 0.6\nmomentum = 0.5")
    whole, opt = made(torch.float32, outer_lr=0.6, outer_momentum=0.5)
    losses = [train(whole, opt, t) for t in range(1, 17)]
    found = []

    def body(site):
        model, inner = made(torch.float32, sync_interval=10**6)
        isthmus.torch.attach(site, model, inner)
        for t, _ in site.steps():
            found.append(train(model, inner, t))
            site.step(found[-1])
        found.append(values(model))

    isthmus.run(file, body, out=tmp_path / "run")
    assert found[:-1] == pytest.approx(losses, rel=2e-5)
    assert losses[-1] < losses[0]
    for here, there in zip(found[-1], values(whole)):
        assert torch.allclose(here, there, rtol=1e-4, atol=1e-5)
