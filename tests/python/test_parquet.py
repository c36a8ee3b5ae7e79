# SPDX-License-Identifier: Apache-2.0
"""`python -m isthmus data tokenize` of parquet files, where pyarrow is installed; and what is said where it is not."""

import errno
import fcntl
import gzip
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
from typing import Any, Callable, Iterator

import pytest

from isthmus import _parquet
from isthmus._errors import ConfigError, SystemFault

TOKENIZER = {
    "added_tokens": [{"id": 3, "content": "</s>", "special": True, "normalized": False}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
}


def test_only_tokenize_of_parquet_is_taken() -> None:
    assert _parquet.names_parquet(["data", "tokenize", "a.parquet", "--out", "o"])
    assert not _parquet.names_parquet(["data", "tokenize", "a.jsonl", "--out", "o"])
    assert not _parquet.names_parquet(["data", "inspect", "a.parquet"])


def test_a_parquet_file_is_known_by_its_content(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rows.pq").write_bytes(b"PAR1" + bytes(8))
    (tmp_path / "lines.jsonl").write_text("{}\n")
    for word in ("rows.pq", "*"):
        assert _parquet.names_parquet(["data", "tokenize", str(tmp_path / word), "--skip-bad", "--out", "o"])
    assert not _parquet.names_parquet(["data", "tokenize", str(tmp_path / "*.jsonl"), "--out", "o.parquet"])


def test_flags_have_two_spellings() -> None:
    assert _parquet.value_of(["x", "--out", "o"], "--out") == "o"
    assert _parquet.value_of(["x", "--out=o"], "--out") == "o"
    assert _parquet.value_of(["x"], "--out") is None


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(SystemFault, match=r"isthmus\[data\]"):
        _parquet.copy_as_lines(tmp_path / "a.parquet", "text", tmp_path / "a.jsonl.gz")


def write_parquet(path: pathlib.Path, texts: "list[str]") -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pyarrow.table({"text": texts, "n": list(range(len(texts)))})
    pyarrow.parquet.write_table(table, path, row_group_size=2)


def test_rows_become_lines(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / "a.jsonl.gz"
    texts = ["ab", "", "é\n\"x\"", "ba", "b"]
    write_parquet(source, texts)
    _parquet.copy_as_lines(source, "text", target)
    lines = gzip.decompress(target.read_bytes()).decode().splitlines()
    assert [json.loads(line)["text"] for line in lines] == texts
    with pytest.raises(ConfigError, match="columns: text, n"):
        _parquet.copy_as_lines(source, "body", target)
    with pytest.raises(ConfigError, match="int64 and no text"):
        _parquet.copy_as_lines(source, "n", target)
    source.write_bytes(source.read_bytes()[:40])
    with pytest.raises(SystemFault, match="not a usable parquet file"):
        _parquet.copy_as_lines(source, "text", tmp_path / "b.jsonl.gz")
    assert not (tmp_path / "b.jsonl.gz").exists()


def test_the_program_tokenizes_the_rows(tmp_path: pathlib.Path) -> None:
    from isthmus._program import program_path

    write_parquet(tmp_path / "a.parquet", ["ab", "ba"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    out = tmp_path / "out"
    words = ["data", "tokenize", str(tmp_path / "*.parquet"), "--tokenizer", str(tmp_path), "--out", str(out), "-q"]
    assert _parquet.main(str(program_path()), words) == 0
    assert (out / "shard-00000.bin").read_bytes() == bytes([2, 0, 3, 0, 1, 0, 0, 0, 3, 0])
    assert not (out / ".parquet").exists()


def test_a_pattern_may_name_parquet_and_lines(tmp_path: pathlib.Path) -> None:
    from isthmus._program import program_path

    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in/a.pq", ["ab", "ba"])
    (tmp_path / "in/b.jsonl").write_text('{"text": "b"}\n')
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    out = tmp_path / "out"
    words = ["data", "tokenize", str(tmp_path / "in/*"), "--tokenizer", str(tmp_path), "--out", str(out), "-q"]
    assert _parquet.main(str(program_path()), words) == 0
    assert (out / "shard-00000.bin").read_bytes() == bytes([2, 0, 3, 0, 1, 0, 0, 0, 3, 0])
    assert (out / "shard-00001.bin").read_bytes() == bytes([1, 0, 3, 0])


def test_a_refused_call_leaves_nothing(tmp_path: pathlib.Path) -> None:
    from isthmus._program import program_path

    damaged = tmp_path / "a.parquet"
    damaged.write_bytes(b"PAR1" + bytes(8))  # refused with pyarrow and without
    out = tmp_path / "new/out"
    words = ["data", "tokenize", str(damaged), "--tokenizer", str(tmp_path), "--out"]
    assert _parquet.main(str(program_path()), [*words, str(out)]) == 4
    assert not out.parent.exists()
    (tmp_path / "there").mkdir()
    assert _parquet.main(str(program_path()), [*words, str(tmp_path / "there")]) == 4
    assert list((tmp_path / "there").iterdir()) == []


def test_a_bad_tokenizer_is_refused_before_anything_is_copied(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from isthmus._program import program_path

    write_parquet(tmp_path / "a.parquet", ["ab", "ba"])
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(_parquet, "copy_as_lines", lambda *given: pytest.fail("copied"))
    words = ["data", "tokenize", str(tmp_path / "a.parquet"), "--tokenizer", str(tmp_path), "--out"]
    assert _parquet.main(str(program_path()), [*words, str(tmp_path / "new/out")]) == 4
    assert "tokenizer.json" in capfd.readouterr().err
    assert not (tmp_path / "new").exists()


def test_what_the_program_refuses_leaves_no_copy(tmp_path: pathlib.Path) -> None:
    from isthmus._program import program_path

    write_parquet(tmp_path / "a.parquet", ["ab", "ba"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (tmp_path / "bad.jsonl").write_text('{"text": 3}\n')
    words = ["data", "tokenize", str(tmp_path / "bad.jsonl"), str(tmp_path / "a.parquet"), "-q"]
    words += ["--tokenizer", str(tmp_path), "--out"]
    assert _parquet.main(str(program_path()), [*words, str(tmp_path / "new/out")]) == 4
    assert not (tmp_path / "new").exists()
    out = tmp_path / "there"  # with a shard of another call's, and the copy of one that was killed
    (out / ".parquet").mkdir(parents=True)
    (out / ".parquet/other.jsonl.gz").write_bytes(b"")
    (out / "shard-00009.bin").write_bytes(b"")
    assert _parquet.main(str(program_path()), [*words, str(out)]) == 3
    assert sorted(each.name for each in out.iterdir()) == [".parquet", "shard-00009.bin"]
    assert [each.name for each in (out / ".parquet").iterdir()] == ["other.jsonl.gz"]


def test_a_second_file_that_is_damaged_leaves_no_copy_of_the_first(tmp_path: pathlib.Path) -> None:
    from isthmus._program import program_path

    write_parquet(tmp_path / "a.parquet", ["ab", "ba"])
    write_parquet(tmp_path / "b.parquet", ["ab" * 500, "ba" * 500])
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    words = ["data", "tokenize", str(tmp_path / "*.parquet"), "--tokenizer", str(tmp_path), "--out"]
    for damaged in (whole[:-9], whole[:4] + b"\xff" * 40 + whole[44:]):  # seen at the opening, and at the rows
        (tmp_path / "b.parquet").write_bytes(damaged)
        assert _parquet.main(str(program_path()), [*words, str(tmp_path / "new/out")]) == 4
        assert not (tmp_path / "new").exists()


def test_nothing_is_copied_into_the_folder_of_a_living_run(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from isthmus._program import program_path

    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(8))
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    out = tmp_path / "out"
    out.mkdir()
    with open(out / "run.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = ["data", "tokenize", str(tmp_path / "a.parquet"), "--tokenizer", str(tmp_path), "--out", str(out)]
        assert _parquet.main(str(program_path()), words) == 4
        assert "is in use" in capfd.readouterr().err
        assert [each.name for each in out.iterdir()] == ["run.lock"]


class Column:
    """A stand-in for what pyarrow gives: a file of one batch, and a batch of one column."""

    def __init__(self, read: "Callable[[], list[str]]") -> None:
        self.read = read

    def iter_batches(self, **given: Any) -> "Iterator[Column]":
        yield self

    def column(self, place: int) -> "Column":
        return self

    def to_pylist(self) -> "list[str]":
        return self.read()


def reads(monkeypatch: pytest.MonkeyPatch, read: "Callable[[], list[str]]") -> None:
    monkeypatch.setattr(_parquet, "_open", lambda source, field: Column(read))


def raising(error: BaseException) -> "Callable[..., Any]":
    def raise_it(*words: Any, **given: Any) -> Any:
        raise error

    return raise_it


def test_what_cannot_be_written_is_no_damaged_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, lambda: [os.urandom(30).hex() for _ in range(2000)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, limits[1]))
    try:
        with pytest.raises(SystemFault, match="a.jsonl.gz: cannot be written: File too large; raise the file size limit"):
            _parquet.copy_as_lines(tmp_path / "a.parquet", "text", tmp_path / "a.jsonl.gz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    full = _parquet._unwritten("out", OSError(errno.ENOSPC, "No space left on device"))
    assert str(full) == "out: cannot be written: No space left on device; free space there, or give --out on another disk"


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full")
def test_a_full_disk_is_one_error(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch, lambda: ["text"])
    opened = open
    monkeypatch.setattr("builtins.open", lambda path, *mode: opened("/dev/full" if mode == ("wb",) else path, *mode))
    with pytest.raises(SystemFault, match="a.jsonl.gz: cannot be written: No space left on device"):
        _parquet.copy_as_lines(tmp_path / "a.parquet", "text", tmp_path / "a.jsonl.gz")


def test_what_cannot_be_read_says_why(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, said in (
        (OSError(errno.EIO, "Input/output error"), "a.parquet: cannot be read: Input/output error"),
        (OSError("corrupt snappy data"), "a.parquet: damaged parquet data: corrupt snappy data"),
        (ValueError("no such page"), "a.parquet: damaged parquet data: no such page"),
        (MemoryError("malloc of size 9"), "a.parquet: there is not enough memory to read it: malloc of size 9"),
    ):
        reads(monkeypatch, raising(error))
        with pytest.raises(SystemFault, match=said):
            _parquet.copy_as_lines(tmp_path / "a.parquet", "text", tmp_path / "a.jsonl.gz")
        assert list(tmp_path.iterdir()) == []


def call_of(tmp_path: pathlib.Path, out: pathlib.Path, *more: str) -> "list[str]":
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(8))
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return ["data", "tokenize", str(tmp_path / "a.parquet"), "--tokenizer", str(tmp_path), "--out", str(out), *more]


def test_every_refusal_of_the_machine_is_one_line(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from isthmus._program import program_path

    reads(monkeypatch, lambda: ["ab"])
    (tmp_path / "file").write_text("mine")

    def refused(out: pathlib.Path, code: int, said: str) -> None:
        assert _parquet.main(str(program_path()), call_of(tmp_path, out, "--json")) == code
        told = capfd.readouterr()
        assert told.err.startswith("isthmus: error: ") and said in told.err and told.err.count("\n") == 1
        error = json.loads(told.out)["error"]
        assert error["exit"] == code and said in error["message"]

    refused(tmp_path / "file", 3, "is a file; choose another with --out")
    refused(tmp_path / "file/below", 4, "cannot be written: Not a directory; a part of the path is a file")
    assert (tmp_path / "file").read_text() == "mine"
    with monkeypatch.context() as denied:
        denied.setattr(pathlib.Path, "mkdir", raising(PermissionError(errno.EACCES, "Permission denied", "new")))
        refused(tmp_path / "new", 4, "new: cannot be written: Permission denied; check the folder's owner")
    (tmp_path / "a.parquet").unlink()
    monkeypatch.setattr(_parquet, "copy_as_lines", raising(OSError(errno.ENOSPC, "No space left on device", "new")))
    refused(tmp_path / "new", 4, "new: cannot be written: No space left on device; free space there")
    assert not (tmp_path / "new").exists()


def test_an_interruption_is_no_traceback_and_keeps_the_copies(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from isthmus._program import program_path

    reads(monkeypatch, lambda: ["ab"])
    with monkeypatch.context() as stopped:
        stopped.setattr(_parquet, "_called", raising(KeyboardInterrupt()))
        assert _parquet.main(str(program_path()), call_of(tmp_path, tmp_path / "out")) == 130
    assert "Traceback" not in capfd.readouterr().err
    assert len(list((tmp_path / "out/.parquet").iterdir())) == 1
    assert _parquet._called(["sh", "-c", "kill -INT $$"]) == 130
    monkeypatch.setattr(_parquet, "_foreground", os.getpgrp)  # Ctrl-C reaches the program by itself
    assert _parquet._called(["sh", "-c", "kill -INT $PPID; exit 7"]) == 7  # it is awaited
    monkeypatch.setattr(_parquet, "_foreground", lambda: None)  # and else it is handed on
    waits = ("import os, signal; signal.signal(signal.SIGINT, lambda *_: os._exit(8)); "
             "os.kill(os.getppid(), signal.SIGINT); signal.pause()")
    assert _parquet._called([sys.executable, "-c", waits]) == 8


def test_an_ignored_interruption_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert _parquet._called(["sh", "-c", "kill -INT $$; exit 9"]) == 9
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_pyarrow_that_is_broken_is_not_called_absent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow/__init__.py").write_text("raise ImportError('pyarrow requires NumPy 2.0')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemFault, match="cannot be imported .pyarrow requires NumPy 2.0."):
        _parquet._pyarrow()


def test_a_program_that_cannot_be_started_is_one_line(tmp_path: pathlib.Path) -> None:
    no_program = tmp_path / "isthmus"
    no_program.write_bytes(b"\x00\x01\x02\x03")
    no_program.chmod(0o755)
    asked = ["data", "tokenize", "a.parquet", "--out", "o"]
    for named, words, said in ((tmp_path / "absent", ["--version"], "no program at"),
                               (tmp_path / "absent", asked, "no program at"),
                               (no_program, ["--version"], "cannot be started: Exec format error"),
                               (tmp_path, ["--version"], "cannot be started: Permission denied")):
        done = subprocess.run([sys.executable, "-m", "isthmus", *words], capture_output=True, text=True,
                              env={**os.environ, "ISTHMUS_PROGRAM": str(named)})
        assert done.returncode == 4 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_program_that_cannot_be_started_for_parquet_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reads(monkeypatch, lambda: ["ab"])
    no_program = tmp_path / "isthmus"
    no_program.write_bytes(b"\x00\x01\x02\x03")
    no_program.chmod(0o755)
    for flags in (("--out", str(tmp_path / "out")), ()):
        words = ["data", "tokenize", str(tmp_path / "a.parquet"), *flags]
        assert _parquet.main(str(no_program), words) == 4
        assert "isthmus: cannot be started: Exec format error" in capfd.readouterr().err
