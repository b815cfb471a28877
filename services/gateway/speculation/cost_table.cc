#include "services/gateway/speculation/cost_table.h"

#include <algorithm>
#include <limits>

namespace tandem::gateway {
namespace {

constexpr double kStepShare = 0.25;  // of the latest time in the average
constexpr double kGapShare = 1.0 / 16;
// A hiccup counts as at most so many times the average.
constexpr double kMostTimes = 2.0;

}  // namespace

void CostTable::StepTook(uint32_t num_rows, double seconds) {
  ++num_steps_;
  if (num_rows == 0 || num_rows > kMostRows) return;
  Entry& entry = entries_[num_rows];
  if (!Believed(entry)) {
    entry = {.seconds = seconds};
  } else if (entry.count < kEnough) {
    entry.seconds = std::min(entry.seconds, seconds);
  } else {
    entry.seconds += kStepShare * (std::min(seconds, kMostTimes * entry.seconds) - entry.seconds);
  }
  entry.seen = num_steps_;
  ++entry.count;
  double shortest = std::numeric_limits<double>::infinity();
  for (uint32_t rows = kMostRows; rows > 0; --rows) {
    if (Believed(entries_[rows])) shortest = std::min(shortest, entries_[rows].seconds);
    shortest_[rows] = shortest;
  }
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
  const double estimate = Estimate(num_rows);
  return num_rows <= kMostRows ? std::min(estimate, shortest_[num_rows]) : estimate;
}

double CostTable::Estimate(uint32_t num_rows) const {
  uint32_t below = std::min(num_rows, kMostRows);
  while (below > 0 && !Believed(entries_[below])) --below;
  uint32_t above = num_rows + 1;
  while (above <= kMostRows && !Believed(entries_[above])) ++above;
  const bool has_above = above <= kMostRows;
  if (below == num_rows) return entries_[below].seconds;
  // The latest step is always believed unless it was larger than the table.
  if (below == 0) return has_above ? entries_[above].seconds : 0.0;
  const double low = entries_[below].seconds;
  const double assumed = low * (1.0 + kRowShare * (num_rows - below));
  if (!has_above) return assumed;
  const double high = std::max(low, entries_[above].seconds);
  return std::min(assumed, low + (high - low) * (num_rows - below) / (above - below));
}

}  // namespace tandem::gateway
