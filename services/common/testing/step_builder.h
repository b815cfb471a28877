// Builds steps for tests: sequences that grow, with their block tables in both KV groups.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "services/common/step/step_batch.h"

namespace tandem::testing {

// Sequences live across steps; a step is begun, filled and read.  Blocks are handed out in a
// shuffled order, so that neighbours in a sequence are not neighbours in the pool, and blocks of
// the window group are taken back as soon as no row can see them.
//
//   StepBuilder steps(limits);
//   const uint32_t a = steps.AddSequence();
//   steps.Begin();
//   const uint32_t first = steps.AddRows(a, {2, 17, 9});
//   steps.AddOutput(first + 2);
//   runner.RunStep(steps.batch());
class StepBuilder {
 public:
  explicit StepBuilder(const StepLimits& limits, uint32_t seed = 1);

  uint32_t AddSequence();
  // Frees its blocks; the id is not used again.
  void RemoveSequence(uint32_t sequence);
  // Positions the sequence holds, i.e. the position of its next token.
  uint32_t Length(uint32_t sequence) const { return sequences_.at(sequence).length; }

  // Forgets the positions from `length` on: the sequence's next rows compute them again.  They see
  // from `first_seen` on, the first position of the picture that they begin within.
  // REQUIRES no rows of the sequence since the window moved past `first_seen`.
  void Rewind(uint32_t sequence, uint32_t length, uint32_t first_seen = kNoPosition);

  // Starts an empty step.
  void Begin();
  // Adds the sequence's next tokens as rows and returns the index of the first.
  // REQUIRES one call for a sequence and step, and blocks enough in the pools.
  uint32_t AddRows(uint32_t sequence, const std::vector<uint32_t>& tokens);
  void AddOutput(uint32_t row, uint32_t target = kNoToken) {
    outputs_.push_back({.row = row, .target = target});
  }
  // Draws the guess of the output added last.
  void DrawOutput(const DrawEntry& draw) {
    outputs_.back().draw = static_cast<uint32_t>(draws_.size());
    draws_.push_back(draw);
  }
  // Gives the output added last the next mask (PlanRunner::WriteMask), and returns its index.
  uint32_t MaskOutput() { return outputs_.back().mask = header_.num_masks++; }
  // Has the row take the guess of an output of the step built before, instead of its token.
  void FeedRow(uint32_t row, uint32_t output) {
    rows_[row].token = 0;
    rows_[row].feed = output + 1;
    header_.after_step = header_.step_id - 1;
  }
  // Pools the sequence of the last AddRows.  REQUIRES one call for it.
  void PoolLastRows() { pooled_.push_back(static_cast<uint32_t>(entries_.size()) - 1); }
  // Makes the limits' picture_rows rows from `first_row` on a picture.
  void AddPicture(uint32_t first_row) { AddPicture(first_row, limits_.picture_rows); }
  // Makes `num_rows` rows from `first_row` on the last ones of a picture.
  void AddPicture(uint32_t first_row, uint32_t num_rows) {
    pictures_.push_back({first_row, num_rows});
  }
  void set_num_candidates(uint32_t n) { header_.num_candidates = n; }
  void set_want_logits(bool want) { header_.want_logits = want ? 1 : 0; }

  uint32_t num_rows() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t num_free_blocks(KvGroup group) const {
    return static_cast<uint32_t>(free_[group].size());
  }
  // The step so far.  The spans point into this builder, until the next call of a method.
  StepBatch batch();

 private:
  static constexpr uint32_t kNoPosition = 0xFFFFFFFFu;
  struct Sequence {
    uint32_t length = 0;
    uint32_t first_seen = kNoPosition;  // of the next rows, if it is before their window
    std::vector<uint32_t> tables[kNumKvGroups];
  };
  void FreeBeforeWindow(Sequence& sequence);

  StepLimits limits_;
  std::deque<uint32_t> free_[kNumKvGroups];
  std::map<uint32_t, Sequence> sequences_;
  uint32_t next_sequence_ = 0;
  uint64_t next_step_ = 1;

  StepHeader header_;
  std::vector<RowEntry> rows_;
  std::vector<SequenceEntry> entries_;
  std::vector<uint32_t> entry_sequence_;
  std::vector<OutputEntry> outputs_;
  std::vector<uint32_t> table_;
  std::vector<DrawEntry> draws_;
  std::vector<uint32_t> pooled_;
  std::vector<PictureEntry> pictures_;
};

}  // namespace tandem::testing
