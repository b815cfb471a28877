#include "services/gateway/engine/testing/fake_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/reference/ops.h"

namespace tandem::gateway::testing {

StepLimits ToyLimits() {
  StepLimits limits;
  limits.max_rows = 64;
  limits.max_sequences = 8;
  limits.max_outputs = 32;
  limits.max_logit_outputs = 8;
  limits.vocab_size = static_cast<uint32_t>(ToyVocabulary().pieces.size());
  limits.context_len = 256;
  limits.block_tokens = 8;
  limits.sliding_window = 20;
  limits.max_table_len = 2 * 32 * limits.max_sequences;
  limits.num_blocks[kGlobalGroup] = 200;
  limits.num_blocks[kWindowGroup] = 120;
  return limits;
}

FakeExecutor::FakeExecutor(FakeExecutorOptions options)
    : options_(std::move(options)),
      vocabulary_(options_.takes_pictures ? SeeingToyVocabulary() : ToyVocabulary()),
      config_(ToyConfig(options_.limits.context_len, options_.limits.sliding_window)) {
  if (options_.head_dim != 0) config_.head_dim = options_.head_dim;
  model_.set_name("toy");
  model_.set_model_id(options_.model_id);
  model_.set_quantization("Q8_0");
  plan_.workers.push_back({.name = options_.worker, .device = "none"});
  plan_.segments.push_back({.index = 0, .worker = 0, .last_ordinal = 4 * config_.num_layers + 1});
  plan_.max_rows = options_.limits.max_rows;
  if (options_.takes_pictures) {
    plan_.workers[0].takes_pictures = true;
    config_.vocab_size = static_cast<uint32_t>(vocabulary_.pieces.size());
    options_.limits.vocab_size = config_.vocab_size;
    config_.vision = VisionConfig{.image_size = 6,
                                  .patch_size = 2,
                                  .num_layers = 1,
                                  .hidden_dim = 8,
                                  .ffn_dim = 8,
                                  .num_heads = 1,
                                  .tokens_per_image = options_.limits.picture_rows,
                                  .text_hidden_dim = config_.hidden_dim};
  }
  Wipe();
}

void FakeExecutor::Wipe() {
  for (int group = 0; group < kNumKvGroups; ++group) {
    states_[group].assign(options_.limits.num_blocks[group] * options_.limits.block_tokens,
                          0xDEADBEEF);
  }
  const StepLimits& limits = options_.limits;
  picture_rows_.assign(states_[kWindowGroup].size(), 0xDEADBEEF);
  for (Lane& lane : lanes_) {
    lane.area.assign(StepAreaBytes(limits), std::byte{0});
    lane.soft_tokens.assign(limits.max_rows * config_.hidden_dim, 0.0f);
    lane.masks.assign(limits.max_sequences, std::vector<uint32_t>(MaskWords(limits.vocab_size)));
  }
  kv_area_.assign(limits.kv_area_bytes, std::byte{0});
  under_way_.clear();
  last_guesses_.clear();
}

void FakeExecutor::WriteSoftTokens(uint32_t lane, uint32_t first_row,
                                   std::span<const float> soft_tokens) {
  TANDEM_CHECK(!soft_tokens.empty() && soft_tokens.size() % config_.hidden_dim == 0);
  TANDEM_CHECK(soft_tokens.size() <= options_.limits.picture_rows * config_.hidden_dim);
  std::vector<float>& rows = lanes_[lane].soft_tokens;
  TANDEM_CHECK(first_row * config_.hidden_dim + soft_tokens.size() <= rows.size());
  std::copy(soft_tokens.begin(), soft_tokens.end(), &rows[first_row * config_.hidden_dim]);
}

void FakeExecutor::Submit(StepCall call) {
  TANDEM_CHECK(!lost_);
  TANDEM_CHECK(call.step_id > last_step_id_);
  TANDEM_CHECK(call.lane < depth() && under_way_.size() < depth());
  TANDEM_CHECK(under_way_.empty() || under_way_.front().lane != call.lane);
  Lane& lane = lanes_[call.lane];
  const auto step = ParseStep(lane.area, options_.limits, lane.storage);
  TANDEM_CHECK(step.ok());
  TANDEM_CHECK(step->header.step_id == call.step_id);
  TANDEM_CHECK(step->header.after_step == 0 || step->header.after_step == last_step_id_);
  last_step_id_ = call.step_id;
  TANDEM_CHECK(!call.masks_follow || (options_.takes_late_masks && step->header.num_masks > 0));
  under_way_.push_back({call.lane, *step, call.another_follows, call.masks_follow});
}

void FakeExecutor::MasksReady() {
  TANDEM_CHECK(!lost_ && under_way_.size() == 1 && under_way_.front().masks_follow);
  under_way_.front().masks_follow = false;
}

absl::StatusOr<std::vector<SegmentTiming>> FakeExecutor::Wait() {
  TANDEM_CHECK(!lost_ && !under_way_.empty());
  TANDEM_CHECK(!under_way_.front().masks_follow);
  const Submitted submitted = under_way_.front();
  const StepBatch& step = submitted.step;
  under_way_.pop_front();
  if (submitted.another_follows && under_way_.empty() && options_.on_flush) options_.on_flush();
  const uint64_t after = step.header.after_step;
  if (after != 0 && after != last_run_) {
    return absl::InvalidArgumentError("the step before was refused");
  }
  for (const RowEntry& row : step.rows) {
    if (row.feed == 0) continue;
    TANDEM_CHECK(row.feed <= last_guesses_.size());
    // In this executor's own copy of the step.
    const_cast<RowEntry&>(row).token = last_guesses_[row.feed - 1];
  }
  absl::Status status = options_.on_step ? options_.on_step(step) : absl::OkStatus();
  if (!status.ok()) {
    lost_ = absl::IsUnavailable(status);
    return status;
  }
  last_run_ = step.header.step_id;
  Compute(step, lanes_[submitted.lane]);
  return std::vector<SegmentTiming>{
      {.segment_index = 0, .device_ns = 1000, .device_watts = options_.watts}};
}

absl::Status FakeExecutor::CopyKv(const KvCopy& copy) {
  TANDEM_CHECK(!lost_ && under_way_.empty());
  const StepLimits& limits = options_.limits;
  const KvCopyLayout layout(config_, limits);
  TANDEM_CHECK(layout.Check(copy).ok());
  const absl::Status status = options_.on_copy ? options_.on_copy(copy) : absl::OkStatus();
  if (!status.ok()) {
    lost_ = absl::IsUnavailable(status);
    return status;
  }
  const auto move = [&](uint64_t& value, uint64_t offset) {
    std::byte* const in_area = kv_area_.data() + offset;
    if (copy.write) {
      std::memcpy(&value, in_area, sizeof(value));
    } else {
      std::memcpy(in_area, &value, sizeof(value));
    }
  };
  const uint64_t vector_bytes = layout.half_bytes() / limits.block_tokens;
  layout.ForEachPart(copy, [&](uint32_t layer_idx, uint32_t block, uint64_t offset) {
    const int group = config_.is_global(layer_idx) ? kGlobalGroup : kWindowGroup;
    if (layer_idx != (group == kGlobalGroup ? config_.num_layers - 1 : 0)) return;
    for (uint32_t slot = 0; slot < limits.block_tokens; ++slot) {
      const size_t at = size_t{block} * limits.block_tokens + slot;
      move(states_[group].at(at), offset + slot * vector_bytes);
      if (group == kGlobalGroup) continue;
      move(picture_rows_.at(at), offset + layout.half_bytes() + slot * vector_bytes);
    }
  });
  return absl::OkStatus();
}

size_t FakeExecutor::SlotOf(const StepBatch& step, const SequenceEntry& sequence, int group,
                            uint32_t position) const {
  const uint32_t block_tokens = options_.limits.block_tokens;
  const uint32_t entry = sequence.table_offset[group] + position / block_tokens;
  return size_t{step.block_table[entry]} * block_tokens + position % block_tokens;
}

std::vector<uint32_t> FakeExecutor::TokensOf(const StepBatch& step, const Lane& lane) {
  std::vector<uint32_t> tokens;
  for (const RowEntry& row : step.rows) tokens.push_back(row.token);
  const size_t hidden_dim = config_.hidden_dim;
  for (const PictureEntry& picture : step.pictures) {
    const SequenceEntry& sequence = step.sequences[step.rows[picture.first_row].sequence];
    const auto at = [&](uint32_t position) -> uint64_t& {
      return picture_rows_.at(SlotOf(step, sequence, kWindowGroup, position));
    };
    for (uint32_t r = picture.first_row; r < picture.first_row + picture.num_rows; ++r) {
      at(step.rows[r].position) =
          ToyPictureRow(std::span(lane.soft_tokens).subspan(r * hidden_dim, hidden_dim));
    }
    const uint32_t first = FirstPosition(picture, step.rows, options_.limits.picture_rows);
    std::vector<uint64_t> rows;
    for (uint32_t i = 0; i < options_.limits.picture_rows; ++i) rows.push_back(at(first + i));
    std::fill_n(tokens.begin() + picture.first_row, picture.num_rows, ToyPictureToken(rows));
  }
  return tokens;
}

void FakeExecutor::Compute(const StepBatch& step, Lane& lane) {
  const StepLimits& limits = options_.limits;
  std::vector<uint64_t> row_states(step.rows.size());
  const std::vector<uint32_t> tokens = TokensOf(step, lane);
  for (const SequenceEntry& sequence : step.sequences) {
    const auto at = [&](int group, uint32_t position) -> uint64_t& {
      return states_[group][SlotOf(step, sequence, group, position)];
    };
    for (uint32_t r = sequence.first_row; r < sequence.first_row + sequence.num_rows; ++r) {
      const uint32_t p = step.rows[r].position;
      const uint32_t start = p + 1 > limits.sliding_window ? p + 1 - limits.sliding_window : 0;
      row_states[r] = ToyState(p > 0 ? at(kGlobalGroup, p - 1) : 1,
                               start < p ? at(kWindowGroup, start) : 2, tokens[r]);
      at(kGlobalGroup, p) = at(kWindowGroup, p) = row_states[r];
    }
  }
  lane.pooled.clear();
  for (const uint32_t s : step.pooled) {
    const SequenceEntry& sequence = step.sequences[s];
    std::vector<float>& sum = lane.pooled.emplace_back(config_.hidden_dim);
    for (uint32_t r = sequence.first_row; r < sequence.first_row + sequence.num_rows; ++r) {
      const std::vector<float> hidden = ToyHidden(row_states[r], config_.hidden_dim);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += hidden[i];
    }
  }
  lane.results.clear();
  lane.logits.clear();
  lane.guesses.clear();
  for (const OutputEntry& output : step.outputs) {
    lane.logits.push_back(ToyLogits(row_states[output.row], limits.vocab_size));
    if (options_.favourite != kNoToken) lane.logits.back()[options_.favourite] = 100.0f;
    const std::span<const uint32_t> mask =
        output.mask == kNoMask ? std::span<const uint32_t>() : lane.masks[output.mask];
    lane.results.push_back(
        ToyHead(lane.logits.back(), step.header.num_candidates, output.target, mask));
    if (step.header.want_logits == 0) lane.logits.back().clear();
    const DrawEntry* draw = output.draw == kNoDraw ? nullptr : &step.draws[output.draw];
    lane.guesses.push_back(reference::GuessToken(lane.results.back(), draw));
    if (options_.wrong_guess_in != 0 && random_() % options_.wrong_guess_in == 0) {
      lane.guesses.back() = random_() % limits.vocab_size;
    }
  }
  last_guesses_ = lane.guesses;
}

absl::Status FakeExecutor::CheckWorkers() {
  TANDEM_CHECK(!lost_);
  absl::Status status = options_.on_check ? options_.on_check() : absl::OkStatus();
  lost_ = absl::IsUnavailable(status);
  return status;
}

absl::Status FakeExecutor::Recover(const Progress& progress) {
  progress("loading", 0.5);
  absl::Status status =
      options_.on_recover ? options_.on_recover(options_.limits) : absl::OkStatus();
  if (!status.ok()) return status;
  lost_ = false;
  ++epoch_;
  Wipe();
  return absl::OkStatus();
}

void FakeExecutor::FillStatus(v1::GetStatusResponse& status) const {
  v1::WorkerStatus* worker = status.add_workers();
  worker->set_name(options_.worker);
  worker->set_state("ready");
}

}  // namespace tandem::gateway::testing
