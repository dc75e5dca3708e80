"""scripts/rank_runs.py: runs under mpirun, and checks of what they say."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
}
ENVIRONMENT = dict(os.environ, TENON_NUM_THREADS="1", TENON_RANK_TIMEOUT="60")
RUN_SECONDS = 300  # for a run that nobody kills

checked = []
failed_checks = []


def check(true, what):
    """The word for a printed line; a false one makes the program end with status 1."""
    checked.append(what)
    if not true:
        failed_checks.append(what)
    return "ok" if true else "FAILED"


class Run:
    """A launcher and its ranks. `with` ends with no process of them left."""

    def __init__(self, words):
        self.mark = f"TENON_BENCH_RUN={os.getpid()}-{random.getrandbits(64):x}"
        name, value = self.mark.split("=")
        self.out = tempfile.TemporaryFile("w+")  # a pipe would stay open while a rank lives
        self.err = tempfile.TemporaryFile("w+")
        self.launcher = subprocess.Popen(words, env={**ENVIRONMENT, name: value}, stdout=self.out,
                                         stderr=self.err, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes():
            send(process, signal.SIGKILL)
        self.launcher.wait()
        self.out.close()
        self.err.close()

    def processes(self, program=None):
        """Launchers put ranks into process groups of their own, so all are found by the environment."""
        found = []
        for process in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                with open(f"/proc/{process}/environ", "rb") as environ:
                    ours = self.mark.encode() + b"\0" in environ.read()
                with open(f"/proc/{process}/comm", encoding="utf-8") as comm:
                    name = comm.read().strip()
            except OSError:
                continue  # it has ended
            if ours and program in (None, name):
                found.append(process)
        return found

    def status(self, seconds):
        """The launcher's; None where it has not ended by then."""
        try:
            return self.launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    @staticmethod
    def text(file):
        file.seek(0)
        return file.read()


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def result(words):
    with Run(words) as run:
        status = run.status(RUN_SECONDS)
        if status != 0:
            sys.exit(f"{' '.join(words)}: status {status} (None: not ended in {RUN_SECONDS} s)\n"
                     f"{run.text(run.err)}")
        return json.loads(run.text(run.out))
