#include "tools/kernel_report/prediction.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::report {
namespace {

template <typename Times>
std::string LongestOf(const Times& seconds_by_bound) {
  std::string bound;
  double most = -1;
  for (const auto& [name, seconds] : seconds_by_bound) {
    if (seconds > most) {
      most = seconds;
      bound = name;
    }
  }
  return bound;
}

// Of a kernel with a main loop.
double LoopSeconds(const LaunchWork& work, const KernelFacts& facts, const Chip& chip) {
  const double passes = work.macs / facts.assembly.loop.macs;  // of all subgroups together
  const double simds = chip.processors * chip.simds;
  const double subgroups = std::max(1.0, work.subgroups);
  // Whole subgroups a SIMD: the fullest ends last.
  const double a_simd = std::ceil(subgroups / simds);
  const double passes_of_one = passes / subgroups;
  const double resident = std::clamp<double>(a_simd, 1, std::max(1u, facts.waves_per_simd));
  // A pass asks memory for what the next one needs.
  const bool reads = facts.assembly.loop.vector_loads > 0;
  const double latency = reads ? chip.memory_latency * chip.clock_hz : 0;
  const double clocks = std::max(facts.loop.most(), latency / resident);
  return passes_of_one * a_simd * clocks / chip.clock_hz;
}

double LatencySeconds(const LaunchWork& work, const KernelFacts& facts, const Chip& chip) {
  const double simds = chip.processors * chip.simds;
  const double rounds = std::ceil(work.subgroups / (simds * std::max(1u, facts.waves_per_simd)));
  return rounds * static_cast<double>(facts.latency) / chip.clock_hz;
}

}  // namespace

void Limits::Add(const Limits& other) {
  memory += other.memory;
  cache += other.cache;
  loop += other.loop;
  latency += other.latency;
}

double Limits::Longest() const { return std::max({memory, cache, loop, latency}); }

double Limits::Combined() const {
  return std::sqrt(memory * memory + cache * cache + loop * loop + latency * latency);
}

LaunchTime TimeOf(const LaunchWork& work, const KernelFacts& facts, const Chip& chip) {
  LaunchTime time;
  if (work.is_phase) time.before = work.is_counted ? chip.counter_seconds : chip.barrier_seconds;
  const double spilled_over =
      work.activation_bytes > static_cast<double>(chip.cache_bytes) ? work.activation_bytes : 0;
  Limits& limits = time.limits;
  limits.memory = (work.weight_bytes + work.kv_bytes + spilled_over) / chip.ReadBandwidth();
  limits.cache = (work.cache_bytes + work.activation_bytes) / chip.cache_bandwidth;
  const bool has_loop = facts.compiled && facts.assembly.loop.macs > 0 && work.macs > 0;
  if (has_loop) {
    limits.loop = LoopSeconds(work, facts, chip);
  } else if (facts.compiled && work.subgroups > 0) {
    limits.latency = LatencySeconds(work, facts, chip);
  }
  const std::string_view loop_bound = has_loop ? facts.loop.bound() : "";
  double longest = 0;
  for (const auto& [seconds, bound] : {std::pair{limits.memory, std::string_view("memory")},
                                       {limits.cache, "cache"},
                                       {limits.loop, loop_bound},
                                       {limits.latency, "latency"}}) {
    if (seconds <= longest) continue;
    longest = seconds;
    time.bound = bound;
  }
  time.seconds = limits.Combined();
  return time;
}

StepPrediction PredictStep(std::string name, double tokens, std::span<const Dispatch> dispatches,
                           const std::vector<KernelFacts>& facts, const StepBatch& step,
                           DType kv_dtype, const Chip& chip) {
  StepPrediction prediction{.name = std::move(name), .tokens = tokens};
  std::map<size_t, KernelTime> kernels;
  std::map<std::string, double> bounds;
  for (const Dispatch& dispatch : dispatches) {
    const KernelFacts& known = facts.at(dispatch.pipeline);
    const LaunchWork work = WorkOf(dispatch, known, step, kv_dtype);
    const LaunchTime time = TimeOf(work, known, chip);
    KernelTime& kernel = kernels[dispatch.pipeline];
    kernel.name = known.name;
    ++kernel.dispatches;
    kernel.seconds += time.seconds;
    kernel.before += time.before;
    kernel.seconds_by_bound[time.bound] += time.seconds;
    kernel.limits.Add(time.limits);
    kernel.work.macs += work.macs;
    kernel.work.weight_bytes += work.weight_bytes;
    kernel.work.kv_bytes += work.kv_bytes;
    kernel.work.useful_flops += work.useful_flops;
    bounds[time.bound] += time.seconds;
    bounds["between dispatches"] += time.before;
    prediction.seconds += time.seconds + time.before;
    prediction.between += time.before;
    prediction.at_best += time.limits.Longest() + time.before;
    prediction.bytes += work.weight_bytes + work.kv_bytes;
    prediction.flops += work.useful_flops;
    ++prediction.dispatches;
  }
  prediction.bound = LongestOf(bounds);
  for (auto& [pipeline, kernel] : kernels) {
    kernel.bound = LongestOf(kernel.seconds_by_bound);
    prediction.kernels.push_back(std::move(kernel));
  }
  std::ranges::sort(prediction.kernels, [](const KernelTime& a, const KernelTime& b) {
    return a.seconds + a.before > b.seconds + b.before;
  });
  return prediction;
}

void AddStep(const StepPrediction& step, StepPrediction& sum) {
  const bool longer = step.seconds >= sum.seconds;
  sum.tokens += step.tokens;
  sum.seconds += step.seconds;
  sum.between += step.between;
  sum.at_best += step.at_best;
  sum.bytes += step.bytes;
  sum.flops += step.flops;
  sum.dispatches += step.dispatches;
  if (!longer) return;
  sum.bound = step.bound;
  sum.kernels = step.kernels;
}

}  // namespace tandem::report
