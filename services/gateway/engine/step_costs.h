// What a step takes, by its rows, learned while serving.
//
// A decode row has an output, and its step reads all weights for few rows; a prompt row has none and
// shares the weights with many.  So three tables of seconds by rows are kept:
//
//   decode    steps of decode rows alone
//   alone     steps of prompt rows alone
//   beside    what prompt rows add to a step with decode rows
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem::gateway {

// Seconds by a number of rows: measured at some numbers, interpolated between them.  Pure data.
class RowSeconds {
 public:
  void Took(uint32_t rows, double seconds);
  bool known() const { return any_; }
  // REQUIRES known() and rows > 0.  Beyond what was measured: on the line of the two nearest, or in
  // proportion to the rows where one alone is known and `proportional`.
  double Of(uint32_t rows, bool proportional) const;
  // The most rows that were measured, about; 0: none were.
  uint32_t MostRows() const;

 private:
  // Two buckets an octave: 1, 2, 3, 4-5, 6-7, 8-11, ...
  static constexpr size_t kNumBuckets = 64;
  struct Entry {
    double rows = 0.0;  // averages
    double seconds = 0.0;
    bool seen = false;
  };
  static size_t BucketOf(uint32_t rows);

  std::array<Entry, kNumBuckets> entries_ = {};
  bool any_ = false;
};

// Pure data: no clock.  Single-thread.
class StepCosts {
 public:
  // A step took `seconds`: from when its device could begin it until its results were there.
  void StepTook(uint32_t decode_rows, uint32_t prompt_rows, double seconds);

  // Nothing is known before the first step.
  bool known() const { return decode_.known() || alone_.known(); }
  // Enough steps were measured that a slow first one counts for little.
  bool settled() const { return num_steps_ >= kSettled; }
  // Seconds; REQUIRES known() and at least one row.  A kind of rows that was not measured yet counts
  // as the other kind.
  double Step(uint32_t decode_rows, uint32_t prompt_rows) const;
  // The most prompt rows, up to `most`, beside which a step with decode rows takes no longer than
  // `seconds`.  At most twice as many as were ever measured beside decode rows: larger steps are
  // tried one after the other.  May be 0.
  uint32_t PromptRowsWithin(uint32_t decode_rows, double seconds, uint32_t most) const;

 private:
  static constexpr uint64_t kSettled = 16;

  double Beside(uint32_t prompt_rows) const;

  uint64_t num_steps_ = 0;
  RowSeconds decode_;
  RowSeconds alone_;
  RowSeconds beside_;
};

}  // namespace tandem::gateway
