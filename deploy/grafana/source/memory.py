"""What memory is taken by: weights by the way they reached a device, KV cache, shared memory, processes."""

from panels import GREEN, RED, YELLOW, bars, dashboard, dashed, graph, stat, steps

CLUSTER = '{cluster="$cluster"}'
WORKER = '{cluster="$cluster", worker=~"$worker"}'
FULL = steps((None, GREEN), (0.75, YELLOW), (0.9, RED))

WEIGHTS = [
    bars("Weights by import path", "Weights within each device's reach and how they got there. dmabuf, host-pointer and user-pointer "
         "share the loader's memory; upload is a copy.", "bytes",
         [(f"sum by (worker, import) (tandem_worker_weight_bytes{WORKER})", "{{worker}} {{import}}")]),
    stat("Packed weights", "In the loader's shared memory: the one copy that all share.", "bytes",
         [(f"sum by (model) (tandem_loader_weight_bytes{CLUSTER})", "{{model}}")], width=6, height=8,
         text="value_and_name", graph_mode="none"),
    stat("Exchange region", "Shared memory for activations between the services.", "bytes",
         [(f"sum(tandem_loader_exchange_bytes{CLUSTER})", "exchange")], width=5, height=8, graph_mode="none"),
    graph("Regions and leases", "Shared-memory objects open in the loader, and leases that hold models.", "short",
          [(f"sum(tandem_loader_regions{CLUSTER})", "regions"),
           (f"sum by (model) (tandem_loader_leases{CLUSTER})", "leases of {{model}}")], width=5),
]

KV = [
    bars("KV blocks taken", "global: of global attention layers; window: of sliding-window layers. When no block is free, "
         "the youngest request is preempted and computed again.", "percentunit",
         [(f"cluster_pool:tandem_kv_blocks_used:ratio{CLUSTER}", "{{pool}}")], low=0, high=1, decimals=0,
         thresholds=FULL),
    graph("KV blocks", "Blocks in use; dashed: blocks there are.", "short",
          [(f"sum by (pool) (tandem_kv_blocks_used{CLUSTER})", "{{pool}} in use"),
           (f"sum by (pool) (tandem_kv_blocks{CLUSTER})", "{{pool}} there are")], overrides=[dashed("B")]),
    graph("Preemptions", "Requests preempted because no block was free, over five minutes.", "short",
          [(f"sum(increase(tandem_preemptions_total{CLUSTER}[5m]))", "preempted")]),
    graph("Prompts found in the KV cache", "Part of the tokens of prompts that were there already when their requests started, "
          "over five minutes. Conversations and common instructions raise it.", "percentunit",
          [(f"cluster:tandem_prefix_cache_tokens_found:ratio_rate5m{CLUSTER}", "found")], low=0, high=1),
    graph("Cached KV blocks", "Blocks of the prefix cache that no request holds. They count as free.", "short",
          [(f"sum by (pool) (tandem_kv_blocks_cached{CLUSTER})", "{{pool}} cached")]),
    graph("Evicted KV blocks", "Cached blocks evicted because a request needed the room. Fine while the share of prompts found stays high.", "short",
          [(f"sum by (pool) (rate(tandem_kv_blocks_evicted_total{CLUSTER}[5m]))", "{{pool}} a second")]),
    stat("KV cache", "Memory of each plan's KV cache on each device, used or not.", "bytes",
         [(f"tandem_worker_kv_bytes{WORKER}", "{{worker}} {{plan}}")], width=24, height=4, text="value_and_name",
         graph_mode="none"),
]

PROCESSES = [
    graph("Resident memory", "Of each process. Shared memory counts in each that has touched it.", "bytes",
          [(f'process_resident_memory_bytes{CLUSTER}', "{{job}} {{instance}}")], width=12),
    graph("Virtual memory", "Address space of each process: mapped, not necessarily taken.", "bytes",
          [(f'process_virtual_memory_bytes{CLUSTER}', "{{job}} {{instance}}")], width=12),
    graph("File descriptors", "Open, as a part of the limit.", "percentunit",
          [(f"process_open_fds{CLUSTER} / process_max_fds{CLUSTER}", "{{job}} {{instance}}")], width=12),
    graph("Threads", "Of each process.", "short", [(f"process_threads{CLUSTER}", "{{job}} {{instance}}")], width=12),
]

DEVICES = [
    graph("Memory of AMD GPUs", "In use by all processes; dashed: there is. vram: the device's own, gtt: the host's that it may use. "
          "Not verified on hardware.", "bytes",
          [(f"tandem_amdgpu_memory_used_bytes{CLUSTER}", "{{card}} {{heap}}"),
           (f"tandem_amdgpu_memory_bytes{CLUSTER}", "{{card}} {{heap}} there is")], width=24, overrides=[dashed("B")]),
]

DASHBOARD = dashboard(
    "tandem-memory", "Memory and KV", "What memory is taken by: weights by the way they reached a device, KV cache, shared memory, processes.",
    [("Weights", WEIGHTS), ("KV cache", KV), ("Processes", PROCESSES), ("As the system sees the devices", DEVICES)])
