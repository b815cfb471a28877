#include "tools/kernel_report/chip.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace tandem::report {
namespace {

// RDNA 3's SIMDs, as Mesa's compiler counts them (src/amd/compiler/aco_statistics.cpp): a WMMA of
// 16 x 16 x 16 takes 32 clocks, transcendentals and 32-bit products four.  A CU reads 128 bytes of
// LDS and of its L0 in a clock, for two SIMDs.
constexpr InstructionCosts kRdna3 = {};
// Hopper's quarters of a multiprocessor: half rate for integers and byte products, 16 lanes of
// MUFU... one in 8 clocks is not used by the kernels' loops.  A matrix takes 10.6 clocks at the 790
// TFLOP/s that the small kernel of ceilings.h measured.
constexpr InstructionCosts kHopper = {.vector = 1,
                                      .integer = 2,
                                      .dot = 2,
                                      .multiply = 2,
                                      .transcendental = 2,
                                      .matrix = 10.8,
                                      .lds_bytes = 32,
                                      .vmem_bytes = 16};

constexpr uint64_t kMiB = 1 << 20;

constexpr Chip kChips[] = {
    {.name = "phoenix",
     .title = "Radeon 780M",
     .family = "phoenix",
     .processors = 12,
     .clock_hz = 2.7e9,
     .lds_bytes = 64 << 10,
     .cache_bytes = 2 * kMiB,
     .cache_bandwidth = 700e9,
     .bandwidth = 89.6e9,
     .bandwidth_share = 0.85,
     .counter_seconds = 4e-6,
     .barrier_seconds = 4e-6,
     .memory_latency = 600e-9,
     .costs = kRdna3,
     .source =
         "AMD's data sheet of the Ryzen 7 8840HS, DDR5-5600; the share of the bandwidth, the L2's "
         "bandwidth, the time between dispatches and the latency are assumed"},
    {.name = "gfx1150",
     .title = "Radeon 890M",
     .family = "gfx1150",
     .processors = 16,
     .clock_hz = 2.9e9,
     .lds_bytes = 64 << 10,
     .cache_bytes = 2 * kMiB,
     .cache_bandwidth = 1000e9,
     .bandwidth = 120e9,
     .bandwidth_share = 0.85,
     .counter_seconds = 4e-6,
     .barrier_seconds = 4e-6,
     .memory_latency = 600e-9,
     .costs = kRdna3,
     .source = "AMD's data sheet of the Ryzen AI 9 HX 370, LPDDR5X-7500; the share of the "
               "bandwidth, the L2's bandwidth, the time between dispatches and the latency are "
               "assumed"},
    {.name = "gfx1151",
     .title = "Radeon 8060S",
     .family = "gfx1151",
     .processors = 40,
     .clock_hz = 2.9e9,
     .lds_bytes = 64 << 10,
     .cache_bytes = 32 * kMiB,
     .cache_bandwidth = 1000e9,
     .bandwidth = 256e9,
     .bandwidth_share = 0.84,
     .counter_seconds = 4e-6,
     .barrier_seconds = 4e-6,
     .memory_latency = 700e-9,
     .costs = kRdna3,
     .source = "AMD's data sheet of the Ryzen AI Max+ 395, LPDDR5X-8000; the share of the "
               "bandwidth is what llama.cpp's users report; the infinity cache's bandwidth, the "
               "time between dispatches and the latency are assumed"},
    {.name = "h200",
     .title = "NVIDIA H200",
     .family = "gfx1151",
     .own_compiler = false,
     .device_name = "NVIDIA H200",
     .processors = 132,
     .simds = 4,
     .clock_hz = 1.98e9,
     .lds_bytes = 227 << 10,
     .cache_bytes = 50 * kMiB,
     .cache_bandwidth = 5.5e12,
     .bandwidth = 4.8e12,
     .bandwidth_share = 4.53 / 4.8,
     .counter_seconds = 1.4e-6,
     .barrier_seconds = 3.6e-6,
     .memory_latency = 700e-9,
     .costs = kHopper,
     .source = "4.53 TB/s and 790 TFLOP/s: docs/performance.md; 1.4 us between phases and 3.6 us "
               "with barriers: docs/radeon.md; the instructions are AMD's compiler's for the "
               "8060S"},
};

}  // namespace

std::span<const Chip> AllChips() { return kChips; }

std::string ChipNames() {
  std::string names;
  for (const Chip& chip : kChips) {
    names += absl::StrFormat("%s%s (%s)", names.empty() ? "" : ", ", std::string(chip.name),
                             std::string(chip.title));
  }
  return names;
}

absl::StatusOr<Chip> FindChip(std::string_view name) {
  const std::string wanted = absl::AsciiStrToLower(std::string(name));
  for (const Chip& chip : kChips) {
    const std::string title = absl::AsciiStrToLower(std::string(chip.title));
    const std::vector<std::string> words = absl::StrSplit(title, ' ');
    if (wanted == chip.name || wanted == title || std::ranges::count(words, wanted) > 0) {
      return chip;
    }
  }
  return absl::NotFoundError(
      absl::StrFormat("chip \"%s\": there are %s", std::string(name), ChipNames()));
}

}  // namespace tandem::report
