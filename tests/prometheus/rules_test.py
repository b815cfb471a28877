"""The rules and alerts as files: promtool's checks, and that nothing is left untested or unexplained."""

import re
import subprocess
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
                self.assertIn(f"runbook_url: docs/operations.md#{name.lower()}\n", text)
                self.assertIn(f"\n### {name}\n*{severity[1].title()}.* ", manual)
        self.assertEqual(set(re.findall(r"^### (Tandem\w+)$", manual, flags=re.M)), set(alerts()))
