# SPDX-License-Identifier: Apache-2.0
"""Several processes that train the model of one site: replicas, FSDP2's shards; their deaths, wishes and checkpoints.
Cases of FSDP2 need PyTorch 2.6, and are skipped elsewhere."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")
import forked  # noqa: E402
import ranks_bodies as bodies  # noqa: E402

import isthmus  # noqa: E402

pytestmark = pytest.mark.torch
FSDP2 = tuple(int(each) for each in torch.__version__.split("+")[0].split("a")[0].split(".")[:2]) >= (2, 6)
fsdp2 = [pytest.mark.torch2, pytest.mark.skipif(not FSDP2, reason="fully_shard needs PyTorch 2.6")]
ENDS_S = 60  # all ranks of a site whose rank has died; a machine under load needs some of it

TOML = """
[run]
name = "ranks"
seed = 2
[train]
steps = {steps}
[outer]
method = "{method}"
{more}
[ckpt]
every = "{ckpt}"
[net]
plaintext = true
gather = "60s"
min_sites = {count}
"""
STREAMING = {"method": "streaming-diloco", "more": 'H = 4\nfragments = 2\noverlap = 2\nalpha = 0.5\ncodec = "int8:ef"'}


def on(kind, size, *more):
    return pytest.param(kind, size, *more, marks=fsdp2 if kind in ("fsdp", "hsdp") else [],
                        id="-".join(map(str, (kind, size, *more))))


@pytest.fixture
def toml(tmp_path):
    def write(sites, steps=12, method="diloco", more="H = 5", ckpt="5 steps"):
        text = TOML.format(steps=steps, method=method, more=more, ckpt=ckpt, count=len(sites))
        held = [socket.socket() for _ in sites]
        for number, each in enumerate(held):
            each.bind((f"127.0.0.{number + 2}", 0))  # where gloo, which begins before the site does, takes no port
        for name, each in zip(sites, held):
            text += f'[[site]]\nname = "{name}"\naddress = "{":".join(map(str, each.getsockname()))}"\n'
            each.close()
        path = tmp_path / f"run{len(list(tmp_path.glob('*.toml')))}.toml"
        path.write_text(text)
        return path
    return write


@pytest.fixture
def start():
    begun, stores = [], []

    def started(file, name, out, size, *words):
        env = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "ISTHMUS_SITE")}
        ranks = []
        if size > 1 or "shard=ddp" in words:
            stores.append(torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False))
        for rank in range(size):
            if size > 1 or "shard=ddp" in words:
                env.update(RANK=str(rank), WORLD_SIZE=str(size), STORE=str(stores[-1].port))
            ranks.append(forked.start(bodies.__file__, file, name, out, *words, env=env))
        begun.extend(ranks)
        return ranks

    yield started
    for each in begun:
        each.kill()
        each.wait()


def codes(ranks, limit=240):
    return [each.wait(limit) for each in ranks]


def end_of(out, rank=0):
    return torch.load(f"{out}.{rank}.pt")


def alike(left, right):
    if isinstance(left, dict):
        return set(left) == set(right) and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(alike, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


def told(out, rank=0):
    """Losses by step."""
    rows = [json.loads(each) for each in pathlib.Path(f"{out}.{rank}.losses").read_text().splitlines()]
    return {t: loss for t, loss in rows if loss != "told"}


@pytest.mark.parametrize("kind, size", [on("ddp", 2), on("fsdp", 2)])
def test_where_nothing_is_sent_the_loop_is_the_bare_loop(toml, tmp_path, start, kind, size):
    file = toml(["east"], more='H = 1000\nfinal_sync = "none"')
    assert codes(start(file, "east", tmp_path / "bare", size, f"shard={kind}", "bare=12")) == [0] * size
    assert codes(start(file, "east", tmp_path / "x", size, f"shard={kind}")) == [0] * size
    for rank in range(size):
        bare, ours = end_of(tmp_path / "bare", rank), end_of(tmp_path / "x", rank)
        assert told(tmp_path / "x", rank) == told(tmp_path / "bare", rank)
        assert all(alike(bare[key], ours[key]) for key in ("weights", "moments", "last", "at", "rng"))


@pytest.mark.parametrize("kind, size, dtype, placement", [
    on("ddp", 2, "float32", "host"), on("0", 3, "bfloat16", "host"), on("fsdp", 2, "float32", "host"),
    on("fsdp", 2, "bfloat16", "host"), on("fsdp", 3, "float32", "host"), on("hsdp", 4, "float32", "host"),
    on("ddp", 2, "float32", "ranks"), on("0", 3, "bfloat16", "ranks"), on("fsdp", 3, "float32", "ranks"),
    on("ddp", 1, "float32", "ranks")])
def test_ranks_and_one_process_have_the_same_anchors(toml, tmp_path, start, kind, size, dtype, placement):
    """Inner steps are a function of step and element, so no sum of gradients is in the way. Sizes 11, 6 and 1 do not
    divide by the ranks. In lanes the embedding has three tiles, and a layer less than one."""
    words = ["train=f", f"dtype={dtype}", "anchors=7", "evaluate=1", 'eval.every="6 steps"',
             "rows=1500" if placement == "ranks" else "rows=11"]
    for out, of_site in (("one", 1), ("many", size)):
        file = toml(["east", "west"], **STREAMING)
        ranks = [each for name in ("east", "west") for each in
                 start(file, name, tmp_path / f"{out}-{name}", of_site if name == "east" else 1,
                       *words, f"shard={kind if out == 'many' and name == 'east' else '0'}",
                       *([f'outer.placement="{placement}"'] if out == "many" and name == "east" else []))]
        assert codes(ranks) == [0] * len(ranks)
    one, many = isthmus.open(tmp_path / "one-east"), isthmus.open(tmp_path / "many-east")
    for step in (5, 10, 12):
        expected, found = one.weights(step), many.weights(step)
        assert list(found) == list(expected) and len(found) == 8
        assert all(found[name].tobytes() == expected[name].tobytes() for name in found)
    assert numpy.array_equal(many.table("eval")["loss"], one.table("eval")["loss"])
    first = end_of(tmp_path / "one-east")
    for rank in range(size):
        other = end_of(tmp_path / "many-east", rank)
        assert alike(other["weights"], first["weights"]) and alike(other["shown"], first["shown"])
        assert alike(other["ended"], first["ended"]) and not alike(other["ended"], other["weights"])
        assert other["seen"] == first["seen"] and first["seen"]
        assert other["outcome"] == end_of(tmp_path / "many-east")["outcome"]
        assert (other["calls"] > 0) == (placement == "ranks" and size > 1)


@pytest.mark.parametrize("kind, size", [on("ddp", 2), on("fsdp", 2), on("fsdp", 3)])
def test_ranks_and_one_process_average_gradients_alike(toml, tmp_path, start, kind, size):
    """Under ddp, with a step that does not count and a parameter that is not used in each."""
    for out, of_site in (("one", 1), ("many", size)):
        file = toml(["east", "west"], method="ddp", more="")
        ranks = [each for name in ("east", "west") for each in
                 start(file, name, tmp_path / f"{out}-{name}", of_site if name == "east" else 1, "train=g",
                       f"shard={kind if of_site > 1 and name == 'east' else '0'}")]
        assert codes(ranks) == [0] * len(ranks)
    first = end_of(tmp_path / "one-east")
    for other in [end_of(tmp_path / "many-east", rank) for rank in range(size)] + [end_of(tmp_path / "many-west")]:
        assert alike(other["weights"], first["weights"]) and alike(other["moments"], first["moments"])
    for rank in range(size):
        rows = [json.loads(each) for each in (tmp_path / f"many-east.{rank}.losses").read_text().splitlines()]
        assert [t for t, said in rows if said == "void"] == [5]
    assert {int(each) for each in first["moments"]["step"]} == {11, 6}


def test_the_files_own_samples_are_rank_0s(toml, tmp_path, start):
    """The file of this run has none; the other ranks are told where to ask."""
    assert codes(start(toml(["east"]), "east", tmp_path / "x", 2, "samples=1")) == [0, 0]
    said = [(tmp_path / f"x.{rank}.samples").read_text() for rank in range(2)]
    assert "has no data.source" in said[0]
    assert "rank 0 alone has them" in said[1]


@pytest.mark.parametrize("kind, size, dtype, again", [
    on("ddp", 2, "float32", [("ddp", 2), ("0", 1)]), on("fsdp", 2, "float32", [("fsdp", 2), ("0", 1), ("hsdp", 4)]),
    on("fsdp", 3, "bfloat16", [("fsdp", 3), ("0", 1), ("fsdp", 2)])])
def test_a_checkpoint_resumes_on_any_number_of_ranks(toml, tmp_path, start, kind, size, dtype, again):
    file, dtype = toml(["east"]), f"dtype={dtype}"
    assert codes(start(file, "east", tmp_path / "whole", size, f"shard={kind}", dtype)) == [0] * size
    for number, (other, count) in enumerate(again):
        out = tmp_path / f"x{number}"
        assert codes(start(file, "east", out, size, f"shard={kind}", dtype, "at=7", "do=stop")) == [130] * size
        left = end_of(out)
        assert left["moments"]["exp_avg"] and left["last"] < 12
        assert codes(start(file, "east", out, count, f"shard={other}", dtype)) == [0] * count
        for rank in range(count):
            found = end_of(out, rank)
            assert all(alike(found["start"][key], left[key]) for key in ("weights", "moments", "last"))
            if count == size:
                whole = end_of(tmp_path / "whole", rank)
                assert all(alike(found[key], whole[key]) for key in ("weights", "moments", "last", "at", "rng"))


@pytest.mark.parametrize("kind, size", [on("ddp", 2), on("fsdp", 2)])
def test_outer_state_in_lanes_resumes_elsewhere_with_the_same_bits(toml, tmp_path, start, kind, size):
    """A checkpoint does not say where the outer state lay: at rank 0, in lanes of two ranks or of three. A killed rank
    ends its site as ever."""
    file = toml(["east"], steps=20, **STREAMING)
    lanes = 'outer.placement="ranks"'
    words = ["train=f", "rows=1500", f"shard={kind}"]
    used = lambda count: all(end_of(tmp_path / "x", rank)["calls"] > 0 for rank in range(count))  # noqa: E731
    assert codes(start(file, "east", tmp_path / "whole", size, *words)) == [0] * size
    assert codes(start(file, "east", tmp_path / "x", size, *words, lanes, "at=7", "do=stop")) == [130] * size
    assert used(size)
    assert codes(start(file, "east", tmp_path / "x", 3, *words, lanes, "at=12", "do=stop")) == [130] * 3
    assert used(3)
    assert codes(start(file, "east", tmp_path / "x", size, *words, "at=14", "do=stop")) == [130] * size
    assert not used(1)
    dying = start(file, "east", tmp_path / "x", size, *words, lanes, "at=18", "do=kill", "ranks=1")
    assert dying[1].wait(120) == -signal.SIGKILL and dying[0].wait(ENDS_S) == 5
    assert codes(start(file, "east", tmp_path / "x", size, *words, lanes)) == [0] * size
    assert used(size)
    whole, found = isthmus.open(tmp_path / "whole").weights(), isthmus.open(tmp_path / "x").weights()
    assert all(found[name].tobytes() == whole[name].tobytes() for name in whole)
    for rank in range(size):
        assert alike(end_of(tmp_path / "x", rank)["weights"], end_of(tmp_path / "whole", rank)["weights"])


@pytest.fixture(scope="module")
def whole_runs():
    return {}


@pytest.mark.parametrize("do, rank", [("kill", 1), ("kill", 0), ("raise", 1)])
@pytest.mark.parametrize("kind, size", [on("ddp", 2), on("fsdp", 2)])
def test_a_rank_that_ends_ends_its_site_which_comes_back_with_the_same_bits(toml, tmp_path, start, whole_runs, kind,
                                                                           size, do, rank):
    file = toml(["east", "west"], steps=23, **STREAMING)
    if kind not in whole_runs:
        whole = [start(file, name, tmp_path / name, size, f"shard={kind}") for name in ("east", "west")]
        assert [codes(each) for each in whole] == [[0] * size] * 2
        whole_runs[kind] = {(name, each): (end_of(tmp_path / name, each), told(tmp_path / name, each))
                            for name in ("east", "west") for each in range(size)}
        for name in ("east", "west"):
            (tmp_path / name).rename(tmp_path / f"whole-{name}")
            for each in range(size):
                (tmp_path / f"{name}.{each}.losses").unlink()
    dying = start(file, "east", tmp_path / "east", size, f"shard={kind}", "at=13", f"do={do}", f"ranks={rank}")
    left = start(file, "west", tmp_path / "west", size, f"shard={kind}")
    assert dying[rank].wait(120) == (-signal.SIGKILL if do == "kill" else 1)
    assert dying[1 - rank].wait(ENDS_S) == 5
    for each in left:
        each.kill()
        each.wait()
    again = [start(file, name, tmp_path / name, size, f"shard={kind}") for name in ("east", "west")]
    assert [codes(each) for each in again] == [[0] * size] * 2
    for (name, each), (expected, losses) in whole_runs[kind].items():
        found = end_of(tmp_path / name, each)
        assert all(alike(found[key], expected[key]) for key in ("weights", "moments", "last", "at", "rng"))
        assert told(tmp_path / name, each) == losses


@pytest.mark.parametrize("do, ranks, code", [("int", "1", 130), ("int", "01", 130), ("stop", "1", 130),
                                             ("requeue", "01", 85), ("leave", "1", 85)])
def test_a_wish_of_any_rank_is_the_sites(toml, tmp_path, start, do, ranks, code):
    name = "west" if do == "leave" else "east"  # the first site does not leave
    file = toml(["east", "west"] if do == "leave" else ["east"], steps=2000, ckpt="2000 steps")
    if do == "leave":
        file.write_text(file.read_text().replace("min_sites = 2", "min_sites = 1"))
        start(file, "east", tmp_path / "east", 1)
    assert codes(start(file, name, tmp_path / "x", 2, "shard=ddp", "at=3", f"do={do}", f"ranks={ranks}")) == [code] * 2
    assert [end_of(tmp_path / "x", rank)["outcome"]["exit_code"] for rank in (0, 1)] == [code] * 2


def test_a_checkpoint_that_all_ranks_ask_for_is_one(toml, tmp_path, start):
    file = toml(["east"], steps=1500, ckpt="1500 steps")
    words = ["shard=ddp", "at=3", "do=checkpoint,status"]
    assert codes(start(file, "east", tmp_path / "x", 2, *words)) == [0, 0]
    steps = isthmus.open(tmp_path / "x").table("ckpt")["step"].tolist()
    assert len(steps) == 3 and steps[0] == 0 and 3 < steps[1] < steps[2] == 1500


@pytest.mark.parametrize("words, kind, text", [
    (["wrong=site", "wrong_at=1"], "config", "name different sites"),
    (["wrong=unnamed"], "config", "could be a rank inside a site"),
    (["wrong=layout", "wrong_at=1"], "config", "ranks 1 of this site have other parameters"),
    (["wrong=early", "wrong_at=1"], "config", "holds none of the model's parameters"),
    pytest.param(["wrong=early", "shard=fsdp"], "config", "made before the model was sharded", marks=fsdp2),
    (["outer.H=0"], "config", "outer.H"),
    (['outer.method="eager"', 'outer.placement="ranks"'], "config", "its outer state is whole at one process"),
    (['outer.placement="ranks"', "wrong=lr", "wrong_at=1"], "config", "outer.lr = 0.5 at this rank and 0.7 at rank 0"),
    (['outer.placement="ranks"', "wrong=layers", "wrong_at=1"], "config", "other layers at the ranks 1 of this site"),
])
def test_mistakes_are_told_at_every_rank(toml, tmp_path, start, words, kind, text):
    assert codes(start(toml(["east"]), "east", tmp_path / "x", 2, *words)) == [3, 3]
    said = [json.loads((tmp_path / f"x.{rank}.error").read_text()) for rank in (0, 1)]
    assert [each[0] for each in said] == [kind] * 2
    assert all(text in each[1] for each in said), said


@pytest.mark.parametrize("kind, size", [on("ddp", 4), on("fsdp", 4)])
def test_two_sites_may_be_two_groups_of_one_job(toml, tmp_path, start, kind, size):
    file = toml(["east", "west"])
    assert codes(start(file, "both", tmp_path / "x", size, f"shard={kind}", "anchors=7")) == [0] * size
    ends = [end_of(tmp_path / f"x-{('east', 'west')[rank // 2]}", rank) for rank in range(size)]
    assert all(alike(each["weights"], ends[0]["weights"]) for each in ends)
    assert not alike(ends[0]["moments"], ends[2]["moments"])
    assert all(alike(each["ended"], ends[0]["ended"]) for each in ends)  # after the end too


def test_what_rank_0_alone_reads_may_be_missing_elsewhere(toml, tmp_path, start):
    """A measured file of links, a key, the file's own evaluation, with lanes, for which each rank reads the file. The
    library's lines of that rank do not wait for the end."""
    words = ['outer.placement="ranks"', "evaluate=1", "wrong=unread", "wrong_at=1"]
    assert codes(start(toml(["east"]), "east", tmp_path / "x", 2, *words)) == [0, 0]
    assert end_of(tmp_path / "x", 1)["calls"] > 0


def test_an_error_of_layer_of_at_one_rank_is_told_at_all(toml, tmp_path, start):
    words = ['outer.placement="ranks"', "wrong=layer_of", "wrong_at=1"]
    assert codes(start(toml(["east"]), "east", tmp_path / "x", 2, *words)) == [3, 1]
    assert "rank 1 of this site: join: KeyError: 'embed.weight'" in (tmp_path / "x.0.error").read_text()


def test_a_changed_key_of_outer_counts_in_all_lanes(toml, tmp_path, start):
    file = toml(["east"], **STREAMING)
    for out, more in (("whole", []), ("x", ['outer.placement="ranks"'])):
        words = ["train=f", *more]
        assert codes(start(file, "east", tmp_path / out, 2, *words, "at=7", "do=stop")) == [130] * 2
        assert codes(start(file, "east", tmp_path / out, 2, *words, "change=outer.lr=0.5")) == [0] * 2
    assert end_of(tmp_path / "x", 1)["calls"] > 0
    whole, found = isthmus.open(tmp_path / "whole").weights(), isthmus.open(tmp_path / "x").weights()
    assert all(found[name].tobytes() == whole[name].tobytes() for name in whole)


def test_a_collective_that_an_exception_ends_is_a_failure(toml, tmp_path, start):
    """ctypes has no result then, and the library takes what is left of the call before."""
    ranks = start(toml(["east"]), "east", tmp_path / "x", 2, 'outer.placement="ranks"', "lanes=raises")
    assert 0 not in codes(ranks, ENDS_S)
    assert "a collective between the ranks of this site" in (tmp_path / "x.1.error").read_text()


def test_an_error_of_a_share_in_anchors_is_raised():
    """At a rank whose rank 0 has none."""
    from isthmus.torch._shared import SharedTrained

    class Following(SharedTrained):
        def __init__(self):
            self.ranks = type("Ranks", (), {"text": lambda self, given: "null"})()

        def _next_shown(self, values):
            raise isthmus.RunError("the share's own")

    with pytest.raises(isthmus.RunError, match="the share's own"):
        with Following().showing(iter([])):
            pass


def test_an_error_in_evaluate_is_the_callers_own(toml, tmp_path, start):
    ranks = start(toml(["east"]), "east", tmp_path / "x", 2, "evaluate=raises", 'eval.every="6 steps"')
    assert codes(ranks) == [1, 1]


def test_a_job_of_one_rank_is_a_site(toml, tmp_path, start):
    assert codes(start(toml(["east"]), "east", tmp_path / "one", 1, "shard=0")) == [0]
    assert codes(start(toml(["east"]), "east", tmp_path / "x", 1, "shard=ddp")) == [0]
    assert alike(end_of(tmp_path / "x")["weights"], end_of(tmp_path / "one")["weights"])


def test_a_group_needs_torch_distributed(toml):
    with pytest.raises(isthmus.ConfigError, match="init_process_group"):
        isthmus.torch.join(toml(["east"]), torch.nn.Linear(2, 2), site="east", group=object())


@pytest.mark.skipif(not FSDP2, reason="fully_shard needs PyTorch 2.6")
def test_the_example_trains_under_torchrun(toml, tmp_path):
    file = toml(["east", "west"], steps=40, more="H = 10", ckpt="40 steps")
    example = pathlib.Path(__file__).parents[2] / "examples/python/fsdp2.py"
    sites = [subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                               example, file, name, tmp_path / name]) for name in ("east", "west")]
    try:
        assert codes(sites) == [0, 0]
    finally:
        for each in sites:
            each.terminate()
            each.wait()
    table = isthmus.open(tmp_path / "east").table("train")
    assert table["loss"][-1] < 0.8 * table["loss"][0]
    ends = [isthmus.open(tmp_path / name).weights() for name in ("east", "west")]
    assert all(numpy.array_equal(ends[0][name], ends[1][name]) for name in ends[0])
