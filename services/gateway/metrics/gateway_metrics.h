// The gateway's metrics.
#pragma once

#include <vector>

#include "services/common/metrics/histogram.h"
#include "services/common/metrics/metric_spec.h"

namespace tandem::gateway {

// Of work that takes microseconds as a rule, in seconds.
inline constexpr double kShortTimeBuckets[] = {
    0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002,
    0.005,    0.01,     0.02,    0.05,    0.1,     0.2,    0.5,    1.0,    2.5};

struct GatewayMetrics {
  // The cluster.
  static constexpr MetricSpec kInfo{"tandem_gateway_info",
                                    MetricType::kGauge,
                                    "1: version of the gateway and its model.",
                                    {"version", "model"}};
  static constexpr MetricSpec kReady{"tandem_gateway_ready", MetricType::kGauge,
                                     "1 while requests are answered, else 0."};
  static constexpr MetricSpec kPlacement{"tandem_placement_info",
                                         MetricType::kGauge,
                                         "1: stages of the plan in force that run on a worker.",
                                         {"worker", "device", "stages"}};
  static constexpr MetricSpec kPlanEpoch{"tandem_plan_epoch", MetricType::kGauge,
                                         "Epoch of the plan in force, 0 without one."};
  static constexpr MetricSpec kWorkerUp{"tandem_worker_up",
                                        MetricType::kGauge,
                                        "1 while the gateway has the worker, 0 when it is lost. "
                                        "A worker that is absent or unusable has no series.",
                                        {"worker"}};
  static constexpr MetricSpec kWorkerState{
      "tandem_worker_state",
      MetricType::kGauge,
      "1 for the state that a worker is in, 0 for the others: connected, loading, ready, lost. "
      "absent: the machine has no such device, and the policy does without. unusable: it has one "
      "that cannot be used, and the policy does without.",
      {"worker", "kind", "state"}};
  static constexpr MetricSpec kRecoveries{
      "tandem_recoveries_total", MetricType::kCounter,
      "Times that a worker was lost and a plan was loaded again."};
  static constexpr MetricSpec kPlacementMoves{
      "tandem_placement_moves_total", MetricType::kCounter,
      "Times that serving moved to another placement because the one in force had become slower."};
  static constexpr MetricSpec kReplicaUp{
      "tandem_replica_up",
      MetricType::kGauge,
      "1 while a replica serves, 0 while it is being loaded or has lost a worker. No series where "
      "the model is served once.",
      {"replica"}};
  static constexpr MetricSpec kReplicaRunning{"tandem_replica_requests_running",
                                              MetricType::kGauge,
                                              "Requests that a replica runs.",
                                              {"replica"}};
  static constexpr MetricSpec kReplicaWaiting{"tandem_replica_requests_waiting",
                                              MetricType::kGauge,
                                              "Requests that wait for a place in a replica.",
                                              {"replica"}};
  static constexpr MetricSpec kReplicaRequests{
      "tandem_replica_requests_total",
      MetricType::kCounter,
      "Requests given to a replica. known: it had computed the beginning of the prompt; new: not.",
      {"replica", "prefix"}};
  static constexpr MetricSpec kReplicaMoved{"tandem_replica_requests_moved_total",
                                            MetricType::kCounter,
                                            "Requests that went on in another replica: handed over "
                                            "with their KV, or because this one had "
                                            "lost a worker.",
                                            {"replica"}};
  static constexpr MetricSpec kReplicaHandedOver{"tandem_replica_requests_handed_over_total",
                                                 MetricType::kCounter,
                                                 "Of them, those handed over with their KV.",
                                                 {"replica"}};
  static constexpr MetricSpec kReplicaKvBytes{
      "tandem_replica_kv_handed_over_bytes_total",
      MetricType::kCounter,
      "KV that a replica sent to others, or received from them.",
      {"replica", "direction"}};
  static constexpr MetricSpec kReplicaKvUsed{"tandem_replica_kv_blocks_used",
                                             MetricType::kGauge,
                                             "KV blocks that a replica's sequences hold.",
                                             {"replica", "pool"}};
  static constexpr MetricSpec kModelFileChanged{
      "tandem_model_file_changed", MetricType::kGauge,
      "1 while the model's file differs from the loaded one or is gone, else 0. The loaded weights "
      "are served."};
  static constexpr MetricSpec kModelReloads{
      "tandem_model_reloads_total", MetricType::kCounter,
      "Times that a changed file was loaded because the weights in use were lost."};

  // Requests.
  static constexpr MetricSpec kRequests{
      "tandem_requests_total",
      MetricType::kCounter,
      "Requests that ended, by API and outcome; each of several answers to one call counts. "
      "refused: ended before any row was computed.",
      {"api", "outcome"}};
  static constexpr MetricSpec kErrors{"tandem_request_errors_total",
                                      MetricType::kCounter,
                                      "Requests refused or failed, by API and gRPC code.",
                                      {"api", "code"}};
  static constexpr MetricSpec kRunning{"tandem_requests_running", MetricType::kGauge,
                                       "Requests that are being computed."};
  static constexpr MetricSpec kWaiting{"tandem_requests_waiting", MetricType::kGauge,
                                       "Requests that wait for their first or next rows."};
  static constexpr MetricSpec kWaitingLimit{"tandem_requests_waiting_limit", MetricType::kGauge,
                                            "Requests that may wait; more are refused."};
  static constexpr MetricSpec kDuration{"tandem_request_duration_seconds",
                                        MetricType::kHistogram,
                                        "From a request's arrival to its end, seconds.",
                                        {"api"},
                                        kGenAiDurationBuckets};
  static constexpr MetricSpec kFirstToken{"tandem_time_to_first_token_seconds",
                                          MetricType::kHistogram,
                                          "From a request's arrival to its first token, seconds.",
                                          {"api"},
                                          kGenAiFirstTokenBuckets};
  static constexpr MetricSpec kTokenTime{
      "tandem_time_per_output_token_seconds",
      MetricType::kHistogram,
      "Time per token after the first, seconds: one mean for each request of two tokens or more.",
      {"api"},
      kGenAiTokenTimeBuckets};
  static constexpr MetricSpec kQueueTime{"tandem_request_queue_seconds",
                                         MetricType::kHistogram,
                                         "From a request's arrival to its first rows, seconds.",
                                         {"api"},
                                         kGenAiFirstTokenBuckets};
  static constexpr MetricSpec kPromptTokens{"tandem_request_prompt_tokens",
                                            MetricType::kHistogram,
                                            "Tokens of a request's prompt.",
                                            {"api"},
                                            kGenAiTokenBuckets};
  static constexpr MetricSpec kCompletionTokens{"tandem_request_completion_tokens",
                                                MetricType::kHistogram,
                                                "Tokens of a request's answer.",
                                                {"api"},
                                                kGenAiTokenBuckets};

  // Constraints.
  static constexpr MetricSpec kCompilations{
      "tandem_constraint_compilations_total",
      MetricType::kCounter,
      "Schemas, expressions and grammars that were compiled, by outcome. refused: wrong, not "
      "supported, or too large; cancelled: the requests for it went away.",
      {"outcome"}};
  static constexpr MetricSpec kCompileTime{"tandem_constraint_compile_seconds",
                                           MetricType::kHistogram,
                                           "Time of a compilation, seconds.",
                                           {},
                                           kShortTimeBuckets};
  static constexpr MetricSpec kConstraintHits{
      "tandem_constraint_cache_hits_total", MetricType::kCounter,
      "Requests whose constraint was compiled already, or was being compiled."};
  static constexpr MetricSpec kCompileWaiting{
      "tandem_constraint_requests_waiting", MetricType::kGauge,
      "Requests that wait for the compilation of their constraint."};
  static constexpr MetricSpec kConstraintBytes{"tandem_constraint_cache_bytes", MetricType::kGauge,
                                               "Memory of compiled constraints, bytes."};
  static constexpr MetricSpec kMaskTime{"tandem_constraint_mask_seconds",
                                        MetricType::kHistogram,
                                        "Time to find which tokens may come next, seconds: one "
                                        "observation for each token with a choice.",
                                        {},
                                        kShortTimeBuckets};

  // Steps.
  static constexpr MetricSpec kSteps{"tandem_steps_total", MetricType::kCounter,
                                     "Steps done: passes of the model over a batch of rows."};
  static constexpr MetricSpec kStepsFailed{"tandem_steps_failed_total", MetricType::kCounter,
                                           "Steps that failed."};
  static constexpr MetricSpec kStepsQueued{"tandem_steps_queued_total", MetricType::kCounter,
                                           "Steps sent to the worker while another step ran."};
  static constexpr MetricSpec kStepTime{
      "tandem_step_seconds",
      MetricType::kHistogram,
      "Time of a step, seconds, without the time that it was queued behind another.",
      {},
      kGenAiFirstTokenBuckets};
  static constexpr MetricSpec kStepRowsTotal{
      "tandem_step_rows_total",
      MetricType::kCounter,
      "Rows of steps done. decode: a token of an answer; prompt: of a prompt, or computed again.",
      {"kind"}};
  static constexpr MetricSpec kStepRows{
      "tandem_step_rows", MetricType::kHistogram, "Rows of a step.", {}, kRowBuckets};

  // Guesses of drafters.
  static constexpr MetricSpec kDraftTokens{
      "tandem_draft_tokens_total",
      MetricType::kCounter,
      "Guesses of drafters that steps verified, by drafter. accepted: the token that the model "
      "chose, so that a step was saved; rejected: another one.",
      {"drafter", "result"}};
  static constexpr MetricSpec kDraftSeconds{"tandem_draft_busy_seconds_total",
                                            MetricType::kCounter,
                                            "Time in a drafter's own steps, by drafter.",
                                            {"drafter"}};

  // Calls to workers.
  static constexpr MetricSpec kCalls{
      "tandem_segment_calls_total", MetricType::kCounter, "Segments sent to a worker.", {"worker"}};
  static constexpr MetricSpec kRoundTrip{
      "tandem_segment_round_trip_seconds_total",
      MetricType::kCounter,
      "Round trip of these calls, seconds, without waits behind other steps.",
      {"worker"}};
  static constexpr MetricSpec kWorkerTime{
      "tandem_segment_worker_seconds_total",
      MetricType::kCounter,
      "Part of the round trip spent in the worker, seconds; the rest is the cost of the hop.",
      {"worker"}};
  static constexpr MetricSpec kDeviceTime{
      "tandem_segment_device_seconds_total",
      MetricType::kCounter,
      "Part of the round trip spent on the device by its own timestamps, seconds.",
      {"worker"}};

  // KV cache.
  static constexpr MetricSpec kKvBlocks{
      "tandem_kv_blocks",
      MetricType::kGauge,
      "KV blocks in all. global: of global attention layers; window: of sliding-window layers.",
      {"pool"}};
  static constexpr MetricSpec kKvBlocksUsed{
      "tandem_kv_blocks_used", MetricType::kGauge, "KV blocks in use.", {"pool"}};
  static constexpr MetricSpec kKvBlocksCached{
      "tandem_kv_blocks_cached",
      MetricType::kGauge,
      "KV blocks that only the prefix cache holds; they are evicted when a request needs the room.",
      {"pool"}};
  static constexpr MetricSpec kKvBlocksEvicted{"tandem_kv_blocks_evicted_total",
                                               MetricType::kCounter,
                                               "KV blocks evicted from the prefix cache.",
                                               {"pool"}};

  // The HTTP port.
  static constexpr MetricSpec kHttpConnections{"tandem_http_connections", MetricType::kGauge,
                                               "HTTP connections open."};
  static constexpr MetricSpec kHttpRequests{
      "tandem_http_requests_total",
      MetricType::kCounter,
      "HTTP requests answered, by the route's template and status. other: no route; 499: the "
      "client had disconnected.",
      {"route", "status"}};
  static std::vector<MetricSpec> All();
};

}  // namespace tandem::gateway
