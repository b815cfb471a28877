#include "services/common/testing/plan_runner.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/plan/port_formats.h"
#include "services/common/tensor/port_numbers.h"

namespace tandem::testing {
namespace {

constexpr Port kPorts[kNumPorts] = {Port::kResidual, Port::kQ,         Port::kK,
                                    Port::kV,        Port::kAttention, Port::kProjection};

bool IsFloat32(Port port) { return port == Port::kResidual || port == Port::kProjection; }

absl::StatusOr<std::shared_ptr<const Exchange>> MakeExchange(const ModelConfig& config,
                                                             const StepLimits& limits,
                                                             uint32_t num_lanes) {
  auto exchange = std::make_shared<Exchange>();
  exchange->layout = MakeExchangeLayout(config, limits, num_lanes);
  const uint64_t bytes = exchange->layout.total_bytes();
  TANDEM_ASSIGN_OR_RETURN(exchange->fd, CreateSharedMemory("exchange", bytes));
  TANDEM_RETURN_IF_ERROR(SealSize(exchange->fd.get()));
  TANDEM_ASSIGN_OR_RETURN(exchange->mapping,
                          Mapping::Map(exchange->fd.get(), bytes, Mapping::Access::kReadWrite));
  return exchange;
}

}  // namespace

StepLimits MakeStepLimits(const ModelConfig& config, const RunLimits& limits) {
  StepLimits step{.max_rows = limits.max_rows,
                  .max_sequences = limits.max_sequences,
                  .max_outputs = limits.max_outputs,
                  .max_logit_outputs = limits.max_logit_outputs,
                  .vocab_size = config.vocab_size,
                  .context_len = limits.context_len == 0 ? config.context_len : limits.context_len,
                  .block_tokens = limits.block_tokens,
                  .sliding_window = config.sliding_window,
                  .kv_dtype = limits.kv_dtype,
                  .kv_area_bytes = limits.kv_area_bytes};
  const uint32_t blocks_of_one = (step.context_len - 1) / step.block_tokens + 1;
  if (limits.max_pictures > 0) {
    step.max_pictures = limits.max_pictures;
    step.picture_rows = config.vision->tokens_per_image;
  }
  step.max_table_len = kNumKvGroups * blocks_of_one * limits.max_sequences;
  for (int group = 0; group < kNumKvGroups; ++group) {
    step.num_blocks[group] = limits.num_blocks[group] != 0 ? limits.num_blocks[group]
                                                           : blocks_of_one * limits.max_sequences;
  }
  return step;
}

Segment SingleStage(Stage stage, const ModelConfig& config) {
  const uint32_t ordinal = StageOrdinal(stage, config.num_layers);
  return {.first_ordinal = ordinal,
          .last_ordinal = ordinal,
          .inputs = InputsOf(stage.kind),
          .outputs = OutputsOf(stage.kind)};
}

std::vector<Segment> VisionPlan(const ModelConfig& config) {
  const uint32_t ordinal = VisionOrdinal(config.num_layers);
  return {{.first_ordinal = ordinal, .last_ordinal = ordinal}};
}

std::vector<Segment> WholeModel(const ModelConfig& config) {
  return {{.last_ordinal = NumStages(config.num_layers) - 1}};
}

absl::StatusOr<std::unique_ptr<PlanRunner>> PlanRunner::Create(
    std::shared_ptr<const WeightSet> weights, std::vector<Worker*> workers,
    std::vector<Segment> segments, const RunLimits& limits) {
  std::unique_ptr<PlanRunner> runner(new PlanRunner);
  runner->plan_ = limits.plan;
  runner->weights_ = std::move(weights);
  runner->workers_ = std::move(workers);
  runner->segments_ = std::move(segments);
  runner->port_dtype_ = limits.port_dtype;
  for (uint32_t i = 0; i < runner->segments_.size(); ++i) runner->segments_[i].index = i;
  const ModelConfig& config = runner->config();
  const bool vision = runner->segments_.front().first_ordinal == VisionOrdinal(config.num_layers);
  runner->limits_ = vision ? VisionLimits(limits.max_pictures, config.vision->tokens_per_image)
                           : MakeStepLimits(config, limits);
  runner->steps_.resize(limits.num_lanes);
  TANDEM_ASSIGN_OR_RETURN(runner->exchange_,
                          MakeExchange(runner->config(), runner->limits_, limits.num_lanes));
  for (uint32_t w = 0; w < runner->workers_.size(); ++w) {
    ModelLoad load{.plan = limits.plan,
                   .weights = runner->weights_,
                   .limits = runner->limits_,
                   .kv = {.block_tokens = limits.block_tokens, .dtype = limits.kv_dtype},
                   .port_dtype = limits.port_dtype,
                   .exchange = runner->exchange_};
    std::copy_n(runner->limits_.num_blocks, kNumKvGroups, load.kv.num_blocks);
    for (const Segment& segment : runner->segments_) {
      if (segment.worker == w) load.segments.push_back(segment);
    }
    TANDEM_RETURN_IF_ERROR(
        CheckPortDType(runner->workers_[w]->description(), load.segments, limits.port_dtype));
    absl::StatusOr<LoadReport> report =
        runner->workers_[w]->Load(std::move(load), [](double, std::string_view) {});
    if (!report.ok()) {
      return absl::Status(report.status().code(),
                          absl::StrFormat("%s: %s", runner->workers_[w]->description().name,
                                          std::string(report.status().message())));
    }
    runner->load_reports_.push_back(*std::move(report));
  }
  return runner;
}

absl::StatusOr<std::unique_ptr<PlanRunner>> PlanRunner::CreatePlanned(
    std::shared_ptr<const WeightSet> weights, const std::vector<Worker*>& workers,
    const PlacementPolicy& policy, const RunLimits& limits) {
  std::vector<WorkerDescription> descriptions;
  descriptions.reserve(workers.size());
  for (const Worker* worker : workers) descriptions.push_back(worker->description());
  std::set<DType> dtypes;
  for (const PackedTensor& tensor : weights->tensors()) {
    if (IsNorm(tensor.role)) continue;
    for (const Shard& shard : tensor.shards) dtypes.insert(shard.dtype);
  }
  TANDEM_ASSIGN_OR_RETURN(
      Plan plan, MakePlan(weights->config(), {dtypes.begin(), dtypes.end()}, descriptions, policy));
  std::vector<Worker*> placed;
  for (const WorkerDescription& description : plan.workers) {
    placed.push_back(*std::ranges::find_if(workers, [&](const Worker* worker) {
      return worker->description().name == description.name;
    }));
  }
  RunLimits with_ports = limits;
  with_ports.port_dtype = plan.port_dtype;
  return Create(std::move(weights), std::move(placed), std::move(plan.segments), with_ports);
}

absl::Status PlanRunner::WriteAndCheckStep(const StepBatch& step, uint32_t lane) {
  const std::span<std::byte> area = Area(exchange_->layout.step, lane);
  if (StepBytes(step.header) > area.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("step of %d bytes in an area of %d", StepBytes(step.header), area.size()));
  }
  WriteStep(step, area);
  LaneStep& written = steps_.at(lane);
  TANDEM_ASSIGN_OR_RETURN(written.step, ParseStep(area, limits_, written.storage));
  return absl::OkStatus();
}

absl::StatusOr<SegmentResult> RunSegment(Worker& worker, const SegmentRun& run) {
  TANDEM_RETURN_IF_ERROR(worker.Submit(run));
  return worker.Wait(run.plan);
}

absl::StatusOr<SegmentResult> PlanRunner::RunSegment(uint32_t segment_index, uint32_t lane) {
  const Segment& segment = segments_.at(segment_index);
  const auto first =
      std::find_if(segments_.begin(), segments_.end(),
                   [&segment](const Segment& other) { return other.worker == segment.worker; });
  return testing::RunSegment(*workers_.at(segment.worker),
                             {.plan = plan_,
                              .segment_index = segment_index,
                              .lane = lane,
                              .step = &steps_.at(lane).step,
                              .first_of_step = first->index == segment_index});
}

absl::Status PlanRunner::RunStep(const StepBatch& step, uint32_t lane) {
  TANDEM_RETURN_IF_ERROR(WriteAndCheckStep(step, lane));
  for (const Segment& segment : segments_) {
    TANDEM_RETURN_IF_ERROR(RunSegment(segment.index, lane).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<SegmentResult> PlanRunner::WaitForStep() {
  // Other plans of the worker go on meanwhile.
  for (absl::StatusOr<bool> has_run = false; has_run.ok() && !*has_run;) {
    has_run = workers_[0]->Advance(plan_);
  }
  return workers_[0]->Wait(plan_);
}

absl::Status PlanRunner::SubmitStep(const StepBatch& step, uint32_t lane, bool masks_follow) {
  TANDEM_CHECK(segments_.size() == 1);
  TANDEM_RETURN_IF_ERROR(WriteAndCheckStep(step, lane));
  return workers_[0]->Submit({.plan = plan_,
                              .lane = lane,
                              .step = &steps_[lane].step,
                              .first_of_step = true,
                              .masks_follow = masks_follow});
}

absl::Status PlanRunner::CopyKv(const KvCopy& copy) {
  TANDEM_RETURN_IF_ERROR(KvCopyLayout(config(), limits_).Check(copy));
  for (Worker* const worker : workers_) {
    if (worker->description().copies_kv) TANDEM_RETURN_IF_ERROR(worker->CopyKv(plan_, copy));
  }
  return absl::OkStatus();
}

std::vector<float> PlanRunner::ReadPort(Port port, uint32_t num_rows, uint32_t lane) const {
  const ExchangeArea& area = exchange_->layout.port(port);
  const std::byte* data = Area(area, lane).data();
  const size_t bytes = num_rows * area.row_bytes;
  TANDEM_CHECK(bytes <= area.bytes);
  if (IsFloat32(port)) {
    std::vector<float> values(bytes / sizeof(float));
    std::memcpy(values.data(), data, bytes);
    return values;
  }
  std::vector<float> values(bytes / sizeof(uint16_t));
  PortToFloats(port_dtype_, reinterpret_cast<const uint16_t*>(data), values);
  return values;
}

void PlanRunner::WritePort(Port port, std::span<const float> values, uint32_t lane) {
  const ExchangeArea& area = exchange_->layout.port(port);
  std::byte* data = Area(area, lane).data();
  const size_t width = IsFloat32(port) ? sizeof(float) : sizeof(uint16_t);
  TANDEM_CHECK(values.size() * width <= area.bytes);
  if (IsFloat32(port)) {
    std::memcpy(data, values.data(), values.size_bytes());
  } else {
    FloatsToPort(port_dtype_, values, reinterpret_cast<uint16_t*>(data));
  }
}

void PlanRunner::WriteMask(uint32_t mask, std::span<const uint32_t> words, uint32_t lane) {
  const ExchangeArea& area = exchange_->layout.masks;
  TANDEM_CHECK(mask < limits_.max_sequences && words.size_bytes() == area.row_bytes);
  std::memcpy(Area(area, lane).data() + mask * area.row_bytes, words.data(), area.row_bytes);
}

void PlanRunner::WritePixels(uint32_t picture, std::span<const float> pixels, uint32_t lane) {
  const ExchangeArea& area = exchange_->layout.pixels;
  TANDEM_CHECK(picture < limits_.max_pictures && pixels.size_bytes() == area.row_bytes);
  std::memcpy(Area(area, lane).data() + picture * area.row_bytes, pixels.data(), area.row_bytes);
}

void PlanRunner::WriteSoftTokens(uint32_t first_row, std::span<const float> rows, uint32_t lane) {
  const ExchangeArea& area = exchange_->layout.soft_tokens;
  TANDEM_CHECK(first_row * area.row_bytes + rows.size_bytes() <= area.bytes);
  std::memcpy(Area(area, lane).data() + first_row * area.row_bytes, rows.data(), rows.size_bytes());
}

std::vector<float> PlanRunner::SoftTokens(uint32_t num_rows, uint32_t lane) const {
  const ExchangeArea& area = exchange_->layout.soft_tokens;
  TANDEM_CHECK(num_rows * area.row_bytes <= area.bytes);
  std::vector<float> values(num_rows * area.row_bytes / sizeof(float));
  std::memcpy(values.data(), Area(area, lane).data(), num_rows * area.row_bytes);
  return values;
}

const OutputResult& PlanRunner::Output(uint32_t output, uint32_t lane) const {
  TANDEM_CHECK(output < limits_.max_outputs);
  const auto area = Area(exchange_->layout.candidates, lane);
  return reinterpret_cast<const OutputResult*>(area.data())[output];
}

uint32_t PlanRunner::Guess(uint32_t output, uint32_t lane) const {
  TANDEM_CHECK(output < limits_.max_outputs);
  return reinterpret_cast<const uint32_t*>(Area(exchange_->layout.guesses, lane).data())[output];
}

std::span<const float> PlanRunner::Logits(uint32_t output, uint32_t lane) const {
  TANDEM_CHECK(output < limits_.max_logit_outputs);
  const ExchangeArea& area = exchange_->layout.logits;
  const std::byte* row = Area(area, lane).data() + output * area.row_bytes;
  return {reinterpret_cast<const float*>(row), config().vocab_size};
}

std::span<const float> PlanRunner::Pooled(uint32_t p, uint32_t lane) const {
  TANDEM_CHECK(p < limits_.max_sequences);
  const ExchangeArea& area = exchange_->layout.pooled;
  const std::byte* row = Area(area, lane).data() + p * area.row_bytes;
  return {reinterpret_cast<const float*>(row), config().hidden_dim};
}

void PlanRunner::FillGuards(uint32_t lane) {
  const auto fill = [&](const ExchangeArea& area) {
    std::ranges::fill(Area(area, lane), kGuardByte);
  };
  for (const Port port : kPorts) fill(exchange_->layout.port(port));
  fill(exchange_->layout.candidates);
  fill(exchange_->layout.guesses);
  fill(exchange_->layout.logits);
  fill(exchange_->layout.pooled);
  if (limits_.vision()) fill(exchange_->layout.soft_tokens);
}

::testing::AssertionResult PlanRunner::GuardsIntact(uint32_t lane) const {
  const ExchangeLayout& layout = exchange_->layout;
  const uint64_t lane_start = lane * layout.lane_bytes;
  // Each area and the padding that follows it, up to the next area.
  const auto check = [&](const ExchangeArea& area, uint64_t used_rows) {
    const uint64_t end =
        (area.offset + area.bytes + kAreaAlignment - 1) / kAreaAlignment * kAreaAlignment;
    const uint64_t used = area.offset + used_rows * area.row_bytes;
    // Padding was never written, so it is zero; what lies in the area is the guard.
    const auto bytes = exchange_->mapping.bytes();
    auto guard = IsGuard(bytes.subspan(lane_start + used, area.offset + area.bytes - used));
    if (!guard) return guard;
    const auto padding =
        bytes.subspan(lane_start + area.offset + area.bytes, end - area.offset - area.bytes);
    if (std::ranges::any_of(padding, [](std::byte b) { return b != std::byte{0}; })) {
      return ::testing::AssertionFailure() << "the padding after an area was written";
    }
    return ::testing::AssertionSuccess();
  };
  const StepHeader& header = steps_.at(lane).step.header;
  for (const Port port : kPorts) {
    auto result = check(layout.port(port), header.num_rows);
    if (!result) return result << " (port " << static_cast<uint32_t>(port) << ")";
  }
  auto result = check(layout.candidates, header.num_outputs);
  if (!result) return result << " (candidates)";
  result = check(layout.guesses, header.num_outputs);
  if (!result) return result << " (guesses)";
  result = check(layout.logits, header.want_logits != 0 ? header.num_outputs : 0);
  if (!result) return result << " (logits)";
  result = check(layout.pooled, header.num_pooled);
  if (!result) return result << " (pooled)";
  if (limits_.vision()) {
    result = check(layout.soft_tokens, header.num_pictures * limits_.picture_rows);
    if (!result) return result << " (soft tokens)";
  }
  return result;
}

}  // namespace tandem::testing
