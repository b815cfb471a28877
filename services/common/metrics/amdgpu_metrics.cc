#include "services/common/metrics/amdgpu_metrics.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::optional<double> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// "card0" and the like, in order; connectors ("card0-DP-1") are not among them.
std::vector<fs::path> Cards(const std::string& root) {
  std::vector<fs::path> cards;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / "sys/class/drm", error)) {
    const std::string name = entry.path().filename();
    const bool is_card =
        name.starts_with("card") && name.size() > 4 &&
        std::all_of(name.begin() + 4, name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_card && fs::exists(entry.path() / "device/gpu_busy_percent", error)) {
      cards.push_back(entry.path());
    }
  }
  std::sort(cards.begin(), cards.end());
  return cards;
}

void AddHwmon(const fs::path& device, const std::string& card, MetricSamples& samples) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(device / "hwmon", error)) {
    // Newer kernels have the input, older ones the average; microwatts both.
    std::optional<double> power = ReadNumber(entry.path() / "power1_input");
    if (!power.has_value()) power = ReadNumber(entry.path() / "power1_average");
    if (power.has_value()) samples.Add(AmdgpuMetrics::kPower, *power * 1e-6, {card});
    if (const auto millidegrees = ReadNumber(entry.path() / "temp1_input")) {
      samples.Add(AmdgpuMetrics::kTemperature, *millidegrees * 1e-3, {card});
    }
    return;
  }
}

}  // namespace

std::vector<MetricSpec> AmdgpuMetrics::All() {
  return {kBusy, kMemoryUsed, kMemoryTotal, kPower, kTemperature};
}

void AddAmdgpuMetrics(const std::string& root, MetricSamples& samples) {
  for (const fs::path& path : Cards(root)) {
    const std::string card = path.filename();
    const fs::path device = path / "device";
    if (const auto percent = ReadNumber(device / "gpu_busy_percent")) {
      samples.Add(AmdgpuMetrics::kBusy, *percent / 100, {card});
    }
    for (const char* heap : {"vram", "gtt"}) {
      const std::string prefix = std::string("mem_info_") + heap;
      if (const auto used = ReadNumber(device / (prefix + "_used"))) {
        samples.Add(AmdgpuMetrics::kMemoryUsed, *used, {card, heap});
      }
      if (const auto total = ReadNumber(device / (prefix + "_total"))) {
        samples.Add(AmdgpuMetrics::kMemoryTotal, *total, {card, heap});
      }
    }
    AddHwmon(device, card, samples);
  }
}

}  // namespace tandem
