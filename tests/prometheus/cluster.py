"""Clusters on the bundled model with every page of metrics, under load, a Prometheus that scrapes it, and a
collector that takes its traces."""

import concurrent.futures
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

from tools import MODEL, PROMETHEUS, SERVER, free_ports, free_run, wait_for


def get(url, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return answer.read().decode()


def post(url, key, body):
    """The answer; of a stream of JSON lines the last one."""
    request = urllib.request.Request(url, json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read().strip().splitlines()[-1])
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{url}: {error}: {error.read().decode()}") from error


class Collector(http.server.ThreadingHTTPServer):
    """Takes every batch of spans, as OTLP over HTTP; end() ends it."""

    class Taker(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")  # an ExportTraceServiceResponse that has nothing to say
            self.end_headers()

        def log_message(self, *_):
            pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Taker)
        threading.Thread(target=self.serve_forever).start()

    def end(self):
        self.shutdown()
        self.server_close()


def policy_here(programs):
    """The NPU is emulated where that was built."""
    return "emulate" if (programs / "tandem-npu-worker").exists() else "off"


class Cluster:
    """`tandem serve --metrics`, answering; end() ends it."""

    PAGES = ("gateway", "gpu-worker", "npu-worker", "loader", "supervisor")  # in the order of their ports
    KEYS = ("openai", "ollama", "rest")  # the names of its API keys, and the keys

    def __init__(self, programs, folder, npu, *flags):
        self.logs = folder / "logs"
        keys = folder / "keys"
        keys.write_text("".join(f"{key} sha256:{hashlib.sha256(key.encode()).hexdigest()}\n" for key in self.KEYS))
        (self.http,), first = free_ports(1), free_run(len(self.PAGES))
        self.pages = {f"tandem-{job}": first + i for i, job in enumerate(self.PAGES)
                      if npu != "off" or job != "npu-worker"}
        self.process = subprocess.Popen(
            [programs / "tandem", "serve", "--model", MODEL, "--npu", npu,
             "--runtime-dir", folder, "--no-packed-cache", "--max-rows", "64", "--context", "512",
             "--port", "0", "--http", f"127.0.0.1:{self.http}", "--http-api-keys", keys,
             "--metrics", "--metrics-port", str(first), *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for("the cluster is ready", self.ready)
        except TimeoutError as error:
            self.end()
            tails = "".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in self.logs.glob("*.log"))
            raise RuntimeError(f"{error}\n{tails}") from error

    def ready(self):
        if self.process.poll() is not None:
            raise TimeoutError(f"tandem serve ended with {self.process.returncode}")
        return get(self.url("v1/models"), self.KEYS[0])

    def url(self, path):
        return f"http://127.0.0.1:{self.http}/{path}"

    def services(self):
        """The processes that `tandem serve` has started, by program."""
        found = {}
        for children in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in map(int, children.read_text().split()):
                found[pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name] = pid
        return found

    def kill(self, program):
        """Kills a service, which stays away until go_on()."""
        self.process.send_signal(signal.SIGSTOP)
        os.kill(self.services()[program], signal.SIGKILL)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        self.go_on()
        self.process.terminate()
        return self.process.wait(30)


class Load:
    """Three clients that ask without a pause, each by another API, until end()."""

    def __init__(self, cluster):
        self.stopping = threading.Event()
        self.tokens = 0
        self.requests = 0
        self.lock = threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(3)
        self.clients = [self.pool.submit(self.ask, cluster.url, ask) for ask in (self.openai, self.ollama, self.rest)]

    def ask(self, url, api):
        number = 0
        while not self.stopping.is_set():
            number += 1
            tokens = api(url, f"The capital of country {number} is", 16 + number % 7)
            with self.lock:
                self.tokens += tokens
                self.requests += 1

    @staticmethod
    def openai(url, prompt, limit):
        answer = post(url("v1/completions"), "openai", {"model": MODEL.name, "prompt": prompt, "max_tokens": limit})
        return answer["usage"]["completion_tokens"]

    @staticmethod
    def ollama(url, prompt, limit):
        answer = post(url("api/generate"), "ollama", {"model": MODEL.name, "prompt": prompt, "stream": False, "raw": True,
                                            "options": {"num_predict": limit}})
        return answer["eval_count"]

    @staticmethod
    def rest(url, prompt, limit):
        # A constraint of its own for each request, so that each is compiled.
        words = f"[A-Z][a-z]{{2,9}}( [a-z]{{2,9}}){{2,9}}({prompt})?"
        answer = post(url("tandem/v1/generate"), "rest", {"text": prompt, "limits": {"maxTokens": limit}, "constraint": {"regex": words}})
        return answer["usage"]["completionTokens"]

    def end(self):
        """Waits for the answers under way; what any client failed of is raised."""
        self.stopping.set()
        for client in self.clients:
            client.result()
        self.pool.shutdown()


class Prometheus:
    """deploy/prometheus as it is, but for the cluster's ports and one second instead of five; end() ends it.

    `patience`: what alerts wait for instead of half a minute.
    """

    def __init__(self, pages, folder, patience=None):
        for name in ("prometheus.yml", "rules", "consoles"):
            source = PROMETHEUS / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        config = folder / "prometheus.yml"
        config.write_text(config.read_text().replace(": 5s", ": 1s"))
        if patience:
            alerts = folder / "rules/alerts.yml"
            alerts.write_text(alerts.read_text().replace("for: 30s", f"for: {patience}"))
        (folder / "targets").mkdir()
        (folder / "targets/test.json").write_text(json.dumps(
            [{"targets": [f"127.0.0.1:{port}"], "labels": {"cluster": "test", "job": job}}
             for job, port in pages.items()]))
        config.write_text(config.read_text().replace("targets/*.yml", "targets/*.json"))
        (port,) = free_ports(1)
        self.api = f"http://127.0.0.1:{port}/api/v1/"
        self.process = subprocess.Popen(
            [SERVER, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}", f"--web.console.templates={folder}/consoles",
             f"--web.external-url=http://127.0.0.1:{port}",
             "--log.level=error"], stdout=subprocess.DEVNULL)
        wait_for("Prometheus is ready", lambda: get(f"http://127.0.0.1:{port}/-/ready"))

    def ask(self, what, **parameters):
        return json.loads(get(self.api + what + "?" + urllib.parse.urlencode(parameters)))["data"]

    def query(self, expression):
        """The instant vector: [(labels, value)]."""
        return [(each["metric"], float(each["value"][1])) for each in self.ask("query", query=expression)["result"]]

    def query_range(self, expression, start, end, step=1):
        """The same of a range: [(labels, values)]."""
        data = self.ask("query_range", query=expression, start=start, end=end, step=step)
        return [(each["metric"], [float(value) for _, value in each["values"]]) for each in data["result"]]

    def end(self):
        self.process.terminate()
        self.process.wait(30)
