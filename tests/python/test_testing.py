# SPDX-License-Identifier: Apache-2.0
"""check_resume tells a body that resumes from one that does not."""
import bodies
import pytest

import isthmus.testing

TOML = '[run]\nworkers = 2\n[train]\nsteps = 40\n[outer]\nmethod = "diloco"\nH = 5\n[ckpt]\nevery = "8 steps"\n'


def body(site):
    trainer = bodies.Trainer(site.index)
    site.attach(trainer.params, state=trainer.state)
    trainer.go_through(site)


def forgets(site):
    trainer = bodies.Trainer(site.index)
    site.attach(trainer.params)
    trainer.go_through(site)


def test_a_body_that_resumes_passes(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML)
    assert len(isthmus.testing.check_resume(file, body)) == 2


def test_a_body_that_forgets_its_momentum_is_told(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TOML)
    with pytest.raises(AssertionError, match="worker 0: 'parameter"):
        isthmus.testing.check_resume(file, forgets, seed=4)
