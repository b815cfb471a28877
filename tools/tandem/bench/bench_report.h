// The results of `tandem bench`, and their output formats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/common/energy/energy.h"
#include "tools/tandem/bench/bench_plan.h"

namespace tandem {

struct Spread {
  double mean = 0;
  double deviation = 0;  // of the sample, n - 1; 0 for one value
};
// Zero for no values.
Spread SpreadOf(const std::vector<double>& values);

// A worker's part of a test, over all repetitions.
struct BenchWorkerTime {
  std::string worker;
  double device_seconds = 0;
  double round_trip_seconds = 0;         // measured by the gateway: device, host and hop
  uint64_t calls = 0;                    // of segments
  std::map<std::string, double> stages;  // device seconds by kind of stage, if the worker answers
};

struct BenchResult {
  BenchTest test;
  // Tokens a second, one a repetition.  Prompts: all of them, from the first request to the last
  // first token.  Decoding: of all sequences, while every one of them decodes.
  std::vector<double> rates;
  // The slowest sequence's, one a repetition.
  std::vector<double> first_token_seconds;

  // All repetitions together, within the time that `rates` covers:
  double seconds = 0;
  double tokens = 0;
  uint64_t steps = 0;
  uint64_t steps_queued = 0;  // steps sent while another step ran
  double bytes = 0;           // least bytes that the steps read: weights, keys and values
  double flops = 0;           // of matmuls; a multiply-add is two
  // The period of the workers' times, from one step's end to another's.  These ends are known
  // within a call of the gateway; the wider bounds are used.
  double counted_seconds = 0;
  std::vector<BenchWorkerTime> workers;
  std::vector<EnergyReading> energy;
  uint64_t preemptions =
      0;  // sequences preempted because KV blocks ran out: figures are then too low
  uint64_t guesses_verified = 0;  // of drafters (--speculate)
  uint64_t guesses_accepted = 0;  // of them: so many steps were saved

  Spread rate() const { return SpreadOf(rates); }
  double device_seconds() const;
  // Fractions of the counted time; and the time outside the devices.
  double device_share() const;
  double outside_seconds() const;
  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
  double flops_per_second() const { return seconds > 0 ? flops / seconds : 0; }
};

// Of one question's requests, over all repetitions.
struct BenchPictureTimes {
  // The slowest request's, one a repetition.
  std::vector<double> first_token_seconds;
  uint64_t encoded = 0;        // pictures that the gateway encoded
  uint64_t cached = 0;         // pictures that it had encoded before
  uint64_t cached_tokens = 0;  // of prompts, found in the KV cache
  // By the gateway's clocks, of all pictures encoded; decoding includes waits for a decoder.
  double decode_seconds = 0;
  double prepare_seconds = 0;
  double encode_seconds = 0;
};

struct BenchPictureResult {
  BenchPictureTest test;
  // Pictures a second, one a repetition: from the first request to the last first token.
  std::vector<double> rates;
  BenchPictureTimes first;  // about new pictures
  BenchPictureTimes again;  // another question about the same ones

  Spread rate() const { return SpreadOf(rates); }
};

struct BenchDevice {
  std::string worker;
  std::string device;
  std::string kind;  // "gpu" or "npu"
  bool emulated = false;
  // Measured; unset with the reason in `not_measured`.
  std::optional<double> read_bytes_per_second;
  std::optional<double> fma_flops_per_second;
  std::optional<double> matrix_flops_per_second;  // unset, no reason: no matrix units
  std::string not_measured;
  double hop_p50_us = 0;  // round trip less the worker's own time
  double hop_p99_us = 0;

  // The ceiling of matmuls: matrix units, if there are any.
  std::optional<double> best_flops_per_second() const {
    return matrix_flops_per_second.has_value() ? matrix_flops_per_second : fma_flops_per_second;
  }
};

struct BenchReport {
  std::string version;  // of the gateway
  std::string model;
  uint64_t weight_bytes = 0;
  uint64_t parameters = 0;
  std::string weight_format;
  std::string placement;
  BenchOptions options;
  std::vector<BenchDevice> devices;
  std::vector<BenchResult> results;
  std::vector<BenchPictureResult> pictures;
  double bytes_per_step = 0;  // written by the gateway; activations stay by handle
  std::string no_energy;      // why energy was not measured; empty if it was

  // The device for the shares of ceilings: the only one with ceilings, else nullptr.
  const BenchDevice* measured_device() const;
};

std::string ReportAsMarkdown(const BenchReport& report);
std::string ReportAsJson(const BenchReport& report);
// A line of column names, then a line per test; commas and quotes as in RFC 4180.  With pictures
// there are more columns, and lines of pictures follow those of tokens; cells that a test lacks are
// empty.
std::string ReportAsCsv(const BenchReport& report);

}  // namespace tandem
