// Counters, fed with made-up steps and requests.
#include "services/gateway/metrics/gateway_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/common/metrics/metrics_server.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two layers, attention of both on an NPU.
Plan HybridPlan() {
  Plan plan;
  plan.workers = {{.name = "gpu0", .device = "some GPU"}, {.name = "npu0", .device = "some NPU"}};
  // Embed Qkv | Attend | Out Ffn Qkv | Attend | Out Ffn Head
  plan.segments = {{.index = 0, .worker = 0, .first_ordinal = 0, .last_ordinal = 1},
                   {.index = 1, .worker = 1, .first_ordinal = 2, .last_ordinal = 2},
                   {.index = 2, .worker = 0, .first_ordinal = 3, .last_ordinal = 5},
                   {.index = 3, .worker = 1, .first_ordinal = 6, .last_ordinal = 6},
                   {.index = 4, .worker = 0, .first_ordinal = 7, .last_ordinal = 9}};
  return plan;
}

std::string Page(const GatewayCounters& counters) {
  return MetricsText([&](MetricSamples& samples) {
    v1::GetStatusResponse status;
    status.set_version("1.2");
    status.set_model("toy");
    status.set_state("ready");
    v1::WorkerStatus* worker = status.add_workers();
    worker->set_name("gpu0");
    worker->set_state("ready");
    worker = status.add_workers();
    worker->set_name("npu0");
    worker->set_state("lost");
    status.mutable_scheduler()->set_max_waiting(128);
    counters.AddTo(status, SchedulerCounters(), {.bytes = 5, .waiting = 3}, HttpTraffic(), samples);
  });
}

TEST(GatewayCountersTest, ThePlacementIsByWorkerWithItsKindsOfStage) {
  GatewayCounters counters;
  EXPECT_THAT(Page(counters), HasSubstr("tandem_plan_epoch 0\n"));
  const Plan plan = HybridPlan();
  counters.PlanInForce({.plan = &plan, .num_layers = 2, .epoch = 7});
  const std::string page = Page(counters);
  EXPECT_THAT(page, HasSubstr("tandem_plan_epoch 7\n"));
  EXPECT_THAT(page, HasSubstr("tandem_placement_info{worker=\"gpu0\",device=\"some GPU\","
                              "stages=\"Embed,Qkv,Out,Ffn,Head\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("{worker=\"npu0\",device=\"some NPU\",stages=\"Attend\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_worker_up{worker=\"gpu0\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_worker_up{worker=\"npu0\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tandem_gateway_info{version=\"1.2\",model=\"toy\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_requests_waiting_limit 128\n"));
}

TEST(GatewayCountersTest, StepsAreCountedWithTheirRowsAndCalls) {
  GatewayCounters counters;
  const Plan plan = HybridPlan();
  counters.PlanInForce({.plan = &plan, .num_layers = 2, .epoch = 1});
  std::vector<SegmentTiming> timings;
  for (uint32_t s = 0; s < plan.segments.size(); ++s) {
    timings.push_back({.segment_index = s,
                       .round_trip = absl::Milliseconds(4),
                       .worker_ns = 3'000'000,
                       .device_ns = 2'000'000});
  }
  const absl::Time begin = absl::Now();
  StepReport step{.begin = begin,
                  .turn = begin + absl::Milliseconds(10),
                  .end = begin + absl::Milliseconds(45),
                  .decode_rows = 3,
                  .prompt_rows = 17,
                  .segments = timings,
                  .plan = &plan};
  counters.StepEnded(step);
  step.queued = true;
  counters.StepEnded(step);
  step.status = absl::InternalError("no");
  step.segments = {};
  counters.StepEnded(step);
  // After a plan of one worker, earlier counts stay.
  Plan lone = HybridPlan();
  lone.workers.pop_back();
  lone.segments = {{.index = 0, .worker = 0, .first_ordinal = 0, .last_ordinal = 9}};
  counters.PlanInForce({.plan = &lone, .num_layers = 2, .epoch = 2});
  const std::string page = Page(counters);
  EXPECT_THAT(page, HasSubstr("tandem_steps_total 2\n"));
  EXPECT_THAT(page, HasSubstr("tandem_steps_failed_total 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_steps_queued_total 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_step_rows_total{kind=\"decode\"} 6\n"));
  EXPECT_THAT(page, HasSubstr("tandem_step_rows_total{kind=\"prompt\"} 34\n"));
  EXPECT_THAT(page, HasSubstr("tandem_step_rows_bucket{le=\"16\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tandem_step_rows_bucket{le=\"32\"} 2\n"));
  // 35 ms, from its turn to its end.
  EXPECT_THAT(page, HasSubstr("tandem_step_seconds_bucket{le=\"0.02\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tandem_step_seconds_bucket{le=\"0.04\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("tandem_segment_calls_total{worker=\"gpu0\"} 6\n"));
  EXPECT_THAT(page, HasSubstr("tandem_segment_calls_total{worker=\"npu0\"} 4\n"));
  EXPECT_THAT(page, HasSubstr("tandem_segment_round_trip_seconds_total{worker=\"npu0\"} 0.016"));
  EXPECT_THAT(page, HasSubstr("tandem_segment_worker_seconds_total{worker=\"npu0\"} 0.012"));
  EXPECT_THAT(page, HasSubstr("tandem_segment_device_seconds_total{worker=\"npu0\"} 0.008"));
  EXPECT_THAT(page, Not(HasSubstr("stages=\"Attend\"")));
}

TEST(GatewayCountersTest, RequestsAreCountedByApiOutcomeAndCode) {
  GatewayCounters counters;
  EngineRequest request;
  request.prompt.resize(100);
  const absl::Time begin = absl::Now();
  RequestReport report{.request = &request,
                       .submitted = begin,
                       .first_token = begin + absl::Seconds(1),
                       .last_token = begin + absl::Seconds(3),
                       .end = begin + absl::Seconds(3),
                       .completion_tokens = 11,
                       .reason = v1::FINISH_REASON_STOP};
  counters.RequestStarted(1, Api::kGrpc, begin, begin + absl::Milliseconds(3));
  counters.RequestFirstToken(1, Api::kGrpc, begin, report.first_token);
  counters.RequestEnded(report);
  request.api = Api::kOllama;
  report.completion_tokens = 1;
  report.reason = v1::FINISH_REASON_LENGTH;
  counters.RequestEnded(report);
  report.completion_tokens = 0;
  for (const absl::Status& status :
       {absl::CancelledError(""), absl::DeadlineExceededError(""), absl::UnavailableError("")}) {
    report.status = status;
    counters.RequestEnded(report);
  }
  counters.RequestRefused(Api::kOpenAi, absl::ResourceExhaustedError("full"));
  // A code that no gRPC status has.
  counters.RequestRefused(Api::kRest, absl::Status(static_cast<absl::StatusCode>(1234), "odd"));
  const std::string page = Page(counters);
  for (const char* count :
       {"grpc\",outcome=\"stop", "ollama\",outcome=\"length", "ollama\",outcome=\"cancelled",
        "ollama\",outcome=\"deadline", "ollama\",outcome=\"failed", "openai\",outcome=\"refused",
        "rest\",outcome=\"refused"}) {
    EXPECT_THAT(page, HasSubstr(std::string("tandem_requests_total{api=\"") + count + "\"} 1\n"));
  }
  EXPECT_THAT(page, HasSubstr("tandem_requests_total{api=\"grpc\",outcome=\"failed\"} 0\n"));
  for (const char* error : {"ollama\",code=\"cancelled", "ollama\",code=\"deadline_exceeded",
                            "ollama\",code=\"unavailable", "openai\",code=\"resource_exhausted"}) {
    EXPECT_THAT(page,
                HasSubstr(std::string("tandem_request_errors_total{api=\"") + error + "\"} 1\n"));
  }
  // By API: one by gRPC, four by Ollama's.
  const auto is = [](const std::string& name, const std::string& api, const std::string& rest) {
    return HasSubstr("tandem_" + name + "{api=\"" + api + "\"" + rest + "\n");
  };
  EXPECT_THAT(page, is("request_duration_seconds_count", "grpc", "} 1"));
  EXPECT_THAT(page, is("request_duration_seconds_count", "ollama", "} 4"));
  EXPECT_THAT(page, is("request_duration_seconds_sum", "ollama", "} 12"));
  EXPECT_THAT(page, is("request_duration_seconds_count", "rest", "} 0"));
  EXPECT_THAT(page, is("time_to_first_token_seconds_bucket", "grpc", ",le=\"0.75\"} 0"));
  EXPECT_THAT(page, is("time_to_first_token_seconds_bucket", "grpc", ",le=\"1\"} 1"));
  EXPECT_THAT(page, is("time_to_first_token_seconds_count", "ollama", "} 0"));
  // Two seconds over ten tokens.  Requests of one token have no time per further token.
  EXPECT_THAT(page, is("time_per_output_token_seconds_count", "grpc", "} 1"));
  EXPECT_THAT(page, is("time_per_output_token_seconds_count", "ollama", "} 0"));
  EXPECT_THAT(page, is("time_per_output_token_seconds_bucket", "grpc", ",le=\"0.15\"} 0"));
  EXPECT_THAT(page, is("time_per_output_token_seconds_bucket", "grpc", ",le=\"0.2\"} 1"));
  EXPECT_THAT(page, is("request_queue_seconds_bucket", "grpc", ",le=\"0.005\"} 1"));
  EXPECT_THAT(page, is("request_prompt_tokens_bucket", "ollama", ",le=\"64\"} 0"));
  EXPECT_THAT(page, is("request_prompt_tokens_bucket", "ollama", ",le=\"256\"} 4"));
  EXPECT_THAT(page, is("request_completion_tokens_bucket", "ollama", ",le=\"1\"} 4"));
}

TEST(GatewayCountersTest, ConstraintsAreCountedByOutcomeWithTheirTimes) {
  GatewayCounters counters;
  counters.ConstraintCompiled(absl::OkStatus(), absl::Microseconds(300));
  counters.ConstraintCompiled(absl::OkStatus(), absl::Milliseconds(30));
  counters.ConstraintCompiled(absl::InvalidArgumentError("schema: #: ..."), absl::Seconds(1));
  counters.ConstraintCompiled(absl::CancelledError(""), absl::Seconds(2));
  counters.ConstraintFound();
  for (int i = 0; i < 4; ++i) counters.MaskMade(absl::Microseconds(15));
  const std::string page = Page(counters);
  for (const char* line :
       {"compilations_total{outcome=\"ok\"} 2", "compilations_total{outcome=\"refused\"} 1",
        "compilations_total{outcome=\"cancelled\"} 1", "compile_seconds_count 4",
        "compile_seconds_bucket{le=\"0.0005\"} 1", "compile_seconds_bucket{le=\"1\"} 3",
        "cache_hits_total 1", "requests_waiting 3", "cache_bytes 5",
        "mask_seconds_bucket{le=\"1e-05\"} 0", "mask_seconds_bucket{le=\"2e-05\"} 4"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\ntandem_constraint_") + line + "\n"));
  }
}

// A series for each row of the table that has a metric, by its label.
TEST(GatewayCountersTest, TheSchedulersCountersAreOnThePage) {
  SchedulerCounters scheduler;
  uint64_t value = 100;
  for (const SchedulerCounter& counter : kSchedulerCounters) scheduler.*counter.value = ++value;
  const std::string page = MetricsText([&](MetricSamples& samples) {
    GatewayCounters().AddTo(v1::GetStatusResponse(), scheduler, {}, HttpTraffic(), samples);
  });
  value = 100;
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    ++value;
    if (counter.metric == nullptr) continue;
    std::string series(counter.metric->name);
    if (!counter.label.empty()) {
      series +=
          "{" + std::string(counter.metric->labels[0]) + "=\"" + std::string(counter.label) + "\"}";
    }
    EXPECT_THAT(page, HasSubstr("\n" + series + " " + std::to_string(value) + "\n"));
  }
  EXPECT_THAT(page, HasSubstr("\ntandem_guesses_total{result=\"wrong\"} "));
  EXPECT_THAT(page, HasSubstr("\ntandem_preemptions_total "));
}

TEST(GatewayCountersTest, AWorkerThatIsAbsentIsNotDown) {
  const std::string page = MetricsText([](MetricSamples& samples) {
    v1::GetStatusResponse status;
    for (const char* state : {"ready", "lost", "absent", "unusable"}) {
      v1::WorkerStatus* worker = status.add_workers();
      worker->set_name(std::string("w-") + state);
      worker->set_kind("npu");
      worker->set_state(state);
    }
    GatewayCounters().AddTo(status, SchedulerCounters(), {}, HttpTraffic(), samples);
  });
  EXPECT_THAT(page, HasSubstr("tandem_worker_up{worker=\"w-ready\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tandem_worker_up{worker=\"w-lost\"} 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("tandem_worker_up{worker=\"w-absent\"}")));
  EXPECT_THAT(page, Not(HasSubstr("tandem_worker_up{worker=\"w-unusable\"}")));
  const std::string absent = "tandem_worker_state{worker=\"w-absent\",kind=\"npu\",state=";
  EXPECT_THAT(page, HasSubstr(absent + "\"absent\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(absent + "\"lost\"} 0\n"));
  EXPECT_THAT(page, HasSubstr(absent + "\"unusable\"} 0\n"));
}

}  // namespace
}  // namespace tandem::gateway
