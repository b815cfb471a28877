#include "tools/kernel_report/report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/tuning_settings.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "tools/kernel_report/constant_names.h"
#include "tools/kernel_report/null_driver.h"

namespace tandem::report {
namespace {

absl::Status Set(const std::string& text, gpu::Tuning& tuning) {
  const size_t equals = text.find('=');
  uint32_t value = 0;
  if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(equals + 1), &value)) {
    return absl::InvalidArgumentError(absl::StrFormat("--set %s: write NAME=VALUE", text));
  }
  vulkan::DeviceInfo info;
  info.type = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  info.subgroup_size = tuning.subgroup_size;
  info.max_workgroup_invocations = 1024;
  std::string known;
  for (const gpu::TuningSetting& setting : gpu::TuningSettings(info, tuning)) {
    if (setting.name == text.substr(0, equals)) {
      setting.of(tuning) = value;
      return absl::OkStatus();
    }
    known += (known.empty() ? "" : ", ") + setting.name;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("--set %s: the settings of this chip are %s", text, known));
}

class Predictor {
 public:
  Predictor(const ReportRequest& request, const ModelLoad& load, gpu::GpuWorker& worker)
      : chip_(request.chip), limits_(load.limits), kv_dtype_(load.kv.dtype), worker_(worker) {}

  absl::StatusOr<StepPrediction> Predict(std::string name, double tokens, uint32_t sequences,
                                         uint32_t rows, uint32_t depth) {
    const PlannedStep step(limits_, sequences, rows, depth);
    const StepBatch batch = step.batch();
    TANDEM_RETURN_IF_ERROR(worker_.Submit({.step = &batch, .first_of_step = true}));
    TANDEM_RETURN_IF_ERROR(worker_.Wait(0).status());
    const NullDriver& driver = NullDriver::Get();
    std::vector<KernelFacts> facts;
    for (const CompiledPipeline& pipeline : driver.pipelines()) {
      TANDEM_ASSIGN_OR_RETURN(facts.emplace_back(), FactsOf(pipeline, chip_));
    }
    return PredictStep(std::move(name), tokens, driver.submitted(), facts, batch, kv_dtype_, chip_);
  }

  // A prompt in chunks of the step's rows.
  absl::StatusOr<StepPrediction> PredictPrompt(uint32_t tokens) {
    StepPrediction sum{.name = absl::StrFormat("pp%d", tokens)};
    for (uint32_t at = 0; at < tokens; at += limits_.max_rows) {
      const uint32_t rows = std::min(limits_.max_rows, tokens - at);
      TANDEM_ASSIGN_OR_RETURN(const StepPrediction step, Predict(sum.name, rows, 1, rows, at));
      AddStep(step, sum);
    }
    return sum;
  }

 private:
  const Chip& chip_;
  const StepLimits limits_;
  const DType kv_dtype_;
  gpu::GpuWorker& worker_;
};

absl::Status PredictAll(const ReportRequest& request, Predictor& predictor, ModelReport& report) {
  for (const uint32_t prompt : request.prompts) {
    if (prompt == 0) continue;
    TANDEM_ASSIGN_OR_RETURN(report.steps.emplace_back(), predictor.PredictPrompt(prompt));
  }
  for (const uint32_t depth : request.depths) {
    for (const uint32_t batch : request.batches) {
      std::string name = depth == 0 ? "tg" : absl::StrFormat("tg@d%d", depth);
      if (batch > 1) name += absl::StrFormat(" b%d", batch);
      TANDEM_ASSIGN_OR_RETURN(report.steps.emplace_back(),
                              predictor.Predict(std::move(name), batch, batch, 1, depth));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ModelRequest Widen(const ReportRequest& request) {
  constexpr uint32_t kContext = 8192, kSequences = 8, kLeastContext = 512;
  ModelRequest model = request.model;
  uint32_t positions = kLeastContext;
  for (const uint32_t prompt : request.prompts) positions = std::max(positions, prompt);
  for (const uint32_t depth : request.depths) positions = std::max(positions, depth + 1);
  for (const uint32_t batch : request.batches) {
    model.max_sequences = std::max(model.max_sequences, batch);
  }
  const uint32_t shared = kContext * kSequences / std::max(kSequences, model.max_sequences);
  model.context_len = std::max({model.context_len, positions, shared});
  return model;
}

absl::StatusOr<ModelReport> MakeReport(const ReportRequest& request, const std::string& radv) {
  NullDriver& driver = NullDriver::Get();
  TANDEM_RETURN_IF_ERROR(driver.Open(request.chip, radv));
  TANDEM_ASSIGN_OR_RETURN(const ModelLoad load, PlanModel(Widen(request)));
  absl::Status set = absl::OkStatus();
  gpu::GpuWorkerOptions options{.max_rows = load.limits.max_rows,
                                .tune = gpu::TuneMode::kOff,
                                .longest_submission = absl::ZeroDuration()};
  options.adjust_tuning = [&](gpu::Tuning& tuning) {
    for (const std::string& text : request.settings) set.Update(Set(text, tuning));
  };
  TANDEM_ASSIGN_OR_RETURN(const auto worker, gpu::GpuWorker::Create(std::move(options)));
  TANDEM_RETURN_IF_ERROR(set);
  TANDEM_ASSIGN_OR_RETURN(const LoadReport loaded,
                          worker->Load(load, [](double, std::string_view) {}));
  ModelReport report{.chip = request.chip,
                     .model = request.model.model,
                     .device = worker->description().device,
                     .driver = driver.version(),
                     .tuning = loaded.tuning,
                     .max_rows = load.limits.max_rows};
  for (const CompiledPipeline& pipeline : driver.pipelines()) {
    if (pipeline.dispatches == 0) continue;
    TANDEM_ASSIGN_OR_RETURN(report.kernels.emplace_back(), FactsOf(pipeline, request.chip));
  }
  std::ranges::sort(report.kernels, {}, &KernelFacts::name);
  Predictor predictor(request, load, *worker);
  TANDEM_RETURN_IF_ERROR(PredictAll(request, predictor, report));
  return report;
}

absl::StatusOr<std::vector<ValidatedStep>> Validate(const Measurements& measurements,
                                                    const std::vector<std::string>& settings,
                                                    const std::string& radv) {
  ReportRequest request{.settings = settings};
  TANDEM_ASSIGN_OR_RETURN(request.chip, FindChip(measurements.chip));
  std::vector<ValidatedStep> steps;
  // A load for the neighbours of one model, step size and depth: kernels take seconds to compile.
  for (size_t begin = 0, end = 0; begin < measurements.steps.size(); begin = end) {
    const MeasuredStep& first = measurements.steps[begin];
    request.model = {.model = first.model, .max_rows = first.max_rows};
    request.prompts = request.batches = {};
    request.depths = {first.depth};
    for (end = begin; end < measurements.steps.size(); ++end) {
      const MeasuredStep& step = measurements.steps[end];
      const bool alike =
          step.model == first.model && step.max_rows == first.max_rows && step.depth == first.depth;
      if (!alike) break;
      if (step.prompt > 0) request.prompts.push_back(step.prompt);
      if (step.prompt == 0) request.batches.push_back(step.batch);
    }
    TANDEM_ASSIGN_OR_RETURN(const ModelReport report, MakeReport(request, radv));
    for (size_t i = begin; i < end; ++i) {
      const MeasuredStep& step = measurements.steps[i];
      const auto predicted = std::ranges::find(report.steps, step.Name(), &StepPrediction::name);
      if (predicted == report.steps.end()) {
        return absl::InternalError(absl::StrFormat("%s: not predicted", step.Name()));
      }
      steps.push_back({step, *predicted});
    }
  }
  return steps;
}

std::string AssemblyOf(const std::string& part) {
  std::string text;
  for (const CompiledPipeline& pipeline : NullDriver::Get().pipelines()) {
    const std::string name = PipelineName(pipeline.kernel, pipeline.constants);
    if (name.find(part) == std::string::npos) continue;
    text += absl::StrFormat("%s\n%s\n", name, pipeline.assembly);
  }
  return text;
}

std::vector<std::string> MainModels() {
  return {"synthetic:gemma3-27b?type=q4_0", "synthetic:gemma3-4b?type=q4_k_m",
          "synthetic:gemma3-1b?type=q8_0", "synthetic:gemma3-270m?type=f16"};
}

std::vector<std::string> AllModels() {
  std::vector<std::string> models;
  for (const char* size : {"270m", "1b", "4b", "12b", "27b"}) {
    for (const char* type : {"q4_0", "q4_k", "q6_k", "q8_0", "f16"}) {
      models.push_back(absl::StrFormat("synthetic:gemma3-%s?type=%s", size, type));
    }
  }
  return models;
}

}  // namespace tandem::report
