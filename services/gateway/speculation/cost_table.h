// How long a step of so many rows takes, learned while serving.
//
// Steps that only decode are measured: each of their rows has an output.  Times differ between
// devices, models and contexts, and not smoothly by rows: a device may compute 5 rows as 8.  So
// the table keeps what was seen for each number of rows, follows it, and halves the gaps: between
// two numbers that were seen, one counts as cheap enough to be tried if it could pay at all.
#pragma once

#include <array>
#include <cstdint>

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
  // Seconds; REQUIRES known() and num_rows > 0.  Where so many rows were not seen: of the numbers
  // between those that were, the roundest (that the highest power of two divides) is the one to try.
  // Each row beyond the number below it adds kRowShare of that one's time, or less if the line to
  // the number above does.  Fewer rows count as that many, more as the number above.  Beyond the
  // largest number seen, multiples of half its highest power of two are tried.
  // Never more than a larger step took: else a number of rows that was slow once would not be tried
  // again.
  double Step(uint32_t num_rows) const;
  double Gap() const { return gap_; }

 private:
  // Low: 24 and 40 rows say nothing of 32, which may take what 24 do.
  static constexpr double kRowShare = 0.01;

  struct Entry {
    double seconds = 0.0;
    uint64_t seen = 0;   // number of the step; 0: never
    uint32_t count = 0;  // steps since it was last not believed
  };
  bool Believed(const Entry& entry) const {
    return entry.seen > 0 && entry.seen + kMaxAge >= num_steps_;
  }

  // Takes in a time of so many rows as the entry has.
  void Follow(Entry& entry, double seconds);
  // What the entries say: `below` and `above` are the numbers of rows nearest to `num_rows` that are
  // believed, or 0 if none is.
  double Estimate(uint32_t num_rows, uint32_t below, uint32_t above) const;

  std::array<Entry, kMostRows + 1> entries_ = {};  // by rows
  std::array<double, kMostRows + 1> steps_ = {};   // by rows: Step
  uint32_t largest_ = 0;  // most rows of an entry that is believed, or 0 if none is
  uint64_t num_steps_ = 0;
  double gap_ = 0.0;
  bool any_gap_ = false;
};

}  // namespace tandem::gateway
