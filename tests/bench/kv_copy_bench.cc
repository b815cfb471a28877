// Measures copies of KV blocks between the GPU worker's cache and the exchange region, as replicas hand them over.
//
//   kv_copy_bench --kv-heads 16 --head-dim 128
//
// Links neither gRPC nor the loader, as vision_bench.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/cache_folder.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/common/step/kv_copy.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker.h"

namespace tandem::bench {
namespace {

struct Flags {
  testing::SmallModel model = {.num_layers = 2,
                               .num_heads = 16,
                               .num_kv_heads = 16,
                               .head_dim = 128,
                               .context_len = 32768,
                               .global_every = 1};
  uint64_t area_mib = 16;
  int repetitions = 50;
  gpu::GpuWorkerOptions worker;
};

// GB/s of the median copy that fills the area, each of other blocks than the one before.
absl::StatusOr<double> Measure(testing::PlanRunner& runner, bool write, int repetitions) {
  const KvCopyLayout layout(runner.config(), runner.limits());
  const uint32_t num_blocks = runner.limits().num_blocks[kGlobalGroup];
  const auto count =
      static_cast<uint32_t>(runner.limits().kv_area_bytes / layout.BlockBytes(kGlobalGroup));
  if (count == 0 || 2 * count > num_blocks) {
    return absl::InvalidArgumentError("--area-mib: less than a block, or more than half the cache");
  }
  std::vector<double> seconds;
  for (int r = 0; r < repetitions; ++r) {
    std::vector<uint32_t> blocks(count);
    std::iota(blocks.begin(), blocks.end(), r % (num_blocks / count) * count);
    const auto start = std::chrono::steady_clock::now();
    TANDEM_RETURN_IF_ERROR(runner.CopyKv({.write = write, .blocks = {blocks, {}}}));
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(seconds);
  return 1e-9 * static_cast<double>(count * layout.BlockBytes(kGlobalGroup)) /
         seconds[seconds.size() / 2];
}

absl::Status Run(const Flags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const auto worker, gpu::GpuWorker::Create(flags.worker));
  std::fprintf(stderr, "device     %s\n", worker->description().device.c_str());
  const auto weights = testing::RandomWeightSet(testing::MakeConfig(flags.model));
  TANDEM_ASSIGN_OR_RETURN(
      const auto runner,
      testing::PlanRunner::Create(weights, {worker.get()}, testing::WholeModel(weights->config()),
                                  {.max_sequences = 1, .kv_area_bytes = flags.area_mib << 20}));
  TextTable table({false, true});
  table.Add({"copy", "GB/s"});
  for (const bool write : {false, true}) {
    TANDEM_ASSIGN_OR_RETURN(const double rate, Measure(*runner, write, flags.repetitions));
    table.Add({write ? "into the cache" : "out of the cache", absl::StrFormat("%.1f", rate)});
  }
  std::fputs(table.Print().c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::Flags flags;
  flags.worker.cache_folder = tandem::DefaultCacheFolder();
  CLI::App app("Measures copies of KV blocks of the GPU worker.");
  app.add_option("--kv-heads", flags.model.num_kv_heads, "Of a layer")->capture_default_str();
  app.add_option("--head-dim", flags.model.head_dim, "Of the cache")->capture_default_str();
  app.add_option("--area-mib", flags.area_mib, "Of a copy")->capture_default_str();
  app.add_option("--repetitions", flags.repetitions, "The median of so many counts")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--device", flags.worker.device, "Vulkan device: index or part of its name");
  app.add_option("--cache", flags.worker.cache_folder, "Folder for compiled pipelines")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  flags.model.num_heads = flags.model.num_kv_heads;
  tandem::InitLogging("kv_copy_bench");
  const absl::Status status = tandem::bench::Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
