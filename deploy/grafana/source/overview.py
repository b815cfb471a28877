"""For operators: is it well, and if it is slow, what is the limit?"""

from panels import (BLUE, GRAY, GREEN, ORANGE, RED, YELLOW, bars, colour_of, dashboard, dashed, graph, stat, steps,
                    table)

PARTS = 'cluster_part:tandem_busy:ratio_rate1m{cluster="$cluster"}'
STAGES = 'cluster_worker_stage:tandem_device_busy:ratio_rate1m{cluster="$cluster"}'
LIMIT = f"topk(1, {PARTS}) > 0.05"
FIRST_TOKEN = 'cluster_quantile:tandem_time_to_first_token_seconds:histogram_quantile_rate5m{cluster="$cluster", quantile="%s"}'
UP = [{"type": "value", "options": {"0": {"text": "DOWN", "color": RED}, "1": {"text": "up", "color": GREEN},
                                    "2": {"text": "absent", "color": GRAY}}}]
ABSENT = 'cluster_job:tandem_worker_absent:last1h{cluster="$cluster"} == 1'
READY = [{"type": "value", "options": {"0": {"text": "recovering", "color": RED}, "1": {"text": "ready", "color": GREEN}}}]

NOW = [
    bars(
        "Where the time goes", "Share of the last minute in which each device worked, calls to it were on their way, or "
        "requests ran with no call under way (gateway). The largest is what limits speed; it is orange unless nothing runs.",
        "percentunit",
        [(LIMIT, "{{part}}: the limit"), (f"sort_desc({PARTS} unless on (part) ({LIMIT}))", "{{part}}")],
        width=9, height=9, low=0, high=1, decimals=0, overrides=[colour_of("A", ORANGE), colour_of("B", BLUE)]),
    [
        stat("The limit", "The largest share of the last minute: a device, calls to one, or the gateway.", "percentunit",
             [(LIMIT, "{{part}}")], width=5, height=5, text="value_and_name", graph_mode="none", decimals=0,
             thresholds=steps((None, ORANGE)), empty="idle"),
        stat("Busiest stage", "The kind of stage that takes most of a device's time.", "percentunit",
             [(f"topk(1, {STAGES}) > 0.02", "{{stage}} on {{worker}}")], width=5, height=4, text="value_and_name",
             graph_mode="none", decimals=0, empty="idle"),
    ],
    [
        stat("Tokens a second", "Tokens of answers and of prompts, over the last minute.", "short",
             [('cluster_kind:tandem_tokens:rate1m{cluster="$cluster", kind="completion"}', "answers"),
              ('cluster_kind:tandem_tokens:rate1m{cluster="$cluster", kind="prompt"}', "prompts")],
             width=5, height=5, decimals=1),
        stat("First token", "Time from a request's arrival to its first token over the last five minutes: half of them "
             "are faster than p50, one in twenty is slower than p95.", "s",
             [(FIRST_TOKEN % "0.5", "p50"), (FIRST_TOKEN % "0.95", "p95")], width=5, height=4, decimals=2,
             thresholds=steps((None, GREEN), (5, YELLOW), (10, RED))),
    ],
    [
        stat("Requests", "Being computed now, and waiting for their turn.", "short",
             [('sum(tandem_requests_running{cluster="$cluster"})', "running"),
              ('sum(tandem_requests_waiting{cluster="$cluster"})', "waiting")], width=5, height=5),
        stat("Failed", "Part of the requests of the last five minutes that failed or ran out of time; refused ones and those "
             "given up by clients do not count.", "percentunit",
             [('cluster:tandem_requests_failed:ratio_rate5m{cluster="$cluster"}', "")], width=5, height=4, decimals=1,
             low=0, thresholds=steps((None, GREEN), (0.01, YELLOW), (0.05, RED)), empty="no requests"),
    ],
]

STATE = [
    [
        table("Placement in force", "Which device runs which stages of the model. Nothing changes here in silence: "
              "TandemPlacementChanged and TandemDeviceLeftPlacement say so.",
              'tandem_placement_info{cluster="$cluster"}', {"worker": "Worker", "device": "Device", "stages": "Stages"},
              width=10, height=4),
        table("Workers", "The state the gateway has each worker in. absent: the machine has no such device, and the policy "
              "does without, which is no fault. unusable: it has one that cannot be used.",
              'tandem_worker_state{cluster="$cluster"} == 1', {"worker": "Worker", "kind": "Kind", "state": "State"},
              width=10, height=4),
    ],
    [
        stat("Gateway", "Ready, or recovering from the loss of a worker.", "none",
             [('min(tandem_gateway_ready{cluster="$cluster"})', "gateway")], width=6, height=3, graph_mode="none",
             mappings=READY, text="value", thresholds=steps((None, GRAY))),
        stat("Services", "Whether Prometheus gets an answer from each. absent: the machine has no such device.", "none",
             [(f'up{{cluster="$cluster", job=~"tandem-.+"}} unless on (cluster, job) {ABSENT}', "{{job}} {{instance}}"),
              (f"({ABSENT}) + 1", "{{job}}")], width=6, height=5,
             graph_mode="none", mappings=UP, text="value_and_name", thresholds=steps((None, GRAY))),
    ],
    table("Alerts that fire", "What they mean and what to do: docs/operations.md.",
          'ALERTS{alertstate="firing", cluster="$cluster"}',
          {"severity": "Severity", "alertname": "Alert", "job": "Service", "worker": "Worker"}, width=8, height=8),
]

HISTORY = [
    graph("Where the time goes", "As above, over time. Near 1 in sum: some request was always running.", "percentunit",
          [(PARTS, "{{part}}")], width=12, stacked=True),
    graph("Tokens a second", "Tokens of answers decided and of prompts computed.", "short",
          [('sum by (kind) (rate(tandem_tokens_total{cluster="$cluster"}[$__rate_interval]))', "{{kind}}")], width=12),
    graph("Time to the first token", "Over five minutes.", "s", [(FIRST_TOKEN % "0.5", "p50"), (FIRST_TOKEN % "0.95", "p95")]),
    graph("Running and waiting", "Requests; at the dashed line the queue is full and refuses.", "short",
          [('sum(tandem_requests_running{cluster="$cluster"})', "running"),
           ('sum(tandem_requests_waiting{cluster="$cluster"})', "waiting"),
           ('sum(tandem_requests_waiting_limit{cluster="$cluster"})', "queue's limit")], overrides=[dashed("C")]),
    graph("Requests by outcome", "Requests a second that ended, by how.", "reqps",
          [('sum by (outcome) (rate(tandem_requests_total{cluster="$cluster"}[$__rate_interval]))', "{{outcome}}")],
          stacked=True),
    graph("Starts and recoveries", "Services started again by `tandem serve`, and times the gateway made a new plan, each "
          "over five minutes.", "short",
          [('sum by (service) (increase(tandem_service_restarts_total{cluster="$cluster"}[5m]))', "{{service}} started again"),
           ('sum(increase(tandem_recoveries_total{cluster="$cluster"}[5m]))', "recoveries")]),
    graph("Processor", "Processors in use by each service; 1 is one whole core.", "short",
          [('sum by (job) (rate(process_cpu_seconds_total{cluster="$cluster"}[$__rate_interval]))', "{{job}}")],
          stacked=True),
    graph("Spans", "Spans of traces a second: exported, and dropped rather than holding requests up.", "short",
          [('sum(rate(tandem_spans_exported_total{cluster="$cluster"}[$__rate_interval]))', "exported"),
           ('sum by (reason) (rate(tandem_spans_dropped_total{cluster="$cluster"}[$__rate_interval]))',
            "dropped: {{reason}}")]),
]

DASHBOARD = dashboard(
    "tandem-overview", "Overview", "Is it well, and if it is slow, what is the limit?",
    [(None, NOW), ("What runs where", STATE), ("Over time", HISTORY)])
