#include "tools/kernel_report/planned_model.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/packing/packing_plan.h"

namespace tandem::report {
namespace {

constexpr uint64_t kRegionBytes = uint64_t{1} << 30;
constexpr uint32_t kContext = 8192;

absl::StatusOr<std::shared_ptr<const WeightSet>> PlanWeights(const std::string& model) {
  TANDEM_ASSIGN_OR_RETURN(const auto source, loader::OpenModelSource(model));
  TANDEM_ASSIGN_OR_RETURN(const loader::PackingPlan plan,
                          loader::PlanPacking(source->tensors(), source->config(), kRegionBytes));
  std::vector<PackedTensor> tensors;
  for (const loader::PlannedTensor& planned : plan.tensors) tensors.push_back(planned.tensor);
  std::vector<WeightRegion> regions;
  for (const uint64_t bytes : plan.region_bytes) {
    WeightRegion& region = regions.emplace_back();
    // Pages that nobody touches are not there.
    TANDEM_ASSIGN_OR_RETURN(region.fd, CreateSharedMemory("planned weights", bytes));
    TANDEM_ASSIGN_OR_RETURN(region.mapping,
                            Mapping::Map(region.fd.get(), bytes, Mapping::Access::kReadOnly));
  }
  TANDEM_ASSIGN_OR_RETURN(auto weights, WeightSet::Create(source->content_id(), source->config(),
                                                          std::move(tensors), std::move(regions)));
  return std::shared_ptr<const WeightSet>(std::move(weights));
}

}  // namespace

absl::StatusOr<ModelLoad> PlanModel(const ModelRequest& request) {
  ModelLoad load;
  TANDEM_ASSIGN_OR_RETURN(load.weights, PlanWeights(request.model));
  const ModelConfig& config = load.weights->config();
  const uint32_t wanted = request.context_len == 0 ? kContext : request.context_len;
  load.limits = {.max_rows = request.max_rows,
                 .max_sequences = request.max_sequences,
                 .max_outputs = request.max_sequences,
                 .max_logit_outputs = 1,
                 .vocab_size = config.vocab_size,
                 .context_len = std::min(wanted, config.context_len),
                 .block_tokens = 16,
                 .sliding_window = config.sliding_window,
                 .kv_dtype = request.kv_dtype};
  const uint32_t blocks = (load.limits.context_len - 1) / load.limits.block_tokens + 1;
  load.limits.max_table_len = kNumKvGroups * blocks * request.max_sequences;
  load.kv = {.block_tokens = load.limits.block_tokens, .dtype = request.kv_dtype};
  for (int group = 0; group < kNumKvGroups; ++group) {
    load.limits.num_blocks[group] = load.kv.num_blocks[group] = blocks * request.max_sequences;
  }
  load.segments = {{.last_ordinal = NumStages(config.num_layers) - 1}};
  auto exchange = std::make_shared<Exchange>();
  exchange->layout = MakeExchangeLayout(config, load.limits, 1);
  const uint64_t bytes = exchange->layout.total_bytes();
  TANDEM_ASSIGN_OR_RETURN(exchange->fd, CreateSharedMemory("planned exchange", bytes));
  TANDEM_ASSIGN_OR_RETURN(exchange->mapping,
                          Mapping::Map(exchange->fd.get(), bytes, Mapping::Access::kReadWrite));
  load.exchange = std::move(exchange);
  return load;
}

PlannedStep::PlannedStep(const StepLimits& limits, uint32_t sequences, uint32_t rows,
                         uint32_t depth) {
  const uint32_t blocks = (depth + rows - 1) / limits.block_tokens + 1;
  for (uint32_t s = 0; s < sequences; ++s) {
    SequenceEntry& sequence = sequences_.emplace_back();
    sequence.first_row = static_cast<uint32_t>(rows_.size());
    sequence.num_rows = rows;
    for (int group = 0; group < kNumKvGroups; ++group) {
      sequence.table_offset[group] = static_cast<uint32_t>(table_.size());
      for (uint32_t b = 0; b < blocks; ++b) table_.push_back(s * blocks + b);
    }
    for (uint32_t r = 0; r < rows; ++r) rows_.push_back({.position = depth + r, .sequence = s});
    outputs_.push_back({.row = static_cast<uint32_t>(rows_.size()) - 1});
  }
  header_.num_rows = static_cast<uint32_t>(rows_.size());
  header_.num_sequences = sequences;
  header_.num_outputs = static_cast<uint32_t>(outputs_.size());
  header_.num_candidates = 1;
  header_.table_len = static_cast<uint32_t>(table_.size());
}

}  // namespace tandem::report
