// How long a step would take on a chip that is not here: a model, not a measurement.
//
// A dispatch needs, of each part of the chip by itself:
//
//   memory   weights, keys and values, each once, and activations that the last cache cannot hold,
//            over the bandwidth that a kernel reaches
//   cache    the same every time that a workgroup reads them, over the last cache's bandwidth
//   loop     multiply-adds of the launch / those of one pass of the kernel's main loop
//            x the clocks of one pass on the unit that holds it (assembly.h), and no less than
//            memory's latency allows the subgroups that fit
//   latency  of kernels without such a loop: the compiler's estimate for one subgroup, over the
//            rounds in which subgroups run
//
// If these overlapped wholly it would take the longest, and if not at all their sum.  The prediction
// is the root of the sum of their squares, between the two: on the H200 it is nearest to what was
// measured (docs/radeon.md).  A step is the sum of its dispatches and of what lies between them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tools/kernel_report/chip.h"
#include "tools/kernel_report/launch_work.h"

namespace tandem::report {

// Seconds that each part of the chip would need by itself.
struct Limits {
  double memory = 0, cache = 0, loop = 0, latency = 0;
  void Add(const Limits& other);
  double Longest() const;
  double Combined() const;  // the root of the sum of their squares
};

struct LaunchTime {
  double seconds = 0;  // without what lies before it
  double before = 0;   // between it and the dispatch before
  std::string
      bound;  // the longest part: "memory", "cache", "matrix unit", "vector unit", "latency", ...
  Limits limits;
};
LaunchTime TimeOf(const LaunchWork& work, const KernelFacts& facts, const Chip& chip);

// All dispatches of one pipeline in a step.
struct KernelTime {
  std::string name;
  uint32_t dispatches = 0;
  double seconds = 0, before = 0;
  LaunchWork work;    // summed
  Limits limits;      // likewise
  std::string bound;  // of most of its time
  std::map<std::string, double> seconds_by_bound;
};

struct StepPrediction {
  std::string name;   // "pp512", "tg@d4096", "tg@d0 b8"
  double tokens = 0;  // a step makes, or reads of a prompt
  double seconds = 0;
  double between = 0;  // of them, between dispatches
  double at_best = 0;  // seconds if the parts of each dispatch overlapped wholly
  double bytes = 0;    // from memory
  double flops = 0;    // of rows that are there
  uint32_t dispatches = 0;
  std::string bound;                // of most of the time
  std::vector<KernelTime> kernels;  // longest first

  double tokens_per_second() const { return seconds > 0 ? tokens / seconds : 0; }
  // What the chip would need if only bytes counted (by its data sheet), or only its matrix units.
  double ByteShare(const Chip& chip) const { return bytes / chip.bandwidth / seconds; }
  double MatrixShare(const Chip& chip) const { return flops / chip.MatrixFlops() / seconds; }
};

// `facts`: by the dispatches' pipelines.
StepPrediction PredictStep(std::string name, double tokens, std::span<const Dispatch> dispatches,
                           const std::vector<KernelFacts>& facts, const StepBatch& step,
                           DType kv_dtype, const Chip& chip);

// Adds a step to what stands for several: a prompt in chunks.
void AddStep(const StepPrediction& step, StepPrediction& sum);

}  // namespace tandem::report
