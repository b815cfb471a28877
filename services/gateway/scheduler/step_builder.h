// Writes the planned rows as a StepBatch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/step/step_batch.h"
#include "services/gateway/scheduler/sequence.h"

namespace tandem::gateway {

// The next `num_rows` rows of a sequence, whose tables already cover them.
struct PlannedRows {
  Sequence* sequence = nullptr;
  uint32_t num_rows = 0;
};

// Rows of one sequence in a step.
struct ScheduledRows {
  uint64_t sequence = 0;  // SequenceSpec::id
  uint32_t first_position = 0;
  uint32_t num_rows = 0;
  uint32_t num_drafted = 0;  // of them the last, whose tokens are drafters' guesses
};

// Meaning of one output of a step.
struct ScheduledOutput {
  uint64_t sequence = 0;
  // The output of the row at this position: it decides the token after it, or (when not
  // `sample`) reports the log-probability of the prompt token after it, the output's target.
  uint32_t position = 0;
  bool sample = false;
  bool guessed = false;  // the row's token is a drafter's guess
  bool fed = false;      // the row's token is the device's: a mask follows when it is decided
};

// The soft tokens that a picture's rows take: the last ones, if the KV cache has the first rows.
struct ScheduledPicture {
  uint32_t first_row = 0;
  std::span<const float> soft_tokens;  // [PictureEntry::num_rows, hidden_dim], the sequence's
};

// Valid until the builder builds the next one.
struct ScheduledStep {
  StepBatch batch;
  std::span<const ScheduledRows> rows;         // by index of the step's sequences
  std::span<const ScheduledOutput> outputs;    // by index of the step's outputs
  std::span<const ScheduledPicture> pictures;  // by index of the step's pictures
  // Prediction: there will be a step to schedule while this one is under way.
  bool another_follows = false;
  bool decodes = false;  // has decode rows
  // The p-th pooled sum is of rows[batch.pooled[p]].
};

// Owns the arrays that a step's spans point into, reused from step to step.
class StepBuilder {
 public:
  // `after_step`: the step under way whose speculative tokens stand for unknown ones; 0: no step is
  // under way.
  ScheduledStep& Build(std::span<const PlannedRows> plan, uint64_t step_id, uint64_t after_step,
                       uint32_t block_tokens);

 private:
  void AddSequence(const Sequence& sequence, uint32_t num_rows, uint64_t after_step,
                   uint32_t block_tokens);
  // Those of the rows, which hold keys until then.
  void AddPictures(const Sequence& sequence, uint32_t first_row, uint32_t num_rows);
  void AddOutput(const Sequence& sequence, uint32_t row, uint32_t position, bool sample);

  std::vector<RowEntry> rows_;
  std::vector<SequenceEntry> sequences_;
  std::vector<OutputEntry> outputs_;
  std::vector<uint32_t> table_;
  std::vector<DrawEntry> draws_;
  std::vector<uint32_t> pooled_;
  std::vector<PictureEntry> pictures_;
  std::vector<ScheduledRows> scheduled_rows_;
  std::vector<ScheduledOutput> scheduled_outputs_;
  std::vector<ScheduledPicture> scheduled_pictures_;
  StepHeader header_;
  ScheduledStep step_;
};

}  // namespace tandem::gateway
