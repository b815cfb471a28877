#include "services/common/energy/power_window.h"

#include <algorithm>

namespace tandem {

void PowerWindow::Add(double seconds, double joules) {
  readings_.push_back({seconds, joules});
  while (readings_.size() > 2 && readings_[1].seconds <= seconds - kSeconds) readings_.pop_front();
}

double PowerWindow::Watts() const {
  if (readings_.size() < 2) return 0.0;
  const double seconds = readings_.back().seconds - readings_.front().seconds;
  const double joules = readings_.back().joules - readings_.front().joules;
  return seconds > 0.0 ? std::max(0.0, joules / seconds) : 0.0;
}

}  // namespace tandem
