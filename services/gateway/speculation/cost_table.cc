#include "services/gateway/speculation/cost_table.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tandem::gateway {
namespace {

constexpr double kStepShare = 0.25;  // of the latest time in the average
constexpr double kGapShare = 1.0 / 16;
// A hiccup counts as at most so many times the average.
constexpr double kMostTimes = 2.0;

// The number between two, exclusive, that the highest power of two divides.
uint32_t RoundestBetween(uint32_t below, uint32_t above) {
  uint32_t power = std::bit_floor(above - 1);
  while ((above - 1) / power * power <= below) power /= 2;
  return (above - 1) / power * power;
}

}  // namespace

void CostTable::StepTook(uint32_t num_rows, double seconds) {
  ++num_steps_;
  if (num_rows > 0 && num_rows <= kMostRows) Follow(entries_[num_rows], seconds);
  std::array<uint32_t, kMostRows + 1> below;
  below[0] = 0;
  for (uint32_t rows = 1; rows <= kMostRows; ++rows) {
    below[rows] = Believed(entries_[rows]) ? rows : below[rows - 1];
  }
  largest_ = below[kMostRows];
  double shortest = std::numeric_limits<double>::infinity();
  uint32_t above = 0;
  for (uint32_t rows = kMostRows; rows > 0; --rows) {
    if (below[rows] == rows) shortest = std::min(shortest, entries_[rows].seconds);
    steps_[rows] = std::min(Estimate(rows, below[rows], above), shortest);
    if (below[rows] == rows) above = rows;
  }
}

void CostTable::Follow(Entry& entry, double seconds) {
  if (!Believed(entry)) {
    entry = {.seconds = seconds};
  } else if (entry.count < kEnough) {
    entry.seconds = std::min(entry.seconds, seconds);
  } else {
    entry.seconds += kStepShare * (std::min(seconds, kMostTimes * entry.seconds) - entry.seconds);
  }
  entry.seen = num_steps_;
  ++entry.count;
}

void CostTable::GapTook(double seconds) {
  if (any_gap_) {
    gap_ += kGapShare * (std::min(seconds, kMostTimes * gap_ + 1e-5) - gap_);
  } else {
    gap_ = seconds;
  }
  any_gap_ = true;
}

double CostTable::StepAtLeast(uint32_t num_rows) const {
  if (num_rows > kMostRows || Measured(num_rows)) return Step(num_rows);
  double least = 0.0;
  for (uint32_t rows = 1; rows <= kMostRows; ++rows) {
    if (!Measured(rows)) continue;
    const double share = std::min(1.0, static_cast<double>(num_rows) / rows);
    least = std::max(least, share * entries_[rows].seconds);
  }
  return least;
}

double CostTable::Step(uint32_t num_rows) const {
  return num_rows <= kMostRows ? steps_[num_rows] : Estimate(num_rows, largest_, 0);
}

double CostTable::Estimate(uint32_t num_rows, uint32_t below, uint32_t above) const {
  // The latest step is always believed unless it was larger than the table.
  if (below == 0) return entries_[above].seconds;
  const double low = entries_[below].seconds;
  if (below == num_rows) return low;
  if (above == 0) {
    const uint32_t grain = std::max(1u, std::bit_floor(below) / 2);
    const uint32_t tried = (num_rows + grain - 1) / grain * grain;
    return low * (1.0 + kRowShare * (tried - below));
  }
  const double high = std::max(low, entries_[above].seconds);
  const uint32_t tried = RoundestBetween(below, above);
  if (num_rows > tried) return high;
  const double line = low + (high - low) * (tried - below) / (above - below);
  return std::min(low * (1.0 + kRowShare * (tried - below)), line);
}

}  // namespace tandem::gateway
