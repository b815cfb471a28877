// Mean power over about the last second, from readings of a counter of joules.
#pragma once

#include <deque>

namespace tandem {

// Pure data: times are given.  Single-thread.
class PowerWindow {
 public:
  static constexpr double kSeconds = 1.0;

  // The counter has reached `joules` at the time `seconds`, later than those before.
  void Add(double seconds, double joules);
  // 0 before the second reading.
  double Watts() const;

 private:
  struct Reading {
    double seconds = 0;
    double joules = 0;
  };
  std::deque<Reading> readings_;  // oldest first; the first is the last from before the window
};

}  // namespace tandem
