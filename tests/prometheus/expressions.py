"""Every expression that dashboards and rules ask, and which of them need what a test machine lacks."""

import json
import re

from tools import GRAFANA, PROMETHEUS, ROOT

# Metrics whose series need not exist: no machine of the tests has the hardware, or several replicas.
NOT_HERE = {
    "tandem_amdgpu_": "an AMD GPU's driver reports these",
    "tandem_npu_": "an NPU's driver reports these",
    "tandem_replica_": "the tests' clusters serve the model once",
    "tandem_device_energy_joules": "needs a device whose power can be read",
}
# Asked for in dashboards, and rightly without an answer while all is well.
MAY_BE_EMPTY = {
    'ALERTS{alertstate="firing", cluster="$cluster"}': "nothing fires in the test",
    '(cluster_job:tandem_worker_absent:last1h{cluster="$cluster"} == 1) + 1': "the test's cluster has an NPU, emulated",
}


def is_not_here(metric):
    return any(prefix in metric for prefix in NOT_HERE)


def metrics_of(expression):
    """Names of metrics and of recorded series in an expression, the suffixes of histograms taken off."""
    without_labels = re.sub(r"\{[^}]*\}|\"[^\"]*\"", "", expression)
    names = re.findall(r"\b(?:cluster\w*:)?(?:tandem|process)_\w+(?::\w+)*|\bup\b|\bALERTS\b", without_labels)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}


def panels():
    """(dashboard, panel) of every panel that shows something."""
    return [(name, panel) for name, made in dashboards().items() for panel in made["panels"] if panel["type"] != "row"]


def annotations():
    """(where, expression) of every mark on the graphs."""
    return [(f"{name}: {mark['name']}", mark["expr"])
            for name, made in dashboards().items() for mark in made["annotations"]["list"]]


def targets():
    """(where, target) of every expression of every panel."""
    return [(f"{name}: {panel['title']} {target['refId']}", target)
            for name, panel in panels() for target in panel["targets"]]


def documented():
    """Names in docs/metrics.md."""
    return set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/metrics.md").read_text(), flags=re.M))


def recorded():
    """Names that the recording rules make."""
    return set(re.findall(r"- record: (\S+)", (PROMETHEUS / "rules/recording.yml").read_text()))
