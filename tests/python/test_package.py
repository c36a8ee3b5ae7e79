# SPDX-License-Identifier: Apache-2.0
"""Tables, configurations, the program as functions, and the manners of the package."""
import doctest
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import isthmus
import isthmus._codec
import isthmus._tables


@pytest.mark.parametrize("module", [isthmus, isthmus._codec, isthmus._tables])
def test_docstrings(module):
    tried = doctest.testmod(module)
    assert tried.attempted > 0 and tried.failed == 0


def of_the_program(*words):
    done = subprocess.run([isthmus.program_path(), *words, "--json"], check=True, text=True,
                          capture_output=True)
    return json.loads(done.stdout)


def test_tables_are_the_programs():
    printed = of_the_program("methods")
    assert [each["name"] for each in printed["methods"]] == [each["name"] for each in isthmus.methods()]
    assert printed["codecs"] == isthmus.codecs()
    for topic in ("outer.H", "diloco", "train.steps"):
        said = of_the_program("explain", topic)
        found = isthmus.explain(topic)
        assert found["kind"] == said["kind"] and found["text"] == said["text"]
    with pytest.raises(isthmus.ConfigError, match="outer.H"):
        isthmus.explain("outer.h")


def test_configurations_have_every_value(toml):
    config = isthmus.load_config(toml, ["outer.H=10", "run.seed=8"])
    assert config.outer.H == 10 and config.run.seed == 8 and config.run.workers == 2
    assert config.net.dead_after is not None  # a default
    assert dict(config)["outer"]["codec"].startswith("int8")
    with pytest.raises(AttributeError, match="'outer.HH'; there are: H, carry"):
        config.outer.HH
    assert not hasattr(config, "nothing") and "H" in dir(config.outer)


def test_wrong_configurations_tell_all(toml, tmp_path):
    with pytest.raises(isthmus.ConfigError, match="outer.H = 0") as caught:
        isthmus.load_config(toml, ["outer.H=0", "run.nothing=1"])
    assert len(caught.value.diagnostics) == 2
    assert caught.value.diagnostics[0]["code"].startswith("E-")
    with pytest.raises(isthmus.SystemFault, match="no/such.toml"):
        isthmus.load_config("no/such.toml")
    with pytest.raises(isthmus.ConfigError, match="list of texts"):
        isthmus.load_config(toml, "outer.H=5")


def test_commands_are_functions(run, tmp_path):
    page = isthmus.report(run.folder, tmp_path / "report.html")
    assert "of-pytest" in page.read_text()
    with pytest.raises(isthmus.Error) as caught:
        isthmus.report(tmp_path / "nothing", tmp_path / "x.html")
    assert caught.value.exit_code in (3, 4) and "nothing" in str(caught.value)


def test_the_module_is_the_program():
    done = subprocess.run([sys.executable, "-m", "isthmus", "--version"], text=True, capture_output=True)
    assert done.returncode == 0 and isthmus.__version__ in done.stdout
    done = subprocess.run([sys.executable, "-m", "isthmus", "train", "no.toml"], text=True,
                          capture_output=True)
    assert done.returncode == 4 and "no.toml" in done.stderr


def imported(code="import isthmus", **environment):
    return subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, env={**os.environ, **environment})


def test_import_is_light():
    code = "import sys, isthmus; sys.exit(any(m in sys.modules for m in ('torch','pandas','pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("library, words", [
    ("/no/lib.so", "from ISTHMUS_LIBRARY"),
    ("libz", "is no library of isthmus"),
])
def test_another_library_is_refused(library, words, tmp_path):
    if library == "libz":
        found = sorted(pathlib.Path("/lib").glob("*/libz.so.1"))
        if not found:
            pytest.skip("no libz here")
        library = str(found[0])
    done = imported(ISTHMUS_LIBRARY=library)
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_import_is_quick():
    # The processor's seconds, which are those of the clock on an idle machine: other tests may have the cores.
    code = "import time; start = time.process_time(); import isthmus; print(time.process_time() - start)"
    seconds = []
    while len(seconds) < 10 and min(seconds, default=1) >= 0.3:
        seconds.append(float(imported(code).stdout))
    assert min(seconds) < 0.3, seconds


def test_a_package_of_another_version_is_refused(tmp_path):
    (tmp_path / "isthmus-9.8.7.dist-info").mkdir()
    (tmp_path / "isthmus-9.8.7.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: isthmus\nVersion: 9.8.7\n")
    done = imported(PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 1, done.stdout
    assert f"the package is version 9.8.7, its library '{isthmus._abi.library_path()}' version" in done.stderr
    assert f"{isthmus.__version__}: install both from one build" in done.stderr


def test_a_library_of_another_interface_is_refused(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, library = tmp_path / "other.c", tmp_path / "libisthmus.so"
    source.write_text("int isthmus_abi(void) { return 97; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    done = imported(ISTHMUS_LIBRARY=str(library))
    assert done.returncode == 1, done.stdout
    assert f"'{library}' speaks version 97 of the C interface, this package version {isthmus._abi.ABI}" in done.stderr
