#include "tools/kernel_report/submissions.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "tools/kernel_report/null_driver.h"

namespace tandem::report {
namespace {

template <typename Entry>
std::span<const Entry> Entries(std::span<const std::byte>& bytes, uint32_t count) {
  const std::span<const Entry> entries(reinterpret_cast<const Entry*>(bytes.data()), count);
  bytes = bytes.subspan(count * sizeof(Entry));
  return entries;
}

// The step that a dispatch reads its rows from, in the worker's memory: all push constants begin
// with its address or that of a count in its header.  Empty where there is none.
StepBatch StepOf(const Dispatch& dispatch) {
  uint64_t address = 0;
  std::memcpy(&address, dispatch.push.data(), sizeof(address));
  address -= address % sizeof(StepHeader);
  StepBatch step = {};
  const auto header = NullDriver::Mapped(address, sizeof(StepHeader));
  if (header.empty()) return step;
  std::memcpy(&step.header, header.data(), sizeof(StepHeader));
  if (step.header.magic != kStepMagic) return {};
  std::span<const std::byte> bytes = NullDriver::Mapped(address, StepBytes(step.header));
  if (bytes.empty() || step.header.num_sequences == 0) return step;
  bytes = bytes.subspan(sizeof(StepHeader));
  step.rows = Entries<RowEntry>(bytes, step.header.num_rows);
  step.sequences = Entries<SequenceEntry>(bytes, step.header.num_sequences);
  step.outputs = Entries<OutputEntry>(bytes, step.header.num_outputs);
  return step;
}

class PredictedClock {
 public:
  PredictedClock(const Chip& chip, DType kv_dtype) : chip_(chip), kv_dtype_(kv_dtype) {}

  double operator()(const Dispatch& dispatch) {
    const auto& pipelines = NullDriver::Get().pipelines();
    for (size_t i = facts_.size(); i < pipelines.size(); ++i) {
      auto facts = FactsOf(pipelines[i], chip_);
      status_.Update(facts.status());
      facts_.push_back(facts.ok() ? *std::move(facts) : KernelFacts{});
    }
    const KernelFacts& facts = facts_[dispatch.pipeline];
    const LaunchTime time =
        TimeOf(WorkOf(dispatch, facts, StepOf(dispatch), kv_dtype_), facts, chip_);
    return time.before + time.seconds;
  }
  const absl::Status& status() const { return status_; }

 private:
  const Chip& chip_;
  const DType kv_dtype_;
  std::vector<KernelFacts> facts_;  // by pipeline
  absl::Status status_;
};

SubmittedStep StepOfSubmissions(std::string name) {
  const std::vector<double> seconds = NullDriver::Get().TakeSubmissions();
  SubmittedStep step = {.name = std::move(name),
                        .submissions = static_cast<uint32_t>(seconds.size()),
                        .seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0)};
  for (const double one : seconds) step.longest = std::max(step.longest, one);
  return step;
}

}  // namespace

double SubmissionReport::Longest() const {
  double longest = longest_at_load;
  for (const SubmittedStep& step : steps) longest = std::max(longest, step.longest);
  return longest;
}

absl::StatusOr<SubmissionReport> TimeSubmissions(const ReportRequest& request,
                                                 absl::Duration longest, const std::string& radv) {
  NullDriver& driver = NullDriver::Get();
  TANDEM_RETURN_IF_ERROR(driver.Open(request.chip, radv));
  TANDEM_ASSIGN_OR_RETURN(const ModelLoad load, PlanModel(Widen(request)));
  PredictedClock clock(request.chip, load.kv.dtype);
  driver.SetClock(std::ref(clock));
  TANDEM_ASSIGN_OR_RETURN(const auto worker,
                          gpu::GpuWorker::Create({.max_rows = load.limits.max_rows,
                                                  .tune = gpu::TuneMode::kOff,
                                                  .longest_submission = longest}));
  TANDEM_RETURN_IF_ERROR(worker->Load(load, [](double, std::string_view) {}).status());
  const SubmittedStep at_load = StepOfSubmissions("load");
  SubmissionReport report = {.model = request.model.model,
                             .chip = std::string(request.chip.title),
                             .at_load = at_load.submissions,
                             .longest_at_load = at_load.longest};
  const auto run = [&](std::string name, uint32_t sequences, uint32_t rows,
                       uint32_t depth) -> absl::Status {
    const PlannedStep step(load.limits, sequences, rows, depth);
    const StepBatch batch = step.batch();
    TANDEM_RETURN_IF_ERROR(worker->Submit({.step = &batch, .first_of_step = true}));
    TANDEM_RETURN_IF_ERROR(worker->Wait(0).status());
    report.steps.push_back(StepOfSubmissions(std::move(name)));
    return absl::OkStatus();
  };
  for (const uint32_t prompt : request.prompts) {
    for (uint32_t at = 0; at < prompt; at += load.limits.max_rows) {
      const uint32_t rows = std::min(load.limits.max_rows, prompt - at);
      TANDEM_RETURN_IF_ERROR(run(absl::StrFormat("%d rows @%d", rows, at), 1, rows, at));
    }
  }
  for (const uint32_t depth : request.depths) {
    for (const uint32_t batch : request.batches) {
      TANDEM_RETURN_IF_ERROR(
          run(absl::StrFormat("%d sequences @%d", batch, depth), batch, 1, depth));
    }
  }
  TANDEM_RETURN_IF_ERROR(clock.status());
  return report;
}

std::string SubmissionsAsText(const SubmissionReport& report) {
  std::string text = absl::StrFormat(
      "PREDICTION: %s on the clock of a %s: %d submissions while it is loaded, the longest of %.1f "
      "ms\n",
      report.model, report.chip, report.at_load, 1e3 * report.longest_at_load);
  TextTable table({false, true, true, true});
  table.Add({"step", "submissions", "longest ms", "step ms"});
  for (const SubmittedStep& step : report.steps) {
    table.Add({step.name, absl::StrFormat("%d", step.submissions),
               absl::StrFormat("%.1f", 1e3 * step.longest),
               absl::StrFormat("%.1f", 1e3 * step.seconds)});
  }
  return text + table.Print();
}

}  // namespace tandem::report
