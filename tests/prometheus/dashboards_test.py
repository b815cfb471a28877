"""The dashboards as files: what their source says, complete, and asking for nothing that is not there."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from expressions import MAY_BE_EMPTY, NOT_HERE, annotations, dashboards, documented, metrics_of, panels, recorded, targets
from tools import GRAFANA, PROMETHEUS

EXTERNAL = {"up", "ALERTS"}  # Prometheus's own


class DashboardsTest(unittest.TestCase):
    def test_the_files_are_what_their_source_makes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-B", GRAFANA / "source/make.py", folder], check=True)
            made = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
        there = {path.name: path.read_text() for path in (GRAFANA / "dashboards").iterdir()}
        self.assertTrue(made == there, "to renew them: deploy/grafana/source/make.py")

    def test_every_metric_asked_for_is_documented_or_recorded(self):
        known = documented() | recorded() | EXTERNAL
        for where, target in targets():
            self.assertEqual(metrics_of(target["expr"]) - known, set(), where)
        for where, expression in annotations():
            self.assertEqual(metrics_of(expression) - known, set(), where)
        for rules in (PROMETHEUS / "rules").glob("*.yml"):
            text = re.sub(r"#.*|summary:.*|description:.*", "", rules.read_text())
            self.assertEqual(metrics_of(text) - known, set(), rules.name)
        for metric in NOT_HERE:
            self.assertTrue(any(name.startswith(metric) for name in known), f"{metric} is excused, and is not asked for")

    def test_every_recorded_series_is_used(self):
        used = set().union(*(metrics_of(target["expr"]) for _, target in targets()))
        for rules in (PROMETHEUS / "rules").glob("*.yml"):
            used |= metrics_of(re.sub(r"- record: \S+", "", rules.read_text()))
        self.assertEqual(recorded() - used, set())

    def test_every_panel_is_complete(self):
        for name, panel in panels():
            with self.subTest(dashboard=name, panel=panel["title"]):
                self.assertTrue(panel["description"].endswith("."))
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
                self.assertTrue(panel["targets"])
                refs = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(refs), len(set(refs)))
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"]["uid"], "${datasource}")
                    self.assertIn('cluster="$cluster"', target["expr"])
                    self.assertTrue(target["legendFormat"] or panel["type"] in ("table", "stat"))

    def test_panels_have_numbers_of_their_own_and_do_not_overlap(self):
        for name, dashboard in dashboards().items():
            taken = {}
            for panel in dashboard["panels"]:
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
                for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"])
                             for y in range(place["y"], place["y"] + place["h"])):
                    self.assertNotIn(cell, taken, f"{name}: {panel['title']} and {taken.get(cell)}")
                    taken[cell] = panel["title"]
            numbers = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(numbers), len(set(numbers)))

    def test_dashboards_share_variables_and_links(self):
        made = list(dashboards().values())
        self.assertEqual([each["uid"] for each in made],
                         ["tandem-devices", "tandem-memory", "tandem-overview", "tandem-requests"])
        for each in made:
            self.assertEqual(each["templating"], made[0]["templating"])
            self.assertEqual(each["links"], made[0]["links"])
            self.assertEqual([mark["name"] for mark in each["annotations"]["list"]], ["Recoveries", "Restarts"])
            self.assertIn("tandem", each["tags"])
        names = [variable["name"] for variable in made[0]["templating"]["list"]]
        self.assertEqual(names, ["datasource", "cluster", "worker"])

    def test_what_is_excused_is_asked_for(self):
        asked = {target["expr"] for _, target in targets()}
        self.assertEqual(set(MAY_BE_EMPTY) - asked, set())
