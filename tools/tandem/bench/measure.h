// Measures a running cluster through its public API.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/tandem/api_client.h"

namespace tandem {

struct BenchOptions {
  uint32_t prompt_tokens = 128;
  uint32_t generated_tokens = 64;
  std::vector<uint32_t> sequences = {1};  // one measurement for each count of streams at a time
  uint32_t repetitions = 3;
  uint64_t seed = 1;  // of the prompts' token ids
};

// One count of concurrent streams; rates are the median over the repetitions.
struct BenchRun {
  uint32_t sequences = 0;
  double prompt_tokens_per_second =
      0;  // all prompts, from the first request to the last first token
  double decode_tokens_per_second =
      0;                           // all streams, between the last first token and the first end
  double first_token_seconds = 0;  // of the slowest stream
};

// Segments with the same stages in different layers are one line.
struct BenchSegment {
  std::string worker;
  std::string stages;  // "Out+Ffn+Qkv"
  uint64_t calls = 0;
  double device_us = 0;      // mean per call
  double round_trip_us = 0;  // mean per call, device time and hop included
};

struct BenchHop {
  std::string worker;
  double p50_us = 0;
  double p99_us = 0;
};

struct BenchReport {
  std::string model;
  std::string placement;
  BenchOptions options;
  std::vector<BenchRun> runs;
  uint64_t steps = 0;
  double calls_per_step = 0;
  double bytes_per_step = 0;  // written by the gateway for a step; activations stay by handle
  std::vector<BenchSegment> segments;
  std::vector<BenchHop> hops;  // round trip less the worker's own time
};

// INVALID_ARGUMENT: a prompt and answer that do not fit the model's context.
absl::StatusOr<BenchReport> Measure(GenerationStub& stub, const BenchOptions& options);

std::string ReportAsTable(const BenchReport& report);
std::string ReportAsJson(const BenchReport& report);

}  // namespace tandem
