"""deploy/prometheus and deploy/grafana against promtool and a real Prometheus.

    prometheus_test.py BIN_FOLDER [TEST...]
"""

import sys
import unittest

from tools import PROMTOOL, SERVER

if not PROMTOOL or not SERVER:
    print("SKIPPED: prometheus and promtool are not there (scripts/setup --tests fetches them)")
    sys.exit(77)

from dashboards_test import DashboardsTest  # noqa: E402
from live_test import LiveTest, WithoutNpuTest  # noqa: E402
from rules_test import RulesTest  # noqa: E402

__all__ = ["DashboardsTest", "LiveTest", "RulesTest", "WithoutNpuTest"]

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
