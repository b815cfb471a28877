#include "services/gateway/engine/step_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tandem::gateway {
namespace {

// Of the latest time in an average.  More if it is less: what made a step slow, such as its first
// run, is soon forgotten.
constexpr double kTimeShare = 0.25, kLessTimeShare = 0.5;
// A hiccup counts as at most so many times the average.
constexpr double kMostHiccup = 2.0;

}  // namespace

size_t RowSeconds::BucketOf(uint32_t rows) {
  if (rows < 2) return 0;
  const auto octave = static_cast<size_t>(std::bit_width(rows)) - 1;
  return 2 * octave + ((rows >> (octave - 1)) & 1);
}

void RowSeconds::Took(uint32_t rows, double seconds) {
  Entry& entry = entries_[BucketOf(rows)];
  any_ = true;
  if (!entry.seen) {
    entry = {.rows = static_cast<double>(rows), .seconds = seconds, .seen = true};
    return;
  }
  entry.rows += kTimeShare * (rows - entry.rows);
  const double more = std::min(seconds, kMostHiccup * entry.seconds) - entry.seconds;
  entry.seconds += (more < 0.0 ? kLessTimeShare : kTimeShare) * more;
}

double RowSeconds::Of(uint32_t rows, bool proportional) const {
  const double x = rows;
  const Entry* below = nullptr;  // the nearest two with fewer rows, and one with more
  const Entry* further = nullptr;
  const Entry* above = nullptr;
  for (const Entry& entry : entries_) {
    if (!entry.seen) continue;
    if (entry.rows > x) {
      above = &entry;
      break;
    }
    further = below;
    below = &entry;
  }
  const auto slope = [](const Entry& a, const Entry& b) {
    return std::max(b.seconds - a.seconds, 0.0) / (b.rows - a.rows);
  };
  if (below == nullptr) {
    return proportional ? above->seconds * x / above->rows : above->seconds;
  }
  if (above != nullptr) return below->seconds + slope(*below, *above) * (x - below->rows);
  if (further != nullptr) return below->seconds + slope(*further, *below) * (x - below->rows);
  return proportional ? below->seconds * x / below->rows : below->seconds;
}

uint32_t RowSeconds::MostRows() const {
  for (size_t b = entries_.size(); b-- > 0;) {
    if (entries_[b].seen) return static_cast<uint32_t>(std::lround(entries_[b].rows));
  }
  return 0;
}

void StepCosts::StepTook(uint32_t decode_rows, uint32_t prompt_rows, double seconds) {
  ++num_steps_;
  if (prompt_rows == 0) {
    if (decode_rows > 0) decode_.Took(decode_rows, seconds);
  } else if (decode_rows == 0) {
    alone_.Took(prompt_rows, seconds);
  } else {
    const double decode = decode_.known() ? decode_.Of(decode_rows, false) : 0.0;
    beside_.Took(prompt_rows, std::max(seconds - decode, 0.0));
  }
}

double StepCosts::Beside(uint32_t prompt_rows) const {
  if (beside_.known()) return beside_.Of(prompt_rows, true);
  if (alone_.known()) return alone_.Of(prompt_rows, true);
  return decode_.Of(prompt_rows, true);
}

double StepCosts::Step(uint32_t decode_rows, uint32_t prompt_rows) const {
  if (decode_rows == 0) {
    return alone_.known() ? alone_.Of(prompt_rows, true) : Beside(prompt_rows);
  }
  const double beside = prompt_rows > 0 ? Beside(prompt_rows) : 0.0;
  if (decode_.known()) return decode_.Of(decode_rows, false) + beside;
  return prompt_rows > 0 ? beside : alone_.Of(decode_rows, false);
}

uint32_t StepCosts::PromptRowsWithin(uint32_t decode_rows, double seconds, uint32_t most) const {
  if (!decode_.known() || !beside_.known()) return 0;
  uint32_t fits = 0;
  uint32_t too_many = std::min(most, 2 * beside_.MostRows()) + 1;
  while (too_many - fits > 1) {
    const uint32_t middle = fits + (too_many - fits) / 2;
    (Step(decode_rows, middle) <= seconds ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace tandem::gateway
