"""How long requests take, where that time goes, how they end, and what they ask for."""

from panels import bars, dashboard, graph, heatmap, quantiles

CLUSTER = '{cluster="$cluster"}'


def rate(metric):
    return f"sum(rate({metric}{CLUSTER}[$__rate_interval]))"


def rate_by(label, metric):
    return f"sum by ({label}) (rate({metric}{CLUSTER}[$__rate_interval]))"


def mean(histogram):
    return f"{rate(histogram + '_sum')} / ({rate(histogram + '_count')} > 0)"


LATENCY = [
    heatmap("Time to the first token", "From a request's arrival to its first token: one observation a request.", "s",
            "tandem_time_to_first_token_seconds"),
    heatmap("Time per output token", "Mean time for each token after the first: one observation a request.", "s",
            "tandem_time_per_output_token_seconds"),
    graph("Time to the first token", "From a request's arrival to its first token.", "s",
          quantiles("tandem_time_to_first_token_seconds")),
    graph("Time per output token", "Mean time for each token after the first.", "s",
          quantiles("tandem_time_per_output_token_seconds")),
    graph("End to end", "From a request's arrival to its end.", "s", quantiles("tandem_request_duration_seconds")),
    graph("Queue", "From a request's arrival to its first rows.", "s", quantiles("tandem_request_queue_seconds")),
    graph("What the first token waits for", "Mean of the requests: in the queue, then for the prompt to be computed.", "s",
          [(mean("tandem_request_queue_seconds"), "queue"),
           (f"clamp_min({mean('tandem_time_to_first_token_seconds')} - {mean('tandem_request_queue_seconds')}, 0)", "prompt")],
          stacked=True),
    graph("First token by API", "From a request's arrival to its first token: one in twenty is slower. The alerts look at these, over "
          "five minutes.", "s",
          [('cluster_api_quantile:tandem_time_to_first_token_seconds:histogram_quantile_rate5m{cluster="$cluster"}', "{{api}}")]),
    graph("Time per token by API", "Mean time for each token after the first: one in twenty is slower. The alerts look at these, over "
          "five minutes.", "s",
          [('cluster_api_quantile:tandem_time_per_output_token_seconds:histogram_quantile_rate5m{cluster="$cluster"}', "{{api}}")]),
    heatmap("End to end", "From a request's arrival to its end: one observation a request.", "s",
            "tandem_request_duration_seconds", width=8, height=8),
]

ENDS = [
    graph("Requests by outcome", "Requests a second that ended, by how. refused: before any of it was computed.", "reqps",
          [(rate_by("outcome", "tandem_requests_total"), "{{outcome}}")], stacked=True),
    graph("Requests by API", "Requests a second that ended, by API.", "reqps",
          [(rate_by("api", "tandem_requests_total"), "{{api}}")], stacked=True),
    graph("Errors by code", "Requests a second that were refused or failed, by gRPC code: the six most frequent.", "reqps",
          [(f"topk(6, {rate_by('code', 'tandem_request_errors_total')})", "{{code}}")], stacked=True),
    graph("HTTP by route", "HTTP requests answered a second, by route.", "reqps",
          [(rate_by("route", "tandem_http_requests_total"), "{{route}}")], stacked=True),
    graph("HTTP by status", "HTTP requests answered a second, by status. 499: the client had disconnected.", "reqps",
          [(rate_by("status", "tandem_http_requests_total"), "{{status}}")], stacked=True),
    graph("HTTP connections", "Open connections.", "short", [(f"sum(tandem_http_connections{CLUSTER})", "open")]),
]

KEYS = [
    graph("Requests by key", "Requests a second admitted under each API key, by its name in the key file.", "reqps",
          [(rate_by("key", "tandem_key_requests_total"), "{{key}}")], stacked=True),
    graph("Answer tokens by key", "Tokens of answers a second.", "short",
          [('sum by (key) (rate(tandem_key_tokens_total{cluster="$cluster", kind="completion"}[$__rate_interval]))', "{{key}}")],
          stacked=True),
    graph("Prompt tokens by key", "Tokens of prompts a second, whether computed or found in the KV cache.", "short",
          [('sum by (key) (rate(tandem_key_tokens_total{cluster="$cluster", kind="prompt"}[$__rate_interval]))', "{{key}}")],
          stacked=True),
    bars("Tokens in 24 hours", "Tokens of prompts and of answers, of the ten keys that used most.", "short",
         [(f"topk(10, sum by (key) (increase(tandem_key_tokens_total{CLUSTER}[24h])))", "{{key}}")], low=0, decimals=0),
    graph("Refused by limit", "Requests a second refused because their key was over a limit: requests or tokens a minute, or "
          "concurrency. The six that come most.", "reqps",
          [(f"topk(6, {rate_by('key, limit', 'tandem_key_requests_rejected_total')})", "{{key}}: {{limit}}")], stacked=True),
    graph("Running, and unknown keys", "Requests being answered by key, and requests a second without a key or with one that is not "
          "in the file.", "short",
          [(f"sum by (key) (tandem_key_requests_running{CLUSTER})", "{{key}} running"),
           (rate("tandem_key_unknown_total"), "unknown")]),
]

SIZES = [
    graph("Tokens a second", "Tokens of answers decided and of prompts computed.", "short",
          [(rate_by("kind", "tandem_tokens_total"), "{{kind}}")]),
    graph("Prompt tokens", "Tokens of a request's prompt.", "short", quantiles("tandem_request_prompt_tokens")),
    graph("Answer tokens", "Tokens of a request's answer.", "short", quantiles("tandem_request_completion_tokens")),
]

STEPS = [
    graph("Steps a second", "Passes of the model over a batch of rows: done, handed over while the one before ran, failed.",
          "short",
          [(rate("tandem_steps_total"), "done"), (rate("tandem_steps_queued_total"), "queued behind another"),
           (rate("tandem_steps_failed_total"), "failed")]),
    graph("Time of a step", "Without the wait for a step that it was queued behind.", "s", quantiles("tandem_step_seconds")),
    graph("Rows of a step", "Rows a step takes together: more rows, more tokens for the same reading of the weights.", "short",
          quantiles("tandem_step_rows")),
    graph("Rows a second", "decode: a token of an answer; prompt: of a prompt, or computed again.", "short",
          [(rate_by("kind", "tandem_step_rows_total"), "{{kind}}")], stacked=True, width=12),
    graph("Speculative tokens", "Tokens a second that the device chose for a queued step. right: accepted by the sampler; "
          "wrong: rejected. With an NPU steps are not queued, so the graph is empty.", "short",
          [(rate_by("result", "tandem_guesses_total"), "{{result}}")], stacked=True, width=12),
]

CONSTRAINTS = [
    graph("Constraints compiled", "Schemas, expressions and grammars compiled a second, and requests whose constraint was there already. "
          "refused: wrong, not supported or too large; cancelled: the requests for it went away.", "short",
          [(rate_by("outcome", "tandem_constraint_compilations_total"), "{{outcome}}"),
           (rate("tandem_constraint_cache_hits_total"), "there already")]),
    graph("Time to compile", "Time of a compilation. Requests wait for it before they are queued.", "s",
          quantiles("tandem_constraint_compile_seconds")),
    graph("Time of a mask", "Time to find which tokens may come next, for each token with a choice.", "s",
          quantiles("tandem_constraint_mask_seconds")),
]

DASHBOARD = dashboard(
    "tandem-requests", "Requests", "How long requests take, where that time goes, how they end, and what they ask for.",
    [("Latency", LATENCY), ("How requests end", ENDS), ("What they ask for", SIZES), ("By API key", KEYS),
     ("Steps", STEPS), ("Constraints", CONSTRAINTS)])
