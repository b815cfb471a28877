// Measures steps of the GPU worker without a cluster: the whole model, read or made in this
// process, is one segment of one worker.  Decoding works as in service: a step is queued while
// another runs, and starts from its speculative tokens.
//
//   gpu_step_bench --model 'synthetic:gemma3-27b?type=q4_0' --cases d1,d8,d32,p2048,d1@8192
//
// Links the libraries of worker and loader but not gRPC, so that it runs on a bare machine with a
// few shared libraries beside it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "services/common/base/cache_folder.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/common/tensor/kv_format.h"
#include "services/gpu_worker/kernels/tuning_settings.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "services/gpu_worker/worker_flags.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/packing/packed_cache.h"
#include "services/loader/packing/packer.h"
#include "tests/bench/picture_load.h"
#include "tests/bench/step_runner.h"

namespace tandem::bench {
namespace {

struct Flags {
  std::string model = "synthetic:gemma3-1b?type=q4_0";
  std::string cases = "d1,d8,p512";
  uint32_t max_rows = 512;
  RunnerOptions runner;
  gpu::GpuWorkerOptions worker;
  std::string packed_cache;  // empty: weights are packed again
  std::string kv_type = "f16";
  std::vector<std::string> settings;
  bool skip_fill = false;
  bool one_by_one = false;
  bool pictures = false;
  bool ceilings = false;
  bool json = false;
};

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void Say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

std::string Speed(uint64_t bytes, double seconds) {
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  return absl::StrFormat("%.2f GB in %.2f s (%.2f GB/s)", gigabytes, seconds, gigabytes / seconds);
}

absl::Status Keep(loader::PackedCache& cache, const loader::PackedName& name,
                  const loader::PackedModel& packed) {
  const Stopwatch watch;
  std::vector<Mapping> regions;
  for (const loader::PackedRegion& region : packed.regions) {
    TANDEM_ASSIGN_OR_RETURN(
        Mapping mapping, Mapping::Map(region.fd.get(), region.bytes, Mapping::Access::kReadOnly));
    regions.push_back(std::move(mapping));
  }
  TANDEM_RETURN_IF_ERROR(cache.Write(name, regions, [] { return true; }));
  Say("kept       " + Speed(cache.contents().bytes, watch.Seconds()));
  return absl::OkStatus();
}

// Packed, or read from the cache, in which what was packed is kept.
absl::StatusOr<loader::PackedModel> ReadOrPack(const loader::ModelSource& source,
                                               const std::string& cache_folder) {
  const loader::PackOptions options;
  TANDEM_ASSIGN_OR_RETURN(
      loader::PackingPlan plan,
      loader::PlanPacking(source.tensors(), source.config(), options.max_region_bytes));
  const uint64_t bytes = plan.packed_bytes;
  const Stopwatch watch;
  if (cache_folder.empty()) {
    TANDEM_ASSIGN_OR_RETURN(auto packed,
                            loader::PackModel(source, std::move(plan), options, nullptr));
    Say("packed     " + Speed(bytes, watch.Seconds()));
    return packed;
  }
  TANDEM_ASSIGN_OR_RETURN(const auto cache, loader::PackedCache::Create({.folder = cache_folder}));
  const loader::PackedName name = loader::NameOf(source.content_id(), plan);
  auto read = cache->Read(name, plan, options.num_threads, nullptr);
  if (read.ok()) Say("read       " + Speed(bytes, watch.Seconds()));
  if (!absl::IsNotFound(read.status())) return read;
  TANDEM_ASSIGN_OR_RETURN(auto packed,
                          loader::PackModel(source, std::move(plan), options, nullptr));
  Say("packed     " + Speed(bytes, watch.Seconds()));
  TANDEM_RETURN_IF_ERROR(Keep(*cache, name, packed));
  return packed;
}

absl::StatusOr<std::shared_ptr<const WeightSet>> MakeWeights(const Flags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const auto source, loader::OpenModelSource(flags.model));
  TANDEM_ASSIGN_OR_RETURN(loader::PackedModel packed, ReadOrPack(*source, flags.packed_cache));
  std::vector<WeightRegion> regions;
  for (loader::PackedRegion& region : packed.regions) {
    TANDEM_ASSIGN_OR_RETURN(
        Mapping mapping, Mapping::Map(region.fd.get(), region.bytes, Mapping::Access::kReadOnly));
    regions.push_back({.fd = std::move(region.fd), .mapping = std::move(mapping)});
  }
  TANDEM_ASSIGN_OR_RETURN(auto weights,
                          WeightSet::Create(source->content_id(), source->config(),
                                            std::move(packed.tensors), std::move(regions)));
  return std::shared_ptr<const WeightSet>(std::move(weights));
}

std::string AsTable(const std::vector<CaseResult>& results) {
  std::vector<std::string> head = {"case",   "steps",   "ms/step",     "slowest",
                                   "tok/s",  "GB/s",    "TFLOP/s",     "device ms",
                                   "busy %", "host us", "hand-over us"};
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    head.emplace_back(std::string(StageKindName(static_cast<StageKind>(kind))) + " ms");
  }
  std::vector<bool> right(head.size(), true);
  right[0] = right[1] = false;
  TextTable table(right);
  table.Add(head);
  for (const CaseResult& result : results) {
    const StepTimes& step = result.median;
    std::vector<std::string> cells = {
        result.step_case.name,
        result.queued ? "queued" : "one by one",
        absl::StrFormat("%.3f", step.wall * 1e3),
        absl::StrFormat("%.3f", result.slowest_wall * 1e3),
        absl::StrFormat("%.1f", result.tokens_per_second),
        absl::StrFormat("%.0f", result.work.bytes() / step.wall * 1e-9),
        absl::StrFormat("%.2f", result.work.flops / step.wall * 1e-12),
        absl::StrFormat("%.3f", step.device * 1e3),
        absl::StrFormat("%.1f", 100 * result.busy),
        absl::StrFormat("%.0f", (step.wall - step.device) * 1e6),
        absl::StrFormat("%.1f", step.hand_over * 1e6)};
    for (const double stage : step.stages) cells.push_back(absl::StrFormat("%.3f", stage * 1e3));
    table.Add(std::move(cells));
  }
  return table.Print();
}

std::string AsJson(const Flags& flags, const std::string& device, double load_seconds,
                   const std::vector<CaseResult>& results) {
  nlohmann::ordered_json json = {
      {"model", flags.model}, {"device", device}, {"load_seconds", load_seconds}};
  for (const CaseResult& result : results) {
    const StepTimes& step = result.median;
    nlohmann::ordered_json stages;
    for (int kind = 0; kind < kNumStageKinds; ++kind) {
      stages[std::string(StageKindName(static_cast<StageKind>(kind)))] =
          step.stages[static_cast<size_t>(kind)];
    }
    json["cases"].push_back({{"case", result.step_case.name},
                             {"queued", result.queued},
                             {"step_seconds", step.wall},
                             {"slowest_step_seconds", result.slowest_wall},
                             {"tokens_per_second", result.tokens_per_second},
                             {"device_seconds", step.device},
                             {"busy", result.busy},
                             {"hand_over_seconds", step.hand_over},
                             {"weight_bytes", result.work.weight_bytes},
                             {"kv_bytes", result.work.kv_bytes},
                             {"flops", result.work.flops},
                             {"stage_seconds", stages}});
  }
  return json.dump(2) + "\n";
}

// What --set asks for: a setting's value, listed for the device or not.
absl::Status Set(const std::string& text, gpu::Tuning& tuning) {
  const size_t equals = text.find('=');
  uint32_t value = 0;
  if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(equals + 1), &value)) {
    return absl::InvalidArgumentError("--set " + text + ": must be NAME=VALUE");
  }
  // The names go by the tuning; of the device only its kind counts.
  vulkan::DeviceInfo info;
  info.type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  info.subgroup_size = tuning.subgroup_size;
  info.max_workgroup_invocations = 1024;
  for (const gpu::TuningSetting& setting : gpu::TuningSettings(info, tuning)) {
    if (setting.name != text.substr(0, equals)) continue;
    setting.of(tuning) = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("--set " + text + ": no such setting on this device");
}

absl::Status Run(Flags flags) {
  absl::Status set = absl::OkStatus();
  flags.worker.adjust_tuning = [&](gpu::Tuning& tuning) {
    for (const std::string& text : flags.settings) set.Update(Set(text, tuning));
  };
  TANDEM_ASSIGN_OR_RETURN(const std::vector<StepCase> cases, ParseCases(flags.cases));
  for (const StepCase& step_case : cases) {
    if (step_case.is_prompt || step_case.Outputs() <= flags.max_rows) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("case %s: more rows than --max-rows, %d", step_case.name, flags.max_rows));
  }
  flags.worker.max_rows = flags.max_rows;
  flags.runner.fill = !flags.skip_fill;
  // First: without a device there is nothing to make a model for.
  TANDEM_ASSIGN_OR_RETURN(const auto worker, gpu::GpuWorker::Create(flags.worker));
  TANDEM_RETURN_IF_ERROR(set);
  flags.runner.queue_steps = !flags.one_by_one && worker->description().feeds_steps;
  Say("device     " + worker->description().device);
  if (flags.ceilings) {
    TANDEM_ASSIGN_OR_RETURN(const DeviceCeilings ceilings, worker->Ceilings());
    Say(absl::StrFormat(
        "ceilings   reads %.0f GB/s, float32 %.2f TFLOP/s, matrix units %.1f TFLOP/s",
        ceilings.read_bytes_per_second * 1e-9, ceilings.fma_flops_per_second * 1e-12,
        ceilings.matrix_flops_per_second * 1e-12));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto weights, MakeWeights(flags));
  const Stopwatch watch;
  testing::RunLimits limits =
      LimitsFor(weights->config(), cases, flags.max_rows, flags.runner.tokens);
  if (flags.runner.queue_steps) limits.num_lanes = 2;
  TANDEM_ASSIGN_OR_RETURN(limits.kv_dtype, ParseKvDType(flags.kv_type));
  TANDEM_ASSIGN_OR_RETURN(const auto runner, testing::PlanRunner::Create(
                                                 weights, {worker.get()},
                                                 testing::WholeModel(weights->config()), limits));
  const double load_seconds = watch.Seconds();
  const LoadReport& report = runner->load_reports()[0];
  Say(absl::StrFormat("load       %.2f GB of weights (%s), %.2f GB of KV, ready in %.2f s",
                      report.weight_bytes * 1e-9, std::string(ImportPathName(report.weight_import)),
                      report.kv_bytes * 1e-9, load_seconds));
  Say("tuning     " + report.tuning);
  std::unique_ptr<PictureLoad> pictures;
  if (flags.pictures) {
    TANDEM_ASSIGN_OR_RETURN(pictures, PictureLoad::Create(*worker, kGemma3Vision));
    flags.runner.after_step = [&] { return pictures->Feed(); };
  }
  StepRunner steps(*runner, *weights, flags.runner);
  std::vector<CaseResult> results;
  for (const StepCase& step_case : cases) {
    const Stopwatch of_case;
    const uint64_t encoded = pictures == nullptr ? 0 : pictures->num_encoded();
    TANDEM_ASSIGN_OR_RETURN(CaseResult result, steps.Measure(step_case));
    Say(absl::StrFormat("%-10s %.1f tok/s", step_case.name, result.tokens_per_second));
    if (pictures != nullptr) {
      const auto more = static_cast<double>(pictures->num_encoded() - encoded);
      Say(absl::StrFormat("%-10s %.1f pictures/s beside it", "", more / of_case.Seconds()));
    }
    results.push_back(std::move(result));
  }
  const std::string text = flags.json
                               ? AsJson(flags, worker->description().device, load_seconds, results)
                               : AsTable(results);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::Flags flags;
  flags.worker.cache_folder = tandem::DefaultCacheFolder();
  CLI::App app("Measures steps of the GPU worker with a whole model.");
  app.add_option("--model", flags.model, "A synthetic name, a GGUF file or a safetensors folder")
      ->capture_default_str();
  app.add_option(
         "--cases", flags.cases,
         "d8 (8 sequences decode), d8x4 (4 rows of each), p2048 (a prompt), all with @DEPTH")
      ->capture_default_str();
  app.add_option("--max-rows", flags.max_rows, "Rows in a step; prompts are cut to it")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  app.add_option("--tokens", flags.runner.tokens, "Steps of a decoding case")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  app.add_option("--repetitions", flags.runner.repetitions, "Of prompts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--candidates", flags.runner.candidates, "That the head reports for an output")
      ->check(CLI::Range(1u, tandem::kMaxCandidates))
      ->capture_default_str();
  app.add_option("--kv-type", flags.kv_type, "Numbers of the KV cache: f16 or q8_0")
      ->capture_default_str();
  app.add_flag("--skip-fill", flags.skip_fill,
               "Do not compute the positions before a depth: attention then reads old values");
  app.add_flag("--one-by-one", flags.one_by_one,
               "Decode a step when the host has read the one before, not behind it while it runs");
  app.add_flag("--pictures", flags.pictures,
               "Encode pictures meanwhile, with a random encoder of Gemma 3's shape");
  app.add_option("--device", flags.worker.device, "Vulkan device: index or part of its name");
  app.add_option("--cache", flags.worker.cache_folder, "Folder for compiled pipelines")
      ->capture_default_str();
  app.add_option("--packed-cache", flags.packed_cache,
                 "Folder to read packed weights from, or to keep them in: measures second starts");
  tandem::gpu::AddTuneFlags(app, flags.worker);
  tandem::gpu::AddPollFlag(app, flags.worker);
  tandem::gpu::AddSubmissionFlag(app, flags.worker);
  app.add_option("--set", flags.settings, "NAME=VALUE: a setting of docs/tuning.md");
  app.add_flag("--ceilings", flags.ceilings, "Also measure what the device does at best");
  app.add_flag("--json", flags.json, "Print JSON");
  CLI11_PARSE(app, argc, argv);
  tandem::InitLogging("gpu_step_bench");
  const absl::Status status = tandem::bench::Run(std::move(flags));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
