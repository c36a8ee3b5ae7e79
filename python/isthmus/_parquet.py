# SPDX-License-Identifier: Apache-2.0
"""Parquet for `python -m isthmus data tokenize`: the program itself reads no parquet.

Each parquet file is copied, one row group after another, into a .jsonl.gz below `--out`, which the program then
tokenizes like any other. What a call has copied goes once the program has ended well or refused; after a signal it
stays for the next call.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Iterator

from ._errors import ConfigError, SystemFault, told, unstarted

_COPIES = ".parquet"  # the folder of copies below --out
_ROWS = 1024  # at a time
_REFUSED = (2, 3, 4)  # exit codes of a call that was refused: what it copied is of no use
INTERRUPTED = 130  # exit code after Ctrl-C
_WITH_VALUE = ("--out", "--field", "--tokenizer", "--eos", "--jobs")


def _is_parquet(path: pathlib.Path) -> bool:
    """By its content, as the program tells; by its name where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return path.suffix == ".parquet"


def _is_value(words: "list[str]", place: int) -> bool:
    """Whether a word is the value of the flag before it."""
    return words[place - 1] in _WITH_VALUE


def _files_of(word: str) -> "list[pathlib.Path]":
    """The files that a path or pattern names, in order, as the program finds them."""
    return [pathlib.Path(name) for name in sorted(glob.glob(word)) or [word]]


def names_parquet(words: "list[str]") -> bool:
    """Whether the words of a command line are a `data tokenize` of parquet files."""
    return words[:2] == ["data", "tokenize"] and any(
        _is_parquet(path)
        for place in _places(words)
        for path in _files_of(words[place])
    )


def value_of(words: "list[str]", flag: str) -> "str | None":
    """The value of `--flag VALUE` or `--flag=VALUE`."""
    for place, word in enumerate(words):
        if word == flag and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(flag + "="):
            return word[len(flag) + 1 :]
    return None


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        known = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("pyarrow")
        raise SystemFault(
            "data tokenize: parquet files are read by pyarrow, which "
            + ("is not installed" if known else f"cannot be imported ({error})")
            + ": pip install 'isthmus[data]'"
        ) from error
    return pyarrow.parquet


def _unread(source: pathlib.Path, error: Exception, defect: str) -> SystemFault:
    """What to say of a file that pyarrow could not read: the machine's refusal, or the file's `defect`."""
    if isinstance(error, MemoryError):
        return SystemFault(f"{source}: there is not enough memory to read it: {error}")
    if isinstance(error, OSError) and error.errno is not None:
        return SystemFault(f"{source}: cannot be read: {os.strerror(error.errno)}")
    return SystemFault(f"{source}: {defect}: {error}")


def _unwritten(path: "pathlib.Path | str", error: OSError) -> SystemFault:
    """What to say of a file or folder that could not be written."""
    remedies = {
        errno.ENOSPC: "free space there, or give --out on another disk",
        errno.EDQUOT: "free space within the quota there, or give --out on another disk",
        errno.EFBIG: "raise the file size limit (ulimit -f)",
        errno.ENOTDIR: "a part of the path is a file, not a directory",
        errno.EEXIST: "a part of the path is a file, not a directory",
        errno.EACCES: "check the folder's owner and permissions",
        errno.EPERM: "check the folder's owner and permissions",
        errno.EROFS: "mount that disk for writing, or give another --out",
    }
    remedy = remedies.get(error.errno or 0)
    return SystemFault(f"{path}: cannot be written: {error.strerror or error}{'; ' + remedy if remedy else ''}")


def _open(source: pathlib.Path, field: str) -> Any:
    """A parquet file with a column of texts. Raises SystemFault or ConfigError."""
    parquet = _pyarrow()
    try:
        file = parquet.ParquetFile(source)
    except Exception as error:  # pyarrow has errors of many kinds
        raise _unread(source, error, "not a usable parquet file") from error
    columns = file.schema_arrow.names
    if field not in columns:
        raise ConfigError(
            f"{source}: has no column '{field}' (columns: {', '.join(columns)}); give --field NAME"
        )
    kind = str(file.schema_arrow.field(field).type)
    if kind not in ("string", "large_string"):
        raise ConfigError(f"{source}: the column '{field}' is {kind} and no text")
    return file


def _texts(file: Any, source: pathlib.Path, field: str) -> "Iterator[str]":
    """The texts of a column, one batch in memory. Raises SystemFault for data that cannot be read."""
    try:
        batches = file.iter_batches(batch_size=_ROWS, columns=[field])
        while (batch := next(batches, None)) is not None:
            texts = batch.column(0).to_pylist()
            del batch
            yield from texts
    except GeneratorExit:
        raise
    except Exception as error:
        raise _unread(source, error, "damaged parquet data") from error


def copy_as_lines(source: pathlib.Path, field: str, target: pathlib.Path) -> None:
    """Writes the column `field` of a parquet file as JSON lines; `target` is whole or absent.

    Memory holds one batch of a row group. Raises SystemFault for a file that cannot be read or written, ConfigError
    for a column that is absent or holds no text.
    """
    texts = _texts(_open(source, field), source, field)
    part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        # Without name and time, so that equal files have equal copies.
        with open(part, "wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as out:
            for text in texts:
                out.write(json.dumps({field: text}, ensure_ascii=False).encode() + b"\n")
        os.replace(part, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and not isinstance(error, SystemFault):
            raise _unwritten(target, error) from error
        raise


def _digest(path: pathlib.Path, field: str) -> str:
    """Of a file's name, content and column: a copy of what the file held before is another copy."""
    digest = hashlib.sha256(f"{path.resolve()} {field} ".encode())
    try:
        with open(path, "rb") as file:
            for part in iter(lambda: file.read(1 << 20), b""):
                digest.update(part)
    except OSError as error:
        raise SystemFault(f"{path}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:12]


def _is_held(folder: pathlib.Path) -> bool:
    """Whether a living process of this machine writes a run into the folder."""
    try:
        with open(folder / "run.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    return False


def _exit_code(of: int) -> int:
    """As a shell has it of a process that a signal ended."""
    return of if of >= 0 else 128 - of


def _foreground() -> "int | None":
    """The process group that a terminal's Ctrl-C reaches; None without a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None
    try:
        return os.tcgetpgrp(terminal)
    except OSError:
        return None
    finally:
        os.close(terminal)


def _called(words: "list[str]") -> int:
    """The exit code of a program. An interruption is the program's, whose end is awaited: a terminal's Ctrl-C reaches
    both processes, and where there is no terminal a signal to this one is handed on.
    """
    program: "subprocess.Popen[bytes] | None" = None

    def hand_on(number: int, frame: Any) -> None:
        if program is not None and program.poll() is None and os.getpgrp() != _foreground():
            program.send_signal(number)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # then the program ignores it, too
    before = None if ignored else signal.signal(signal.SIGINT, hand_on)
    try:
        try:
            program = subprocess.Popen(words)
        except OSError as error:
            raise unstarted(words[0], error) from error
        return _exit_code(program.wait())
    finally:
        if not ignored:
            signal.signal(signal.SIGINT, before)


def tokenize(program: str, words: "list[str]") -> int:
    """Runs the program on copies of the parquet files. Returns its exit code."""
    out = value_of(words, "--out")
    if out is None:
        return _called([program, *words])  # it says what is missing
    field = value_of(words, "--field") or "text"
    folder = pathlib.Path(out)
    if _is_held(folder):
        return _called([program, *words])  # it says by which process
    if folder.is_file():
        raise ConfigError(f"output folder '{folder}' is a file; choose another with --out")
    sources = [path for place in _places(words) for path in _files_of(words[place]) if _is_parquet(path)]
    for source in sources:
        _open(source, field)
    code = _refusal(program, words)
    if code != 0:
        return code
    copies = folder / _COPIES
    made = [each for each in (copies, folder, *folder.parents) if not each.exists()]
    try:
        copies.mkdir(parents=True, exist_ok=True)
        targets = {each: copies / f"{each.stem}-{_digest(each, field)}.jsonl.gz" for each in sources}
        made[:0] = [target for target in targets.values() if not target.exists()]
        for source, target in targets.items():
            if not target.exists():
                copy_as_lines(source, field, target)
        code = _called([program, *_given(words, targets)])
    except (ConfigError, OSError):
        _remove(made)
        raise
    if code == 0:
        shutil.rmtree(copies)
    elif code in _REFUSED:
        _remove(made)
    return code


def _places(words: "list[str]") -> "list[int]":
    """Where the words are files, or patterns of files."""
    return [at for at in range(2, len(words)) if not words[at].startswith("-") and not _is_value(words, at)]


def _refusal(program: str, words: "list[str]") -> int:
    """The program's exit code for an empty file, with what it says where that is not 0: flags and tokenizer."""
    with tempfile.TemporaryDirectory() as other:
        empty = pathlib.Path(other) / "empty.jsonl"
        empty.touch()
        files = _places(words)
        asked = [str(empty) if at in files[:1] else word for at, word in enumerate(words) if at not in files[1:]]
        for at, word in enumerate(asked):
            if word.startswith("--out="):
                asked[at] = f"--out={other}/out"
            elif asked[at - 1] == "--out":
                asked[at] = f"{other}/out"
        try:
            done = subprocess.run([program, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise unstarted(program, error) from error
    if done.returncode != 0:
        if "--json" in words:
            print(done.stdout.decode(errors="replace"), end="", flush=True)
        sys.stderr.write(done.stderr.decode(errors="replace"))
    return _exit_code(done.returncode)


def _given(words: "list[str]", targets: "dict[pathlib.Path, pathlib.Path]") -> "list[str]":
    """The words with the copy in place of each parquet file."""
    given: "list[str]" = []
    files = _places(words)
    for at, word in enumerate(words):
        found = _files_of(word) if at in files else []
        if any(path in targets for path in found):
            given += [str(targets.get(path, path)) for path in found]
        else:
            given.append(word)
    return given


def _remove(made: "list[pathlib.Path]") -> None:
    """Removes the files, and the folders that are empty then, from the innermost on."""
    for each in made:
        with contextlib.suppress(OSError):
            if each.is_dir():
                each.rmdir()
            else:
                each.unlink()


def main(program: str, words: "list[str]") -> int:
    """`tokenize`, with errors as the program prints them."""
    as_json = "--json" in words
    try:
        return tokenize(program, words)
    except (ConfigError, SystemFault) as error:
        return told(error, as_json)
    except OSError as error:
        return told(_unwritten(error.filename or program, error), as_json)
    except KeyboardInterrupt:
        return INTERRUPTED  # what is copied stays, and the same command goes on with it
