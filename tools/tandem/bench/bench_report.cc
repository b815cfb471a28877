#include "tools/tandem/bench/bench_report.h"

#include <algorithm>
#include <cmath>

namespace tandem {

Spread SpreadOf(const std::vector<double>& values) {
  Spread spread;
  if (values.empty()) return spread;
  for (const double value : values) spread.mean += value;
  spread.mean /= static_cast<double>(values.size());
  if (values.size() < 2) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return spread;
}

double BenchResult::device_seconds() const {
  double sum = 0;
  for (const BenchWorkerTime& worker : workers) sum += worker.device_seconds;
  return sum;
}

double BenchResult::device_share() const {
  return counted_seconds > 0 ? device_seconds() / counted_seconds : 0;
}

double BenchResult::outside_seconds() const {
  return std::max(0.0, counted_seconds - device_seconds());
}

const BenchDevice* BenchReport::measured_device() const {
  const BenchDevice* found = nullptr;
  for (const BenchDevice& device : devices) {
    if (!device.read_bytes_per_second.has_value()) continue;
    if (found != nullptr) return nullptr;
    found = &device;
  }
  return found;
}

}  // namespace tandem
