// Measures the vision encoder of the GPU worker without a cluster, with random weights.
//
//   vision_bench --type bf16 --pictures 1,4
//
// Links neither gRPC nor the loader, so that it runs on a bare machine with a few shared libraries
// beside it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/cache_folder.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/worker/stage_work.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "services/gpu_worker/worker_flags.h"
#include "tests/bench/picture_load.h"

namespace tandem::bench {
namespace {

struct Flags {
  VisionConfig vision = kGemma3Vision;
  std::string type = "f16";
  std::vector<uint32_t> pictures = {1, 4};
  int repetitions = 5;
  gpu::GpuWorkerOptions worker;
};

struct Case {
  uint32_t pictures = 0;
  double wall = 0, device = 0;  // seconds of the median step
};

absl::StatusOr<Case> Measure(testing::PlanRunner& runner, const VisionConfig& vision,
                             uint32_t pictures, int repetitions) {
  std::vector<PictureEntry> entries;
  std::vector<Case> runs;
  for (int r = 0; r < repetitions; ++r) {
    TANDEM_RETURN_IF_ERROR(runner.WriteAndCheckStep(
        PicturesStep(vision, pictures, static_cast<uint64_t>(r) + 1, entries)));
    const auto start = std::chrono::steady_clock::now();
    TANDEM_ASSIGN_OR_RETURN(const SegmentResult result, runner.RunSegment(0));
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    runs.push_back({pictures, wall.count(), 1e-9 * static_cast<double>(result.device_ns)});
  }
  std::ranges::sort(runs, {}, &Case::wall);
  return runs[runs.size() / 2];
}

absl::StatusOr<DType> ParseType(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (Traits(static_cast<DType>(i)).name == name) return static_cast<DType>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("--type %s: must be f32, f16, bf16 or q8_0", name));
}

absl::Status Run(Flags flags) {
  TANDEM_ASSIGN_OR_RETURN(const auto worker, gpu::GpuWorker::Create(flags.worker));
  std::fprintf(stderr, "device     %s\n", worker->description().device.c_str());
  TANDEM_ASSIGN_OR_RETURN(const DType dtype, ParseType(flags.type));
  const uint32_t most = *std::ranges::max_element(flags.pictures);
  TANDEM_ASSIGN_OR_RETURN(const Vision loaded,
                          LoadRandomVision(*worker, flags.vision, dtype, /*plan=*/0, most));
  TANDEM_ASSIGN_OR_RETURN(const DeviceCeilings ceilings, worker->Ceilings());
  const double ceiling = std::max(ceilings.matrix_flops_per_second, ceilings.fma_flops_per_second);
  TextTable table({true, true, true, true, true, true});
  table.Add({"pictures", "ms", "device ms", "images/s", "TFLOP/s", "% of the ceiling"});
  const WeightSet& weights = *loaded.weights;
  const SegmentCosts costs(testing::VisionPlan(weights.config())[0], weights, DType::kF16);
  for (const uint32_t pictures : flags.pictures) {
    TANDEM_ASSIGN_OR_RETURN(const Case run,
                            Measure(*loaded.runner, flags.vision, pictures, flags.repetitions));
    std::vector<PictureEntry> entries(pictures);
    StepBatch step;
    step.pictures = entries;
    double operations = 0;
    for (const StageWork& work : costs.Of(step)) operations += static_cast<double>(work.operations);
    table.Add({absl::StrFormat("%d", pictures), absl::StrFormat("%.2f", 1e3 * run.wall),
               absl::StrFormat("%.2f", 1e3 * run.device),
               absl::StrFormat("%.1f", pictures / run.wall),
               absl::StrFormat("%.1f", 1e-12 * operations / run.wall),
               absl::StrFormat("%.0f", 100 * operations / run.wall / ceiling)});
  }
  std::fputs(table.Print().c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::Flags flags;
  flags.worker.cache_folder = tandem::DefaultCacheFolder();
  CLI::App app("Measures the vision encoder of the GPU worker.");
  app.add_option("--type", flags.type, "Format of the weights: f32, f16, bf16 or q8_0")
      ->capture_default_str();
  app.add_option("--pictures", flags.pictures, "Of a step")->delimiter(',')->capture_default_str();
  app.add_option("--image-size", flags.vision.image_size, "Pixels of a side")
      ->capture_default_str();
  app.add_option("--layers", flags.vision.num_layers, "Of the encoder")->capture_default_str();
  app.add_option("--tokens", flags.vision.tokens_per_image, "Soft tokens of a picture")
      ->capture_default_str();
  app.add_option("--repetitions", flags.repetitions, "The median of so many counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--device", flags.worker.device, "Vulkan device: index or part of its name");
  app.add_option("--cache", flags.worker.cache_folder, "Folder for compiled pipelines")
      ->capture_default_str();
  tandem::gpu::AddPollFlag(app, flags.worker);
  CLI11_PARSE(app, argc, argv);
  tandem::InitLogging("vision_bench");
  const absl::Status status = tandem::bench::Run(std::move(flags));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
