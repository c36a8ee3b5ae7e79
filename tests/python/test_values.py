# SPDX-License-Identifier: Apache-2.0
"""What a run reads of the caller's arrays and writes into them."""
import numpy
from test_session import toml  # noqa: F401 (a fixture)

import isthmus


def test_what_the_run_reads_and_writes_is_what_the_arrays_hold(toml, tmp_path):
    """400 sets of arrays: one value to 3 million, 0 to 4 dimensions."""
    rng = numpy.random.default_rng(11)
    file = toml(steps=2, method="localsgd", more='codec = "fp32"')
    file.write_text(file.read_text().replace("H = 5", "H = 1").replace("[ckpt]", '[ckpt]\nkeep = 1'))
    for number in range(400):
        large = number % 50 == 0
        shapes = [(int(rng.integers(1_000_000, 3_000_000)),)] if large else []
        shapes += [tuple(rng.integers(1, 6, rng.integers(0, 5))) for _ in range(rng.integers(1, 6))]
        shapes = {f"layers.{rng.integers(0, 3)}.p{i}": shape for i, shape in enumerate(shapes)}
        drawn = [{name: numpy.asarray(rng.standard_normal(shape), numpy.float32) for name, shape in shapes.items()}
                 for _ in range(2)]

        def body(site):
            params = {name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()}
            site.attach(params)
            for t, _ in site.steps():
                for name in params if t == 1 else ():
                    params[name][...] = drawn[site.index][name]
                site.step(0, skipped=t == 2)
            for name, array in params.items():
                assert array.tobytes() == mean[name].tobytes(), (number, name)

        # The first round's mean by the arithmetic of the exchange: a sum in float32, halved.
        mean = {name: (drawn[0][name] + drawn[1][name]) / numpy.float32(2) for name in shapes}
        mean = {name: numpy.asarray(numpy.float32(0) - (numpy.float32(0) - each)) for name, each in mean.items()}
        isthmus.run(file, body, out=tmp_path / "x", force=True)
        written = isthmus.open(tmp_path / "x").weights()
        assert {name: each.shape for name, each in written.items()} == shapes
        for name, each in written.items():
            assert each.tobytes() == mean[name].tobytes(), (number, name)
