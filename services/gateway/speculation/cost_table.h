// How long a step of so many rows takes, learned while serving.
//
// Steps that only decode are measured: each of their rows has an output.  Times differ between
// devices, models and contexts, and not smoothly by rows: a device may compute 5 rows as 8.  So
// the table keeps what was seen for each number of rows, follows it, and fills the gaps low enough
// that numbers of rows which could pay are tried.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace tandem::gateway {

// Pure data: no clock.  Single-thread.
class CostTable {
 public:
  // Larger steps are not kept; their time is extrapolated.
  static constexpr uint32_t kMostRows = 128;
  // A time that has not been seen for so many steps is not believed any more.
  static constexpr uint64_t kMaxAge = 256;
  // So many steps say what a number of rows takes; of the first ones the shortest counts, for what
  // is cold is slow.
  static constexpr uint32_t kEnough = 3;

  // A step that only decodes took `seconds`, from when the device could begin it.
  void StepTook(uint32_t num_rows, double seconds);
  // The time between two steps, if the second waited for the outcome of the first.
  void GapTook(double seconds);

  // Nothing is known before the first step.
  bool known() const { return num_steps_ > 0; }
  // Whether the time of `num_rows` rows was seen often and lately enough to weigh others against.
  bool Measured(uint32_t num_rows) const {
    return num_rows > kMostRows ||
           (Believed(entries_[num_rows]) && entries_[num_rows].count >= kEnough);
  }
  // Seconds that a step of `num_rows` rows takes at least: what it takes if that was measured; else the most
  // of what fewer rows take and its share of what more rows take, for a row never costs more in a
  // larger step.  0: nothing was measured.
  double StepAtLeast(uint32_t num_rows) const;
  // Seconds; REQUIRES known() and num_rows > 0.  Where so many rows were not seen, each row beyond
  // the nearest number that was adds kRowShare of its time, or less if the line to the next does.
  // Never more than a larger step took: else a number of rows that was slow once would not be tried
  // again.
  double Step(uint32_t num_rows) const;
  double Gap() const { return gap_; }

 private:
  // Low: 25 and 38 rows say nothing of 32, which may take what 25 do.
  static constexpr double kRowShare = 0.01;

  struct Entry {
    double seconds = 0.0;
    uint64_t seen = 0;   // number of the step; 0: never
    uint32_t count = 0;  // steps since it was last not believed
  };
  bool Believed(const Entry& entry) const {
    return entry.seen > 0 && entry.seen + kMaxAge >= num_steps_;
  }

  // What the entries say, without what larger steps took.
  double Estimate(uint32_t num_rows) const;

  std::array<Entry, kMostRows + 1> entries_ = {};  // by rows
  // By rows: the shortest time of believed entries of so many rows or more; infinite without any.
  std::array<double, kMostRows + 1> shortest_ = [] {
    std::array<double, kMostRows + 1> none;
    none.fill(std::numeric_limits<double>::infinity());
    return none;
  }();
  uint64_t num_steps_ = 0;
  double gap_ = 0.0;
  bool any_gap_ = false;
};

}  // namespace tandem::gateway
