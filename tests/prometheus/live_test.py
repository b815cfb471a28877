"""A running cluster under load, as Prometheus sees it: every page, rule and panel has something to say."""

import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

from cluster import Cluster, Collector, Load, Prometheus, get, policy_here
from expressions import MAY_BE_EMPTY, annotations, is_not_here, metrics_of, targets
from tools import PROMTOOL, wait_for

PATIENCE = 20  # seconds for an expression to have data: some need a few scrapes under load


def substitute(expression):
    """As Grafana does: every worker, and a few scrapes to take a rate of."""
    return expression.replace("$cluster", "test").replace("$worker", ".*").replace("$__rate_interval", "10s")


class LiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        for name in ("cluster", "prometheus"):
            (pathlib.Path(folder.name) / name).mkdir(mode=0o700)
        collector = Collector()
        cls.addClassCleanup(collector.end)
        programs = pathlib.Path(sys.argv[1]).resolve()
        cls.cluster = Cluster(programs, pathlib.Path(folder.name) / "cluster", policy_here(programs),
                              "--otlp", f"http://127.0.0.1:{collector.server_port}/v1/traces")
        cls.addClassCleanup(cls.cluster.end)
        cls.prometheus = Prometheus(cls.cluster.pages, pathlib.Path(folder.name) / "prometheus")
        cls.addClassCleanup(cls.prometheus.end)
        wait_for("every page was scraped",
                 lambda: len(cls.prometheus.query("up == 1")) == len(cls.cluster.pages))
        # What devices can do at best is measured once, when they have nothing to do.
        wait_for("the GPU's ceilings", lambda: cls.prometheus.query("tandem_device_read_ceiling_bytes_per_second"))
        cls.begin = time.time()
        cls.load = Load(cls.cluster)
        cls.addClassCleanup(cls.load.end)

    def values(self, target):
        """The series that a panel's expression has, at the moment or since the load began."""
        expr = substitute(target["expr"])
        if target["instant"]:
            return [(labels, [value]) for labels, value in self.prometheus.query(expr)]
        return self.prometheus.query_range(expr, self.begin, time.time())

    def wait_for_data(self, where, ask):
        """The series of `ask` when one of their values is a number."""
        def series():
            found = ask()
            return any(math.isfinite(value) for _, values in found for value in values) and found
        return wait_for(f"{where} has data", series, PATIENCE)

    def test_pages_pass_promtools_checks(self):
        for job, port in self.cluster.pages.items():
            with self.subTest(job=job):
                page = get(f"http://127.0.0.1:{port}/metrics")
                ran = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True,
                                     check=False)
                self.assertEqual((ran.returncode, ran.stdout + ran.stderr), (0, ""))

    def test_every_panel_has_data_with_the_labels_of_its_legend(self):
        for where, target in targets():
            needs_hardware = any(is_not_here(name) for name in metrics_of(target["expr"]))
            with self.subTest(where, expr=target["expr"]):
                if needs_hardware or target["expr"] in MAY_BE_EMPTY:
                    self.values(target)  # a question that Prometheus understands
                    continue
                series = self.wait_for_data(where, lambda: self.values(target))
                for labels, _ in series:
                    self.assertLessEqual(set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])), set(labels))

    def test_every_rule_is_evaluated_and_asks_for_what_is_there(self):
        def evaluated():
            rules = [rule for group in self.prometheus.ask("rules")["groups"] for rule in group["rules"]]
            return all(rule["health"] != "unknown" for rule in rules) and rules
        for rule in wait_for("every rule was evaluated", evaluated):
            with self.subTest(rule["name"]):
                self.assertEqual(rule["health"], "ok", rule.get("lastError"))
                metrics = {name for name in metrics_of(rule["query"]) if not is_not_here(name)}
                if rule["type"] == "recording" and len(metrics) == len(metrics_of(rule["query"])):
                    self.wait_for_data(rule["name"], lambda: [
                        (labels, [value]) for labels, value in self.prometheus.query(rule["name"])])
                for metric in metrics:
                    exists = f'count({{__name__=~"{metric}(_bucket)?"}})'
                    self.assertTrue(wait_for(metric, lambda: self.prometheus.query(exists), PATIENCE))

    def test_nothing_fires_in_a_cluster_that_is_well(self):
        self.assertEqual([labels for labels, _ in self.prometheus.query('ALERTS{alertstate="firing"}')], [])

    def test_what_prometheus_counted_is_what_clients_got(self):
        self.load.end()
        # The load's own end is in the pages at once, and in Prometheus with the next scrape.
        def tokens():
            found = self.prometheus.query('sum(tandem_tokens_total{kind="completion"})')
            return found and found[0][1] >= self.load.tokens and found
        self.assertEqual(wait_for("tokens of all answers", tokens, 10)[0][1], self.load.tokens)
        by_key = self.prometheus.query('sum(tandem_key_tokens_total{kind="completion"})')
        self.assertEqual(by_key[0][1], self.load.tokens, "every request had a key")
        keys = self.prometheus.query("tandem_key_requests_total > 0")
        self.assertEqual({labels["key"] for labels, _ in keys}, set(self.cluster.KEYS))
        ended = self.prometheus.query('sum(tandem_requests_total{outcome=~"stop|length"})')
        self.assertEqual(ended[0][1], self.load.requests)
        self.assertGreater(self.load.requests, 0)
        wait_for("spans were exported", lambda: self.prometheus.query("tandem_spans_exported_total > 0"), 10)


class WithoutNpuTest(unittest.TestCase):
    """The most common machine, under the default policy: nothing is wrong with it until a worker is killed."""

    @classmethod
    def setUpClass(cls):
        if list(pathlib.Path("/dev").glob("accel/accel*")):
            raise unittest.SkipTest("this machine has an NPU")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        for name in ("cluster", "prometheus"):
            (pathlib.Path(folder.name) / name).mkdir(mode=0o700)
        cls.cluster = Cluster(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(folder.name) / "cluster", "prefer")
        cls.addClassCleanup(cls.cluster.end)
        cls.prometheus = Prometheus(cls.cluster.pages, pathlib.Path(folder.name) / "prometheus", patience="2s")
        cls.addClassCleanup(cls.prometheus.end)

    def alerts(self, state):
        """Names and workers of the alerts in a state, but for those that any cluster has in its first minutes."""
        found = self.prometheus.query(f'ALERTS{{alertstate="{state}", severity="critical"}}')
        return {(labels["alertname"], labels.get("worker", labels.get("job"))) for labels, _ in found}

    def test_an_absent_npu_is_silent_and_a_killed_worker_is_not(self):
        wait_for("every page that there is was scraped",
                 lambda: len(self.prometheus.query("up == 1")) == len(self.cluster.pages) - 1)
        wait_for("the NPU is known to be absent", lambda: self.prometheus.query(
            'tandem_worker_state{worker="npu0", kind="npu", state="absent"} == 1'))
        self.assertEqual(self.prometheus.query('tandem_worker_up{worker!="gpu0"}'), [])
        # Twice as long as the alerts wait.
        begin = time.time()
        wait_for("rules were evaluated for a while", lambda: time.time() - begin > 4)
        self.assertEqual(self.alerts("firing"), set())

        self.cluster.kill("tandem-gpu-worker")
        wait_for("the loss of a worker fires", lambda: ("TandemWorkerLost", "gpu0") in self.alerts("firing"), 30)
        for _, url in self.firing_runbooks():
            page, place = url.split("#")
            self.assertIn(f'<h3 id="{place}">', get(page), "the link leads to the alert's part of the runbook")
        self.cluster.go_on()
        wait_for("all is well again", lambda: not self.alerts("firing"), 60)
        for where, expression in annotations():
            self.assertTrue(wait_for(where, lambda: self.prometheus.query(substitute(expression)), PATIENCE))

    def firing_runbooks(self):
        found = [(alert["labels"]["alertname"], alert["annotations"]["runbook_url"])
                 for alert in self.prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"]
        self.assertTrue(found)
        return found
