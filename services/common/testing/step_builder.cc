#include "services/common/testing/step_builder.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "services/common/base/check.h"

namespace tandem::testing {

StepBuilder::StepBuilder(const StepLimits& limits, uint32_t seed) : limits_(limits) {
  std::mt19937 random(seed);
  for (int group = 0; group < kNumKvGroups; ++group) {
    free_[group].resize(limits.num_blocks[group]);
    std::iota(free_[group].begin(), free_[group].end(), 0u);
    std::shuffle(free_[group].begin(), free_[group].end(), random);
  }
}

uint32_t StepBuilder::AddSequence() {
  sequences_[next_sequence_] = {};
  return next_sequence_++;
}

void StepBuilder::RemoveSequence(uint32_t sequence) {
  for (int group = 0; group < kNumKvGroups; ++group) {
    for (const uint32_t block : sequences_.at(sequence).tables[group]) {
      if (block != kNoBlock) free_[group].push_back(block);
    }
  }
  sequences_.erase(sequence);
}

void StepBuilder::Begin() {
  header_ = {.step_id = next_step_++, .num_candidates = 1};
  rows_.clear();
  entries_.clear();
  entry_sequence_.clear();
  outputs_.clear();
  draws_.clear();
  pooled_.clear();
  pictures_.clear();
}

void StepBuilder::Rewind(uint32_t id, uint32_t length, uint32_t first_seen) {
  Sequence& sequence = sequences_.at(id);
  TANDEM_CHECK(length <= sequence.length);
  sequence.length = length;
  sequence.first_seen = first_seen;
  const uint32_t num_blocks = (length + limits_.block_tokens - 1) / limits_.block_tokens;
  for (int group = 0; group < kNumKvGroups; ++group) {
    std::vector<uint32_t>& table = sequence.tables[group];
    for (; table.size() > num_blocks; table.pop_back()) {
      if (table.back() != kNoBlock) free_[group].push_back(table.back());
    }
  }
}

void StepBuilder::FreeBeforeWindow(Sequence& sequence) {
  const uint32_t first_needed =
      std::min(FirstWindowBlock(sequence.length, limits_.sliding_window, limits_.block_tokens),
               sequence.first_seen / limits_.block_tokens);
  sequence.first_seen = kNoPosition;
  std::vector<uint32_t>& table = sequence.tables[kWindowGroup];
  for (uint32_t i = 0; i < first_needed && i < table.size(); ++i) {
    if (table[i] != kNoBlock) free_[kWindowGroup].push_back(table[i]);
    table[i] = kNoBlock;
  }
}

uint32_t StepBuilder::AddRows(uint32_t id, const std::vector<uint32_t>& tokens) {
  TANDEM_CHECK(!tokens.empty());
  TANDEM_CHECK(std::find(entry_sequence_.begin(), entry_sequence_.end(), id) ==
               entry_sequence_.end());
  Sequence& sequence = sequences_.at(id);
  FreeBeforeWindow(sequence);
  const auto first_row = static_cast<uint32_t>(rows_.size());
  const auto index = static_cast<uint32_t>(entries_.size());
  for (const uint32_t token : tokens) {
    rows_.push_back({.token = token, .position = sequence.length++, .sequence = index});
  }
  const uint32_t num_blocks = (sequence.length - 1) / limits_.block_tokens + 1;
  for (int group = 0; group < kNumKvGroups; ++group) {
    while (sequence.tables[group].size() < num_blocks) {
      TANDEM_CHECK(!free_[group].empty());
      sequence.tables[group].push_back(free_[group].front());
      free_[group].pop_front();
    }
  }
  entries_.push_back({.first_row = first_row, .num_rows = static_cast<uint32_t>(tokens.size())});
  entry_sequence_.push_back(id);
  return first_row;
}

StepBatch StepBuilder::batch() {
  table_.clear();
  for (size_t i = 0; i < entries_.size(); ++i) {
    for (int group = 0; group < kNumKvGroups; ++group) {
      const std::vector<uint32_t>& table = sequences_.at(entry_sequence_[i]).tables[group];
      entries_[i].table_offset[group] = static_cast<uint32_t>(table_.size());
      table_.insert(table_.end(), table.begin(), table.end());
    }
  }
  header_.num_rows = static_cast<uint32_t>(rows_.size());
  header_.num_sequences = static_cast<uint32_t>(entries_.size());
  header_.num_outputs = static_cast<uint32_t>(outputs_.size());
  header_.table_len = static_cast<uint32_t>(table_.size());
  header_.num_draws = static_cast<uint32_t>(draws_.size());
  header_.num_pooled = static_cast<uint32_t>(pooled_.size());
  header_.num_pictures = static_cast<uint32_t>(pictures_.size());
  return {header_, rows_, entries_, outputs_, table_, draws_, pooled_, pictures_};
}

}  // namespace tandem::testing
