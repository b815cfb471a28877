"""deploy/compose as a user starts it: questions through the proxy, a worker killed and healed, Prometheus' targets,
dashboards and alerts; then the same without an NPU.  in_containers.sh runs it, with the engine's environment.

    compose_test.py REPOSITORY FOLDER
"""

import base64
import contextlib
import json
import math
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "prometheus"))
from expressions import MAY_BE_EMPTY, is_not_here, metrics_of, targets  # noqa: E402
from tools import free_ports, wait_for  # noqa: E402

# All of the profile but Grafana, whose image is not Debian's: its expressions are asked of Prometheus.
SERVICES = ("loader-cpu", "gpu-worker-cpu", "npu-worker-cpu", "gateway-cpu", "proxy", "prometheus")
ANSWERED = ("gateway", "gpu-worker", "npu-worker", "loader", "proxy")  # the jobs that Prometheus scrapes
# What dashboards ask for and compose.yaml has not: the supervisor of `tandem serve`, a collector of traces, API keys.
NOT_IN_COMPOSE = ("tandem_service_restarts", "tandem_spans_", "tandem_key_")
QUESTION = "What is the capital of Japan?"


def say(text):
    print(f"==> {text} ({time.strftime('%T')})", flush=True)


def run(*command, env=None):
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {ran.returncode}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}")
    return ran.stdout


class Compose:
    """The project of compose.yaml, its proxy on a free port of this machine."""

    def __init__(self, repository, folder):
        self.folder = repository / "deploy/compose"
        self.files = [self.folder / "compose.yaml", HERE / "compose.engine.yaml"]
        self.public, prometheus, grafana = free_ports(3)
        self.env = dict(os.environ, TANDEM_PUBLIC=f"127.0.0.1:{self.public}",
                        TANDEM_PROMETHEUS=f"127.0.0.1:{prometheus}", TANDEM_GRAFANA=f"127.0.0.1:{grafana}")
        self.changed = folder / "changed.yaml"

    def __call__(self, *command):
        files = [part for file in self.files for part in ("-f", str(file))]
        return run("docker-compose", *files, "--project-directory", str(self.folder), "--profile", "cpu", *command,
                   env=self.env)

    def change(self, old, new, *files):
        """Every `old` of the file is `new` from now on, with `files` over that."""
        text = self("config")
        assert old in text, f"compose.yaml has no {old}"
        self.changed.write_text(text.replace(old, new))
        self.files = [self.changed, *files]

    def container(self, service):
        return self("ps", "-a", "-q", service).strip()

    def inspect(self, service):
        return json.loads(run("podman", "inspect", self.container(service)))[0]

    def healthy(self, service):
        """By the image's own check, which podman runs by itself only under systemd."""
        return subprocess.run(["podman", "healthcheck", "run", self.container(service)], capture_output=True,
                              check=False).returncode == 0

    def up(self, services, ending=None):
        """All run and answer their health checks, but for `ending`."""
        self("up", "-d", *services)
        wait_for("the proxy passes questions on", self.ready, 180)
        for service in services:
            if service == ending:
                continue
            wait_for(f"{service} is healthy", lambda service=service: self.healthy(service), 60)

    def ready(self):
        return self.post("ready", None).status == 200

    def post(self, path, body):
        """The open answer of the proxy, over TLS; its certificate is its own."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://127.0.0.1:{self.public}/{path}", data,
                                         {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60, context=context)

    def ask(self, text, picture=None, **more):
        if picture:
            url = "data:image/png;base64," + base64.b64encode(picture).decode()
            text = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
        body = {"model": "demo2.Q8_0.gguf", "temperature": 0, "messages": [{"role": "user", "content": text}], **more}
        with self.post("v1/chat/completions", body) as answer:
            return json.load(answer)["choices"][0]["message"]["content"]

    def stream(self, prompt, tokens, at_chunk=None):
        """The text of a streamed completion; `at_chunk` is called after the third piece."""
        body = {"model": "demo2.Q8_0.gguf", "temperature": 0, "prompt": prompt, "max_tokens": tokens, "stream": True}
        text, pieces = "", 0
        with self.post("v1/completions", body) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[len(b"data: "):])
                assert "error" not in chunk, chunk
                text += "".join(choice["text"] for choice in chunk.get("choices", []))
                pieces += 1
                if pieces == 3 and at_chunk:
                    at_chunk()
        return text


class Prometheus:
    """The API of the container, by its address on the project's network."""

    def __init__(self, compose):
        networks = compose.inspect("prometheus")["NetworkSettings"]["Networks"]
        address = next(network["IPAddress"] for network in networks.values() if network["IPAddress"])
        self.api = f"http://{address}:9090/api/v1/"

    def query(self, expression):
        """The instant vector: [(labels, value)]."""
        url = self.api + "query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def firing(self, selector='severity!="info"'):
        return sorted({labels["alertname"] for labels, _ in self.query(f'ALERTS{{alertstate="firing", {selector}}}')})

    def wait_for_targets(self, jobs):
        def all_up():
            found = {labels["job"]: value for labels, value in self.query("up")}
            return found == {f"tandem-{job}": 1.0 for job in jobs}
        wait_for(f"{', '.join(jobs)} are up for Prometheus", all_up, 60)


@contextlib.contextmanager
def load(compose):
    """Two clients that ask without a pause, each question with a constraint that is compiled for it."""
    stopping = threading.Event()
    problems = []

    def client(number):
        try:
            while not stopping.is_set():
                compose.ask(f"What is the capital of country {number}?", guided_regex=f"[A-Za-z ,.]{{1,{60 + number}}}")
                number += 2
        except OSError as error:
            problems.append(error)
    clients = [threading.Thread(target=client, args=(number,)) for number in range(2)]
    for each in clients:
        each.start()
    try:
        yield
    finally:
        stopping.set()
        for each in clients:
            each.join()
    assert not problems, problems


def may_be_empty(expression):
    metrics = metrics_of(expression)
    return (expression in MAY_BE_EMPTY or any(is_not_here(name) for name in metrics)
            or any(name.startswith(prefix) for name in metrics for prefix in NOT_IN_COMPOSE))


def check_dashboards(prometheus):
    """Every expression of every dashboard has data, but for what nothing here can have."""
    def ask(expression):
        return prometheus.query(expression.replace("$cluster", "compose").replace("$worker", ".*")
                                .replace("$__rate_interval", "20s"))

    asked = {target["expr"]: where for where, target in targets()}
    empty = dict(asked)

    def all_answered():
        for expression in list(empty):
            found = ask(expression)
            if may_be_empty(expression) or any(math.isfinite(value) for _, value in found):
                del empty[expression]
        return not empty
    try:
        wait_for("every panel has data", all_answered, 90)
    except TimeoutError as error:
        raise AssertionError("\n".join(f"no data: {where}: {expression}" for expression, where in empty.items())) from error
    excused = sum(map(may_be_empty, asked))
    say(f"{len(asked)} expressions of the dashboards answered, {excused} may be empty here")


def check_kill(compose, prometheus):
    """A worker's process killed amid a stream: the text is that of a stream that was left alone."""
    prompt, tokens = "The capital of France is", 200
    expected = compose.stream(prompt, tokens)
    before = compose.inspect("gpu-worker-cpu")["State"]["Pid"]
    say("killing the GPU worker amid a stream")
    begin = time.monotonic()
    text = compose.stream(prompt, tokens, lambda: os.kill(before, signal.SIGKILL))
    assert text == expected, f"{text!r}\nis not\n{expected!r}"
    after = wait_for("the worker is started again", lambda: compose.inspect("gpu-worker-cpu")["State"]["Pid"], 30)
    assert after != before, after
    say(f"the stream went on and ended {time.monotonic() - begin:.1f} s after its beginning; the worker runs again")
    wait_for("Prometheus counts the recovery", lambda: prometheus.query("tandem_recoveries_total > 0"), 30)
    assert "Tokyo" in compose.ask(QUESTION)


def check_lost(compose, prometheus):
    """TandemWorkerLost fires for a worker that stays away, and ends when it is back."""
    assert prometheus.firing() == [], prometheus.firing()
    say("the GPU worker is killed and stays away")
    compose("kill", "gpu-worker-cpu")
    begin = time.monotonic()
    wait_for("TandemWorkerLost fires", lambda: "TandemWorkerLost" in prometheus.firing(), 120)
    say(f"TandemWorkerLost fires after {time.monotonic() - begin:.0f} s")
    compose("start", "gpu-worker-cpu")
    wait_for("TandemWorkerLost ends", lambda: "TandemWorkerLost" not in prometheus.firing(), 60)
    wait_for("an answer", lambda: "Tokyo" in compose.ask(QUESTION), 60)


def with_npu(compose):
    compose.up(SERVICES)
    answer = compose.ask(QUESTION)
    say(f"through the proxy: {answer}")
    assert "Tokyo" in answer
    answer = compose.ask("How many shapes are there?", (HERE.parents[1] / "models/demo2/shapes.png").read_bytes())
    say(f"of a picture: {answer}")
    assert "three" in answer
    prometheus = Prometheus(compose)
    prometheus.wait_for_targets(ANSWERED)
    say("all targets are up")
    with load(compose):
        check_dashboards(prometheus)
    check_kill(compose, prometheus)
    prometheus.wait_for_targets(ANSWERED)
    check_lost(compose, prometheus)


def without_npu(compose):
    """An NPU is preferred and there is none: the worker ends, which is no fault, so nothing fires."""
    compose.change("--npu=emulate", "--npu=auto", HERE / "compose.without_npu.yaml")
    compose.up(SERVICES, ending="npu-worker-cpu")
    answer = compose.ask(QUESTION)
    say(f"without an NPU: {answer}")
    assert "Tokyo" in answer
    prometheus = Prometheus(compose)
    wait_for("the gateway is scraped", lambda: prometheus.query("tandem_gateway_ready == 1"), 60)
    until = time.monotonic() + 75  # longer than any critical alert about workers takes to fire
    while time.monotonic() < until:
        assert prometheus.firing() == [], f"without an NPU fires {prometheus.firing()}"
        time.sleep(3)
    say("no alert in 75 s without an NPU")


def main():
    repository, folder = map(pathlib.Path, sys.argv[1:])
    for part in (with_npu, without_npu):
        compose = Compose(repository, folder)
        if part is with_npu:
            begin = time.monotonic()
            compose("build", *SERVICES)
            say(f"images built in {time.monotonic() - begin:.0f} s")
        try:
            part(compose)
        except BaseException:
            print(compose("logs", "--tail", "40"), file=sys.stderr)
            raise
        finally:
            compose("down", "-v", "-t", "10")


if __name__ == "__main__":
    main()
