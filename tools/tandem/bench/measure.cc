#include "tools/tandem/bench/measure.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/status.h"
#include "tools/tandem/bench/bench_streams.h"
#include "tools/tandem/bench/cluster_counters.h"
#include "tools/tandem/bench/picture_measure.h"
#include "tools/tandem/printable.h"

namespace tandem {
namespace {

constexpr uint32_t kWarmUpTokens = 4;
constexpr absl::Duration kIdleWait = absl::Seconds(10);

// One cluster and the tests on it.
class Measurement {
 public:
  Measurement(GenerationStub& stub, const BenchOptions& options, const MeasureHooks& hooks,
              const v1::ModelInfo& model, const v1::GetStatusResponse& status)
      : stub_(stub),
        hooks_(hooks),
        model_(model),
        counters_(stub, status),
        repetitions_(options.repetitions),
        max_rows_(status.scheduler().max_rows()),
        has_phases_(HasPhases(status)),
        salt_(std::random_device()()),
        random_(options.seed) {}

  ClusterCounters& counters() { return counters_; }

  absl::StatusOr<BenchResult> Run(const BenchTest& test, bool warm_up) {
    if (warm_up) {
      BenchTest first = test;
      if (!test.is_prompt) first.tokens = std::min(test.tokens, kWarmUpTokens);
      first.depth = 0;
      BenchResult unused;
      TANDEM_RETURN_IF_ERROR(RunOnce(first, unused));
    }
    BenchResult result{.test = test};
    if (hooks_.energy != nullptr) hooks_.energy->Reset();
    for (uint32_t i = 0; i < repetitions_; ++i) {
      if (hooks_.progress) {
        hooks_.progress(
            absl::StrFormat("measuring %s, %d of %d", test.Name(), i + 1, repetitions_));
      }
      TANDEM_RETURN_IF_ERROR(RunOnce(test, result));
    }
    if (hooks_.energy != nullptr) {
      result.energy = hooks_.energy->Joules();
      // Sensors refresh every 1 to 100 ms: one that did not move during a short test has no figure.
      std::erase_if(result.energy,
                    [](const EnergyReading& reading) { return reading.joules <= 0; });
    }
    CountWork(model_.work(), max_rows_, repetitions_, result);
    return result;
  }

 private:
  absl::Status RunOnce(const BenchTest& test, BenchResult& result) {
    TANDEM_RETURN_IF_ERROR(AwaitIdle());
    return test.is_prompt ? Prompt(test, result) : Decode(test, result);
  }

  absl::Status Prompt(const BenchTest& test, BenchResult& result) {
    TANDEM_ASSIGN_OR_RETURN(const ClusterCounts before, counters_.Read());
    if (hooks_.energy != nullptr) hooks_.energy->Begin();
    BenchStreams streams(stub_, Requests(test, 1));
    TANDEM_ASSIGN_OR_RETURN(const absl::Time end, streams.AwaitFirstTokens());
    if (hooks_.energy != nullptr) hooks_.energy->End();
    TANDEM_ASSIGN_OR_RETURN(const ClusterCounts after, counters_.Read());
    result.first_token_seconds.push_back(absl::ToDoubleSeconds(end - streams.start()));
    Add(end - streams.start(), double{1} * test.batch * test.tokens, result);
    result.counted_seconds += absl::ToDoubleSeconds(end - streams.start());
    AddCounts(before, after, 1.0, result);
    return absl::OkStatus();
  }

  // Only the time in which every sequence decodes counts, so that neither another's prompt nor a
  // batch that empties is taken for decoding.
  absl::Status Decode(const BenchTest& test, BenchResult& result) {
    BenchStreams streams(stub_, Requests(test, model_.context_len() - test.PromptTokens()));
    TANDEM_ASSIGN_OR_RETURN(const absl::Time first, streams.AwaitFirstTokens());
    if (hooks_.energy != nullptr) hooks_.energy->Begin();
    TANDEM_ASSIGN_OR_RETURN(const ClusterCounts before, counters_.ReadAtStepEnd());
    TANDEM_ASSIGN_OR_RETURN(const absl::Time end, streams.AwaitTokens(first, test.tokens));
    if (hooks_.energy != nullptr) hooks_.energy->End();
    TANDEM_ASSIGN_OR_RETURN(const ClusterCounts after, counters_.ReadAtStepEnd());
    const auto tokens = static_cast<double>(streams.TokensBetween(first, end));
    result.first_token_seconds.push_back(absl::ToDoubleSeconds(first - streams.start()));
    Add(end - first, tokens, result);
    // The counts were read a step or so beside the tokens' times.  What they say of a step is
    // right; how many steps there were, the tokens say better.
    const auto counted = static_cast<double>(after.steps - before.steps);
    const double scale = counted > 0 ? tokens / test.batch / counted : 1.0;
    result.counted_seconds += scale * absl::ToDoubleSeconds(after.latest - before.earliest);
    AddCounts(before, after, scale, result);
    return absl::OkStatus();
  }

  std::vector<v1::GenerateRequest> Requests(const BenchTest& test, uint32_t max_tokens) {
    std::uniform_int_distribution<uint32_t> id(model_.vocab_size() / 8, model_.vocab_size() - 1);
    std::vector<v1::GenerateRequest> requests(test.batch);
    for (v1::GenerateRequest& request : requests) {
      for (uint32_t i = 0; i < test.PromptTokens(); ++i) {
        request.mutable_tokens()->add_ids(id(random_));
      }
      request.mutable_sampling()->set_temperature(0);
      request.mutable_limits()->set_max_tokens(max_tokens);
      request.mutable_limits()->set_ignore_eos(true);
      // Prompts are drawn as they were in the last run, and their KV is not to be found.
      if (has_phases_) {
        request.mutable_limits()->set_cache_salt(absl::StrFormat("bench %x", salt_));
      } else {
        request.mutable_limits()->set_cache_prompt(false);
      }
    }
    return requests;
  }

  // Requests that were cancelled leave within a step.
  absl::Status AwaitIdle() {
    const absl::Time deadline = absl::Now() + kIdleWait;
    while (true) {
      TANDEM_ASSIGN_OR_RETURN(const auto status, FetchStatus(stub_, absl::Seconds(10)));
      const v1::SchedulerStatus& scheduler = status.scheduler();
      if (scheduler.running() + scheduler.waiting() == 0) return absl::OkStatus();
      if (absl::Now() >= deadline) {
        return absl::FailedPreconditionError(
            absl::StrFormat("the cluster is busy: %d requests run and %d wait; measure an idle "
                            "one, or with --model "
                            "one of its own",
                            scheduler.running(), scheduler.waiting()));
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  static void Add(absl::Duration time, double tokens, BenchResult& result) {
    const double seconds = absl::ToDoubleSeconds(time);
    result.rates.push_back(seconds > 0 ? tokens / seconds : 0);
    result.seconds += seconds;
    result.tokens += tokens;
  }

  GenerationStub& stub_;        // Borrowed.
  const MeasureHooks& hooks_;   // Borrowed.
  const v1::ModelInfo& model_;  // Borrowed.
  ClusterCounters counters_;
  const uint32_t repetitions_;
  const uint32_t max_rows_;
  const bool has_phases_;
  const uint32_t salt_;
  std::mt19937_64 random_;
};

}  // namespace

void CountWork(const v1::ModelWork& work, uint32_t max_rows, uint32_t repetitions,
               BenchResult& result) {
  const BenchTest& test = result.test;
  const auto steps = static_cast<double>(result.steps);
  const double outputs = test.is_prompt ? double{1} * test.batch * repetitions : result.tokens;
  const double head_steps = std::min(steps, outputs);
  // Times that a sequence's keys and values are read, the positions there are then on average, and
  // the rows of its own in such a step.
  const double chunks =
      test.is_prompt
          ? static_cast<double>((test.tokens + max_rows - 1) / max_rows) * test.batch * repetitions
          : result.tokens;
  const double rows = test.is_prompt ? std::min(test.tokens, max_rows) : 1;
  const double length =
      test.is_prompt ? (test.tokens + rows) / 2 : test.PromptTokens() + test.tokens / 2.0;
  const double in_window = std::min<double>(length, work.sliding_window() + rows - 1);
  result.bytes = steps * static_cast<double>(work.step_weight_bytes()) +
                 head_steps * static_cast<double>(work.head_weight_bytes()) +
                 chunks * (length * static_cast<double>(work.global_kv_bytes()) +
                           in_window * static_cast<double>(work.window_kv_bytes()));
  result.flops = 2 * (result.tokens * static_cast<double>(work.row_multiply_adds()) +
                      outputs * static_cast<double>(work.output_multiply_adds()));
}

absl::StatusOr<BenchReport> Measure(GenerationStub& stub, const BenchOptions& options,
                                    const MeasureHooks& hooks) {
  // Nobody there is an error at once; a gateway that loads its model is waited for.
  TANDEM_RETURN_IF_ERROR(FetchStatus(stub, absl::Seconds(10)).status());
  if (hooks.progress) hooks.progress("waiting for the gateway to be ready");
  TANDEM_ASSIGN_OR_RETURN(const auto status, WaitAllReady(stub, absl::Seconds(600)));
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  TANDEM_RETURN_IF_ERROR(FromGateway(stub.ListModels(&context, {}, &models)));
  MakePrintable(models);
  if (models.models().empty()) return absl::NotFoundError("the gateway serves no model");
  const v1::ModelInfo& model = models.models(0);
  const std::vector<BenchTest> tests = PlanTests(options);
  const std::vector<BenchPictureTest> picture_tests = PlanPictureTests(options);
  const uint32_t max_sequences = status.scheduler().max_sequences();
  if (!tests.empty() || picture_tests.empty()) {
    TANDEM_RETURN_IF_ERROR(CheckTests(tests, model.context_len(), max_sequences));
  }
  TANDEM_RETURN_IF_ERROR(CheckPictureTests(picture_tests, model, max_sequences));
  BenchReport report{.version = status.version(),
                     .model = model.name(),
                     .weight_bytes = model.weight_bytes(),
                     .parameters = model.parameters(),
                     .weight_format = model.weight_format(),
                     .placement = status.placement(),
                     .options = options,
                     .no_energy = hooks.no_energy};
  Measurement measurement(stub, options, hooks, model, status);
  if (hooks.progress) hooks.progress("measuring what the devices do at best");
  static_cast<void>(measurement.counters().Devices(status));
  TANDEM_ASSIGN_OR_RETURN(const ClusterCounts before, measurement.counters().Read());
  std::set<std::pair<bool, uint32_t>> warm;
  for (const BenchTest& test : tests) {
    const bool first = warm.emplace(test.is_prompt, test.batch).second;
    TANDEM_ASSIGN_OR_RETURN(BenchResult result, measurement.Run(test, options.warm_up && first));
    report.results.push_back(std::move(result));
  }
  for (const BenchPictureTest& test : picture_tests) {
    TANDEM_ASSIGN_OR_RETURN(BenchPictureResult result,
                            MeasurePictures(stub, test, options, hooks.progress));
    report.pictures.push_back(std::move(result));
  }
  TANDEM_ASSIGN_OR_RETURN(const ClusterCounts after, measurement.counters().Read());
  if (after.steps > before.steps) {
    report.bytes_per_step = static_cast<double>(after.step_bytes - before.step_bytes) /
                            static_cast<double>(after.steps - before.steps);
  }
  // Again: each worker answers with the best that it has seen.
  if (hooks.progress) hooks.progress("measuring what the devices do at best");
  report.devices = measurement.counters().Devices(status);
  TANDEM_ASSIGN_OR_RETURN(const auto end, FetchStatus(stub, absl::Seconds(10)));
  for (BenchDevice& device : report.devices) {
    for (const v1::WorkerStatus& worker : end.workers()) {
      if (worker.name() != device.worker) continue;
      device.hop_p50_us = worker.hop_p50_us();
      device.hop_p99_us = worker.hop_p99_us();
    }
  }
  return report;
}

}  // namespace tandem
