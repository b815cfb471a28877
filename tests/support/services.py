"""Loader, workers and gateway as processes on the demo model, for tests in Python; and what the kernel says of a process."""

import hashlib
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODEL = "demo.Q8_0.gguf"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Services:
    """The services, answering; end() ends them.

    descriptors: the gateway's limit of them, soft and hard.  keys: limits of API keys, by the key, which is its own name.
    npu: attention is on a second worker.  devices: tandem-gpu-worker and the emulated NPU in place of reference_worker.
    proxies: by the worker, flags of the answer_proxy through which the gateway reaches it.  folder: of sockets, logs and caches.
    model: its file, served with `context` positions.  encoder: of pictures, a file.
    """

    def __init__(self, programs, *gateway_flags, descriptors=None, keys=None, npu=False, devices=False, proxies=None,
                 folder=None, model=SOURCE / "models/demo" / MODEL, context=512, encoder=None):
        self.programs, self.devices = programs, devices
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="tandem-test-"))
        self.limits = {"gateway": descriptors} if descriptors else {}
        http, grpc, metrics = free_ports(3)
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{port}" for port in (http, grpc, metrics))
        self.unix = self.socket("gateway")
        self.workers = ["gpu", "npu"] if npu else ["gpu"]
        self.flags = {"loader": ["--root", model.parent]}
        if encoder:
            self.flags["loader"] += ["--mmproj", f"{model.name}={encoder}"]
        policy = "off"
        for worker in self.workers:
            self.flags[worker] = ["--name", f"{worker}0", *self.worker_flags(worker)]
            if worker == "npu":
                policy = "emulate" if devices else "require"
            if proxies:
                self.flags[f"{worker}-proxy"] = ["--worker", f"{self.folder}/{worker}.sock", *proxies[worker]]
        reached = [f"{worker}-proxy" if proxies else worker for worker in self.workers]
        self.flags["gateway"] = [
            "--port", str(grpc), "--http", self.http, "--metrics", self.metrics, "--loader", self.socket("loader"),
            *(flag for name in reached for flag in ("--worker", self.socket(name))),
            "--model", model.name, "--npu", policy, "--max-rows", "64", "--context", str(context), *gateway_flags]
        if keys:
            file = self.folder / "keys"
            file.write_text("".join(f"{name} sha256:{hashlib.sha256(name.encode()).hexdigest()} {limits}\n"
                                    for name, limits in keys.items()))
            self.flags["gateway"] += ["--http-api-keys", str(file)]
        self.processes = {}
        try:
            for name in self.flags:
                self.start(name)
            self.wait_until_ready()
        except BaseException:
            self.end(1)
            raise

    def worker_flags(self, worker):
        if not self.devices:
            return ["--kind", worker]
        return ["--npu", "emulate"] if worker == "npu" else []

    def program(self, name):
        if name.endswith("-proxy"):
            return "answer_proxy"
        if name in self.workers:
            return f"tandem-{name}-worker" if self.devices else "reference_worker"
        return f"tandem-{name}"

    def socket(self, name):
        return f"unix:{self.folder}/{name}.sock"

    def start(self, name):
        """Starts a service, again if it has ended; its log goes on."""
        most = self.limits.get(name)

        def limit():
            if most:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

        environment = {**os.environ, "XDG_CACHE_HOME": f"{self.folder}/cache", "TMPDIR": str(self.folder)}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.programs / self.program(name), "--listen", self.socket(name), *self.flags[name]],
                stdout=log, stderr=log, env=environment, preexec_fn=limit)
        return self.processes[name]

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    @property
    def gateway(self):
        return self.processes["gateway"]

    def log(self, name="gateway"):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_until_ready(self, patience=60):
        """Until /ready is 200, the gateway being there or not."""
        end = time.monotonic() + patience
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.http}/ready", timeout=5):
                    return
            except OSError as error:
                if time.monotonic() > end or self.gateway.poll() is not None:
                    logs = "".join(f"\n--- {name}.log\n{self.log(name)[-1500:]}" for name in self.processes)
                    raise RuntimeError(f"the gateway is not ready ({error}){logs}") from None
                time.sleep(0.05)

    def status(self):
        """GetStatus, as JSON."""
        with urllib.request.urlopen(f"http://{self.http}/tandem/v1/status", timeout=10) as answer:
            return json.load(answer)

    def end(self, patience=30):
        """Ends all; the gateway's exit status, None if it had to be killed after `patience` seconds."""
        status = None
        for name, process in reversed(self.processes.items()):
            process.terminate()
            try:
                ended = process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                ended = None
            if name == "gateway":
                status = ended
        shutil.rmtree(self.folder, ignore_errors=True)
        return status


class Usage:
    """What a process holds: resident bytes, the most of them since reset_peak(), descriptors, threads."""

    def __init__(self, pid):
        process = pathlib.Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        self.resident, self.peak = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        self.threads = int(status["Threads"])
        self.descriptors = sum(1 for _ in (process / "fd").iterdir())


def reset_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Samples a process until end(): the most it held; calls `over` when it holds more than `most` bytes."""

    def __init__(self, pid, most, over):
        self.pid, self.most, self.over = pid, most, over
        self.descriptors = self.threads = self.peak = 0
        self.stopping = threading.Event()
        reset_peak(pid)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stopping.wait(0.05):
            if not self.sample():
                return

    def sample(self):
        try:
            usage = Usage(self.pid)
        except (OSError, KeyError):  # it has ended
            return False
        self.peak = max(self.peak, usage.peak)
        self.descriptors = max(self.descriptors, usage.descriptors)
        self.threads = max(self.threads, usage.threads)
        if usage.resident > self.most:
            self.over()
        return True

    def end(self):
        self.stopping.set()
        self.thread.join()
        self.sample()


class SanitizerReports:
    """What programs that are started from here on report to their sanitizers; nothing where they were built without."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-reports-"))
        os.environ["TSAN_OPTIONS"] = f"suppressions={SOURCE}/cmake/tsan.supp:log_path={self.folder}/tsan"
        # Freed memory is given back sooner than by default, since attacks free much.
        os.environ["ASAN_OPTIONS"] = f"log_path={self.folder}/asan:quarantine_size_mb=32"
        os.environ["UBSAN_OPTIONS"] = f"log_path={self.folder}/ubsan:print_stacktrace=1"
        os.environ["LSAN_OPTIONS"] = f"suppressions={SOURCE}/cmake/lsan.supp:print_suppressions=0"

    def end(self):
        """Prints the reports; whether there are any."""
        reports = sorted(self.folder.iterdir())
        for report in reports:
            print(f"--- {report.name}\n{report.read_text(errors='replace')[:6000]}")
        shutil.rmtree(self.folder)
        return bool(reports)
