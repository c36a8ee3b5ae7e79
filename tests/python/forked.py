# SPDX-License-Identifier: Apache-2.0
"""Starts a test's script in processes that have its imports behind them: importing PyTorch takes a second of one core,
and a test file starts a hundred processes. One process imports the script and forks for each start; nothing runs there
before the fork but imports."""
import atexit
import importlib
import json
import os
import pathlib
import random
import selectors
import signal
import subprocess
import sys
import threading

_origins = {}  # script -> the process that forks


class Process:
    """Of a started script; the part of subprocess.Popen's interface that tests use."""

    def __init__(self, origin, pid):
        self._origin, self.pid, self.returncode = origin, pid, None

    def poll(self):
        self.returncode = self._origin.code_of(self.pid, 0)
        return self.returncode

    def wait(self, timeout=None):
        self.returncode = self._origin.code_of(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self._origin.script), timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:  # till then its number is not another process's
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


class _Origin:
    def __init__(self, script):
        self.script = script
        self._codes, self._pids, self._heard = {}, [], threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"})
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def _listen(self):
        for line in self._process.stdout:
            said = json.loads(line)
            with self._heard:
                if "begun" in said:
                    self._pids.append(said["begun"])
                else:
                    self._codes[said["ended"]] = said["code"]
                self._heard.notify_all()
        with self._heard:
            self._pids.append(None)
            self._heard.notify_all()

    def start(self, arguments, env):
        self._process.stdin.write(json.dumps({"arguments": arguments, "env": env}) + "\n")
        self._process.stdin.flush()
        with self._heard:
            assert self._heard.wait_for(lambda: self._pids, 120), "no process was forked"
            pid = self._pids.pop(0)
        assert pid is not None, f"{self.script} could not be imported"
        return Process(self, pid)

    def code_of(self, pid, timeout):
        with self._heard:
            self._heard.wait_for(lambda: pid in self._codes, timeout)
            return self._codes.get(pid)

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def start(script, *arguments, env=None):
    """Runs `script`'s main() with these arguments in a process of its own. `env`: the environment, default this one's."""
    script = pathlib.Path(script)
    if script not in _origins:
        _origins[script] = _Origin(script)
    return _origins[script].start([os.fspath(each) for each in arguments], dict(os.environ if env is None else env))


def _serve(script):
    """Forks for each line of stdin. RETURNS: in a forked process, the module whose main() is to run."""
    module = importlib.import_module(pathlib.Path(script).stem)
    listens, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    def tell(**said):
        os.write(1, (json.dumps(said) + "\n").encode())

    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listens, selectors.EVENT_READ)
        pending, open_ = b"", True
        while open_:
            ready = {key.fd for key, _ in selector.select()}
            if listens in ready:
                os.read(listens, 4096)
                while True:
                    try:
                        pid, status = os.waitpid(-1, os.WNOHANG)
                    except ChildProcessError:
                        break
                    if not pid:
                        break
                    tell(ended=pid, code=os.waitstatus_to_exitcode(status))
            if 0 in ready:
                more = os.read(0, 65536)
                open_ = bool(more)
                *lines, pending = (pending + more).split(b"\n")
                for line in lines:
                    pid = os.fork()
                    if pid == 0:
                        return module, json.loads(line)
                    tell(begun=pid)
    return None, None


def _main():
    module, asked = _serve(sys.argv[1])
    if module is None:
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # the pipe is the origin's
    os.environ.clear()
    os.environ.update(asked["env"])
    random.seed()  # as in processes that were started one by one
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.argv = [module.__file__, *asked["arguments"]]
    module.main()


if __name__ == "__main__":
    _main()
