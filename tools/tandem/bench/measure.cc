#include "tools/tandem/bench/measure.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/status.h"

namespace tandem {
namespace {

struct StreamTimes {
  absl::Time start;
  absl::Time first_token;
  absl::Time end;
  // Tokens by the time they arrived, in order.
  std::vector<absl::Time> tokens;
  absl::Status status;
};

v1::GenerateRequest MakeRequest(const BenchOptions& options, uint32_t vocab_size,
                                std::mt19937_64& random) {
  v1::GenerateRequest request;
  std::uniform_int_distribution<uint32_t> id(vocab_size / 8, vocab_size - 1);
  for (uint32_t i = 0; i < options.prompt_tokens; ++i) {
    request.mutable_tokens()->add_ids(id(random));
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_limits()->set_max_tokens(options.generated_tokens);
  request.mutable_limits()->set_ignore_eos(true);
  return request;
}

void RunStream(GenerationStub& stub, const v1::GenerateRequest& request, StreamTimes& times) {
  grpc::ClientContext context;
  times.start = absl::Now();
  auto reader = stub.Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    const absl::Time now = absl::Now();
    for (int i = 0; i < response.tokens_size(); ++i) times.tokens.push_back(now);
  }
  times.end = absl::Now();
  times.status = FromGrpcStatus(reader->Finish());
  if (times.status.ok() && times.tokens.empty()) {
    times.status = absl::InternalError("a stream ended without a token");
  }
  if (!times.tokens.empty()) times.first_token = times.tokens.front();
}

double Rate(double count, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  return seconds > 0 ? count / seconds : 0;
}

absl::StatusOr<BenchRun> RunOnce(GenerationStub& stub, const BenchOptions& options,
                                 uint32_t vocab_size, uint32_t sequences, std::mt19937_64& random) {
  std::vector<StreamTimes> streams(sequences);
  std::vector<v1::GenerateRequest> requests;
  for (uint32_t i = 0; i < sequences; ++i) {
    requests.push_back(MakeRequest(options, vocab_size, random));
  }
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < sequences; ++i) {
    threads.emplace_back(RunStream, std::ref(stub), std::cref(requests[i]), std::ref(streams[i]));
  }
  for (std::thread& thread : threads) thread.join();
  absl::Time start = absl::InfiniteFuture();
  absl::Time last_first = absl::InfinitePast();
  absl::Time first_end = absl::InfiniteFuture();
  absl::Duration slowest;
  for (const StreamTimes& stream : streams) {
    TANDEM_RETURN_IF_ERROR(stream.status);
    start = std::min(start, stream.start);
    last_first = std::max(last_first, stream.first_token);
    first_end = std::min(first_end, stream.tokens.back());
    slowest = std::max(slowest, stream.first_token - stream.start);
  }
  // Only the window in which every stream decodes counts, so that neither the others' prompts nor
  // an emptying batch is mistaken for decoding.
  double decoded = 0;
  for (const StreamTimes& stream : streams) {
    decoded += static_cast<double>(
        std::count_if(stream.tokens.begin(), stream.tokens.end(),
                      [&](absl::Time t) { return t > last_first && t <= first_end; }));
  }
  BenchRun run;
  run.sequences = sequences;
  run.prompt_tokens_per_second =
      Rate(static_cast<double>(sequences) * options.prompt_tokens, last_first - start);
  run.decode_tokens_per_second = Rate(decoded, first_end - last_first);
  run.first_token_seconds = absl::ToDoubleSeconds(slowest);
  return run;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

BenchRun MedianOf(const std::vector<BenchRun>& runs) {
  BenchRun median = runs.front();
  const auto pick = [&runs](double BenchRun::*field) {
    std::vector<double> values;
    for (const BenchRun& run : runs) values.push_back(run.*field);
    return Median(std::move(values));
  };
  median.prompt_tokens_per_second = pick(&BenchRun::prompt_tokens_per_second);
  median.decode_tokens_per_second = pick(&BenchRun::decode_tokens_per_second);
  median.first_token_seconds = pick(&BenchRun::first_token_seconds);
  return median;
}

void AddSegments(const v1::GetStatusResponse& before, const v1::GetStatusResponse& after,
                 BenchReport& report) {
  std::map<uint32_t, const v1::SegmentStatus*> earlier;
  for (const auto& segment : before.segments()) earlier[segment.index()] = &segment;
  uint64_t calls = 0;
  for (const auto& segment : after.segments()) {
    const auto it = earlier.find(segment.index());
    const v1::SegmentStatus none;
    const v1::SegmentStatus& old = it != earlier.end() ? *it->second : none;
    const std::string stages = StagesWithoutLayers(segment.stages());
    auto line = std::find_if(report.segments.begin(), report.segments.end(), [&](const auto& s) {
      return s.worker == segment.worker() && s.stages == stages;
    });
    if (line == report.segments.end()) {
      line = report.segments.insert(line, BenchSegment{segment.worker(), stages});
    }
    line->calls += segment.calls() - old.calls();
    line->device_us += (segment.device_seconds() - old.device_seconds()) * 1e6;
    line->round_trip_us += (segment.round_trip_seconds() - old.round_trip_seconds()) * 1e6;
    calls += segment.calls() - old.calls();
  }
  for (BenchSegment& segment : report.segments) {
    if (segment.calls == 0) continue;
    segment.device_us /= static_cast<double>(segment.calls);
    segment.round_trip_us /= static_cast<double>(segment.calls);
  }
  report.steps = after.scheduler().steps() - before.scheduler().steps();
  if (report.steps == 0) return;
  report.calls_per_step = static_cast<double>(calls) / static_cast<double>(report.steps);
  report.bytes_per_step =
      static_cast<double>(after.scheduler().step_bytes() - before.scheduler().step_bytes()) /
      static_cast<double>(report.steps);
}

}  // namespace

absl::StatusOr<BenchReport> Measure(GenerationStub& stub, const BenchOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const auto ready, WaitReady(stub, absl::Seconds(600)));
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub.ListModels(&context, {}, &models)));
  if (models.models().empty()) return absl::NotFoundError("the gateway serves no model");
  const v1::ModelInfo& model = models.models(0);
  if (options.prompt_tokens == 0 || options.generated_tokens < 2 ||
      uint64_t{options.prompt_tokens} + options.generated_tokens > model.context_len()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "prompt of %d and answer of %d tokens: the prompt needs at least 1, the answer 2, and both "
        "together must fit the context of %d",
        options.prompt_tokens, options.generated_tokens, model.context_len()));
  }
  std::mt19937_64 random(options.seed);
  // Warm-up: first use of kernels and caches is not what is measured.
  TANDEM_RETURN_IF_ERROR(RunOnce(stub, options, model.vocab_size(), 1, random).status());
  BenchReport report;
  report.model = model.name();
  report.placement = ready.placement();
  report.options = options;
  TANDEM_ASSIGN_OR_RETURN(const auto before, FetchStatus(stub, absl::Seconds(10)));
  for (const uint32_t sequences : options.sequences) {
    std::vector<BenchRun> runs;
    for (uint32_t i = 0; i < options.repetitions; ++i) {
      TANDEM_ASSIGN_OR_RETURN(const BenchRun run,
                              RunOnce(stub, options, model.vocab_size(), sequences, random));
      runs.push_back(run);
    }
    report.runs.push_back(MedianOf(runs));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto after, FetchStatus(stub, absl::Seconds(10)));
  AddSegments(before, after, report);
  for (const auto& worker : after.workers()) {
    report.hops.push_back({worker.name(), worker.hop_p50_us(), worker.hop_p99_us()});
  }
  return report;
}

}  // namespace tandem
