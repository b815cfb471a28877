"""What each device does with its time, how near it comes to its limits, and what the way to it costs."""

from panels import bars, colour_of, dashboard, dashed, graph, stat, BLUE, ORANGE

WORKER = '{cluster="$cluster", worker=~"$worker"}'


def rate(metric, by):
    return f"sum by ({by}) (rate({metric}{WORKER}[$__rate_interval]))"


BUSY = [
    graph("$worker: busy by stage", "Share of the time in which the device worked on each kind of stage, by its own "
          "timestamps. It waited for the rest of the time.", "percentunit",
          [(rate("tandem_device_busy_seconds_total", "stage"), "{{stage}}")], width=12, height=9, stacked=True, high=1,
          repeat="worker"),
]

WORK = [
    bars("Of the ceiling, while working", "Achieved bytes and operations while the device worked, against what was measured "
         "on it at best. Decoding is limited by bytes, prompts by operations: the nearer one is to 100%, the less there is to gain.",
         "percentunit",
         [(f"cluster_worker:tandem_device_bytes_of_ceiling:ratio_rate1m{WORKER}", "{{worker}} bytes"),
          (f"cluster_worker:tandem_device_operations_of_ceiling:ratio_rate1m{WORKER}", "{{worker}} operations")],
         low=0, high=1, decimals=0, overrides=[colour_of("A", BLUE), colour_of("B", ORANGE)]),
    graph("Bytes a second while working", "What the shapes say must be read, over the time the device worked on that stage; dashed: "
          "reading at best.", "Bps",
          [(f"{rate('tandem_device_bytes_total', 'worker, stage')} / "
            f"({rate('tandem_device_busy_seconds_total', 'worker, stage')} > 0)", "{{worker}} {{stage}}"),
           (f"tandem_device_read_ceiling_bytes_per_second{WORKER}", "{{worker}} at best")], overrides=[dashed("B")]),
    graph("Operations a second while working", "What the shapes say must be multiplied and added, over the time the device "
          "worked on that stage; dashed: each unit at best.", "ops",
          [(f"{rate('tandem_device_operations_total', 'worker, stage')} / "
            f"({rate('tandem_device_busy_seconds_total', 'worker, stage')} > 0)", "{{worker}} {{stage}}"),
           (f"tandem_device_ceiling_operations_per_second{WORKER}", "{{worker}} {{unit}} at best")],
          overrides=[dashed("B")]),
]


def per_call(metric):
    return f"{rate(metric, 'worker')} / ({rate('tandem_segment_calls_total', 'worker')} > 0)"


CALLS = [
    graph("The way there and back", "What a call from the gateway costs besides the worker's own time: messages, sockets, "
          "waking up.", "s",
          [(f"cluster_worker:tandem_segment_overhead_seconds:mean_rate1m{WORKER}", "{{worker}}")]),
    graph("A call", "Mean time of one call by the gateway's clock, the part of it in the worker, and the part of that on the "
          "device.", "s",
          [(per_call("tandem_segment_round_trip_seconds_total"), "{{worker}} there and back"),
           (per_call("tandem_segment_worker_seconds_total"), "{{worker}} in the worker"),
           (per_call("tandem_segment_device_seconds_total"), "{{worker}} on the device")]),
    graph("Segments and rows", "Segments run a second, and rows in each: a token in a segment is a row.", "short",
          [(rate("tandem_worker_segments_total", "worker"), "{{worker}} segments"),
           (f"{rate('tandem_worker_rows_total', 'worker')} / ({rate('tandem_worker_segments_total', 'worker')} > 0)",
            "{{worker}} rows in a segment")]),
    graph("Segments that failed", "Failed segments a second, and errors answered by gRPC code: the six most frequent.", "short",
          [(rate("tandem_worker_segments_failed_total", "worker"), "{{worker}} failed"),
           (f"topk(6, {rate('tandem_worker_errors_total', 'worker, code')})", "{{worker}} {{code}}")]),
    graph("Serving", "1 while the worker says that its device is usable, and while the gateway has the worker.", "none",
          [(f"tandem_worker_serving{WORKER}", "{{worker}} usable"), (f"tandem_worker_up{WORKER}", "{{worker}} connected")],
          high=1),
    stat("Loading the plan took", "When each plan was loaded: import of weights, buffers, pipelines.", "s",
         [(f"tandem_worker_load_seconds{WORKER}", "{{worker}} {{plan}}")], width=8, height=8, graph_mode="none",
         text="value_and_name"),
]

SYSTEM = [
    graph("Load as the system sees it", "The drivers' own measures, by all processes: of the graphics engine, and of the NPU's "
          "columns. AMD devices alone; not verified on hardware.", "percentunit",
          [('tandem_amdgpu_busy_ratio{cluster="$cluster"}', "{{card}}"),
           ('tandem_npu_column_busy_ratio{cluster="$cluster"}', "{{device}} column {{column}}")], high=1),
    graph("Power", "As the drivers report it. AMD devices alone; not verified on hardware.", "watt",
          [('tandem_amdgpu_power_watts{cluster="$cluster"}', "{{card}}"),
           ('tandem_npu_power_watts{cluster="$cluster"}', "{{device}}")]),
    graph("Temperature", "As the drivers report it. AMD devices alone; not verified on hardware.", "celsius",
          [('tandem_amdgpu_temperature_celsius{cluster="$cluster"}', "{{card}}"),
           ('tandem_npu_temperature_celsius{cluster="$cluster"}', "{{device}}")]),
    graph("Joules a token", "Energy of the devices whose power can be read, for each token of an answer, over five minutes.",
          "joule", [('cluster:tandem_device_energy_joules_per_token:rate5m{cluster="$cluster"}', "all devices")], width=12),
    graph("Energy by device", "Joules a second of the devices whose power can be read.", "watt",
          [(rate("tandem_device_energy_joules_total", "worker"), "{{worker}}")], width=12),
]

DASHBOARD = dashboard(
    "tandem-devices", "Devices", "What each device does with its time, how near it comes to its limits, and what the way to it costs.",
    [("Busy", BUSY), ("Achieved against ceiling", WORK), ("Calls from the gateway", CALLS),
     ("As the system sees the devices", SYSTEM)])
