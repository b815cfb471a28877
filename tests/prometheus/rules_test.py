"""The rules and alerts as files: promtool's checks, and that nothing is left untested or unexplained."""

import re
import subprocess
import sys
import unittest

from tools import PROMETHEUS, PROMTOOL, ROOT


def alerts():
    """The text of each alert, by name."""
    text = (PROMETHEUS / "rules/alerts.yml").read_text()
    parts = re.split(r"^      - alert: (\w+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


class RulesTest(unittest.TestCase):
    def promtool(self, *arguments):
        ran = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_the_configuration_and_the_rules_are_valid(self):
        self.promtool("check", "config", PROMETHEUS / "prometheus.yml")
        self.promtool("check", "rules", *sorted((PROMETHEUS / "rules").glob("*.yml")))

    def test_the_rules_do_what_their_unit_tests_say(self):
        self.promtool("test", "rules", *sorted((PROMETHEUS / "tests").glob("*.yml")))

    def test_every_alert_is_seen_to_fire_and_not_to_fire(self):
        tests = "".join(path.read_text() for path in (PROMETHEUS / "tests").glob("*.yml"))
        seen = re.findall(r"- alertname: (\w+)\n *eval_time: \w+\n( *exp_alerts:)?", tests)
        fires = {name for name, expected in seen if expected}
        silent = {name for name, expected in seen if not expected}
        self.assertEqual(fires, set(alerts()))
        self.assertEqual(silent, set(alerts()))

    def test_every_alert_is_complete_and_explained_in_the_manual(self):
        manual = (ROOT / "docs/operations.md").read_text()
        for name, text in alerts().items():
            with self.subTest(alert=name):
                severity = re.search(r"labels: \{severity: (critical|warning|info)\}", text)
                self.assertTrue(severity)
                self.assertRegex(text, r"\n +summary: \"")
                self.assertRegex(text, r"\n +description: \"")
                self.assertIn(f'runbook_url: "{{{{ $externalURL }}}}/consoles/tandem.html#{name.lower()}"\n', text)
                self.assertIn(f"\n### {name}\n*{severity[1].title()}.* ", manual)
        self.assertEqual(set(re.findall(r"^### (Tandem\w+)$", manual, flags=re.M)), set(alerts()))

    def test_the_runbook_is_what_the_manual_says(self):
        made = subprocess.run([sys.executable, "-B", PROMETHEUS / "source/make_runbook.py", "-"], capture_output=True,
                              text=True, check=True).stdout
        there = (PROMETHEUS / "consoles/tandem.html").read_text()
        self.assertTrue(made == there, "to renew it: deploy/prometheus/source/make_runbook.py")
        places = re.findall(r'<h3 id="(\w+)">', there)
        self.assertEqual(set(places), {name.lower() for name in alerts()})
        self.assertEqual(len(places), len(set(places)))
        self.assertLessEqual(set(re.findall(r'href="#(\w+)"', there)), set(places), "links lead somewhere")
        self.assertNotIn("{{", there, "Prometheus would take it for a template")
