#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/plan/stage.h"
#include "tools/tandem/bench/bench_report.h"
#include "tools/tandem/printable.h"

namespace tandem {
namespace {

// A table that reads well as text and as Markdown.
class MarkdownTable {
 public:
  // Names of columns; those from `first_right` on are aligned to the right.
  MarkdownTable(std::vector<std::string> names, size_t first_right) : first_right_(first_right) {
    rows_.push_back(std::move(names));
  }

  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string Print() const {
    std::vector<size_t> widths(rows_[0].size(), 4);
    for (const auto& row : rows_) {
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
    }
    std::string text;
    for (size_t r = 0; r < rows_.size(); ++r) {
      text += "|";
      for (size_t c = 0; c < rows_[r].size(); ++c) {
        const std::string fill(widths[c] - Width(rows_[r][c]), ' ');
        const std::string& cell = rows_[r][c];
        text += c >= first_right_ ? " " + fill + cell + " |" : " " + cell + fill + " |";
      }
      text += "\n";
      if (r == 0) text += Rule(widths);
    }
    return text;
  }

 private:
  std::string Rule(const std::vector<size_t>& widths) const {
    std::string text = "|";
    for (size_t c = 0; c < widths.size(); ++c) {
      const bool right = c >= first_right_;
      text += " " + std::string(widths[c] - (right ? 1 : 0), '-') + (right ? ": |" : " |");
    }
    return text + "\n";
  }
  // Characters, not bytes.
  static size_t Width(const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  }

  const size_t first_right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string Size(uint64_t bytes) {
  constexpr double kGib = 1 << 30, kMib = 1 << 20;
  const auto value = static_cast<double>(bytes);
  return value >= kGib ? absl::StrFormat("%.2f GiB", value / kGib)
                       : absl::StrFormat("%.2f MiB", value / kMib);
}

std::string Parameters(uint64_t count) {
  const auto value = static_cast<double>(count);
  return value >= 1e9 ? absl::StrFormat("%.2f B", value * 1e-9)
                      : absl::StrFormat("%.2f M", value * 1e-6);
}

// Three digits, whatever the size.
std::string Per(double value, double unit) {
  const double scaled = value / unit;
  if (scaled < 1) return absl::StrFormat("%.3g", scaled);
  return absl::StrFormat("%.*f", scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2, scaled);
}

std::string Share(double value, std::optional<double> of) {
  if (!of.has_value() || *of <= 0) return "-";
  return absl::StrFormat("%.1f%%", 100 * value / *of);
}

std::string DeviceNames(const BenchReport& report) {
  std::string names;
  for (const BenchDevice& device : report.devices) {
    if (!names.empty()) names += " + ";
    names += DeviceText(device.device, device.kind, device.emulated);
  }
  return names;
}

std::string RateTable(const BenchReport& report) {
  MarkdownTable table({"model", "size", "params", "device", "test", "t/s", "first token s"}, 4);
  for (const BenchResult& result : report.results) {
    const Spread rate = result.rate();
    const Spread first = SpreadOf(result.first_token_seconds);
    table.Add({report.model + " " + report.weight_format, Size(report.weight_bytes),
               Parameters(report.parameters), DeviceNames(report), result.test.Name(),
               absl::StrFormat("%.2f ± %.2f", rate.mean, rate.deviation),
               absl::StrFormat("%.3f", first.mean)});
  }
  return table.Print();
}

std::string WorkTable(const BenchReport& report) {
  const BenchDevice* device = report.measured_device();
  const bool has_energy = report.no_energy.empty();
  std::vector<std::string> names = {"test",     "ms/step",         "GB/s",
                                    "of read",  "TFLOP/s",         "of peak",
                                    "device %", "outside us/step", "queued %"};
  if (has_energy) names.insert(names.end(), {"J", "J/token"});
  MarkdownTable table(names, 1);
  for (const BenchResult& result : report.results) {
    const double steps = std::max<double>(1, static_cast<double>(result.steps));
    std::vector<std::string> cells = {
        result.test.Name(),
        absl::StrFormat("%.3f", 1e3 * result.seconds / steps),
        Per(result.bytes_per_second(), 1e9),
        device == nullptr ? "-" : Share(result.bytes_per_second(), device->read_bytes_per_second),
        Per(result.flops_per_second(), 1e12),
        device == nullptr ? "-" : Share(result.flops_per_second(), device->best_flops_per_second()),
        absl::StrFormat("%.1f", 100 * result.device_share()),
        absl::StrFormat("%.1f", 1e6 * result.outside_seconds() / steps),
        absl::StrFormat("%.0f", 100 * static_cast<double>(result.steps_queued) / steps)};
    if (has_energy) {
      double joules = 0;
      for (const EnergyReading& energy : result.energy) joules += energy.joules;
      cells.push_back(result.energy.empty() ? "-" : absl::StrFormat("%.2f", joules));
      cells.push_back(result.energy.empty() ? "-"
                                            : absl::StrFormat("%.3g", joules / result.tokens));
    }
    table.Add(std::move(cells));
  }
  return table.Print();
}

// A part's time for each picture that was encoded.
std::string PerPicture(double seconds, uint64_t encoded) {
  return encoded == 0 ? "-" : absl::StrFormat("%.2f", 1e3 * seconds / static_cast<double>(encoded));
}

std::string PictureTable(const BenchReport& report) {
  MarkdownTable table({"pictures", "first token s", "pictures/s", "again s", "of first",
                       "decode ms", "prepare ms", "encode ms"},
                      1);
  for (const BenchPictureResult& result : report.pictures) {
    const double first = SpreadOf(result.first.first_token_seconds).mean;
    const double again = SpreadOf(result.again.first_token_seconds).mean;
    table.Add({result.test.Name(), absl::StrFormat("%.3f", first),
               absl::StrFormat("%.2f ± %.2f", result.rate().mean, result.rate().deviation),
               absl::StrFormat("%.3f", again), Share(again, first),
               PerPicture(result.first.decode_seconds, result.first.encoded),
               PerPicture(result.first.prepare_seconds, result.first.encoded),
               PerPicture(result.first.encode_seconds, result.first.encoded)});
  }
  return table.Print();
}

// Those that any worker has spent time on, in the model's order.
std::vector<std::string> StagesOf(const BenchReport& report) {
  std::vector<std::string> stages;
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    std::string name(StageKindName(static_cast<StageKind>(kind)));
    bool seen = false;
    for (const BenchResult& result : report.results) {
      for (const BenchWorkerTime& worker : result.workers) seen |= worker.stages.contains(name);
    }
    if (seen) stages.push_back(std::move(name));
  }
  return stages;
}

std::string StageTable(const BenchReport& report) {
  const std::vector<std::string> stages = StagesOf(report);
  std::vector<std::string> names = {"ms/step", "worker", "calls/step", "device", "hop and host"};
  names.insert(names.end(), stages.begin(), stages.end());
  MarkdownTable table(names, 2);
  for (const BenchResult& result : report.results) {
    const double steps = std::max<double>(1, static_cast<double>(result.steps));
    const auto per_step = [steps](double seconds) {
      return absl::StrFormat("%.3f", 1e3 * seconds / steps);
    };
    for (const BenchWorkerTime& worker : result.workers) {
      std::vector<std::string> cells = {
          result.test.Name(), worker.worker,
          absl::StrFormat("%.1f", static_cast<double>(worker.calls) / steps),
          per_step(worker.device_seconds),
          per_step(std::max(0.0, worker.round_trip_seconds - worker.device_seconds))};
      for (const std::string& stage : stages) {
        const auto it = worker.stages.find(stage);
        cells.push_back(it == worker.stages.end() ? "-" : per_step(it->second));
      }
      table.Add(std::move(cells));
    }
  }
  return table.Print();
}

std::string Ceilings(const BenchDevice& device) {
  if (!device.read_bytes_per_second.has_value()) {
    return "not measured (" + device.not_measured + ")";
  }
  std::string text =
      absl::StrFormat("reads %s GB/s, float32 %s TFLOP/s", Per(*device.read_bytes_per_second, 1e9),
                      Per(device.fma_flops_per_second.value_or(0), 1e12));
  if (device.matrix_flops_per_second.has_value()) {
    text += absl::StrFormat(", matrix units %s TFLOP/s (float16)",
                            Per(*device.matrix_flops_per_second, 1e12));
  } else {
    text += ", no matrix units";
  }
  return text;
}

std::string Footer(const BenchReport& report) {
  std::string text;
  for (const BenchDevice& device : report.devices) {
    text += absl::StrFormat("- %s, %s: %s; hop p50 %.1f us, p99 %.1f us\n", device.worker,
                            DeviceText(device.device, device.kind, device.emulated),
                            Ceilings(device), device.hop_p50_us, device.hop_p99_us);
  }
  text += absl::StrFormat("- placement: %s; version %s\n", report.placement, report.version);
  text += absl::StrFormat(
      "- %d repetitions, mean ± standard deviation%s; %.0f bytes written for a step\n",
      report.options.repetitions, report.options.warm_up ? " after a warm-up" : ", no warm-up",
      report.bytes_per_step);
  if (report.no_energy.empty()) {
    std::set<std::string> sensors;
    for (const BenchResult& result : report.results) {
      for (const EnergyReading& energy : result.energy) sensors.insert(energy.sensor);
    }
    text += "- energy of";
    for (const std::string& sensor : sensors) text += " " + sensor + ";";
    text.back() = '\n';
  } else {
    text += "- energy: not reported (" + report.no_energy + ")\n";
  }
  if (!report.pictures.empty()) {
    text += absl::StrFormat(
        "- pictures: PNG of %d x %d pixels; again: another question about them; decode, prepare "
        "and "
        "encode: by the gateway's clocks, for each picture\n",
        report.options.image_side, report.options.image_side);
  }
  for (const BenchPictureResult& result : report.pictures) {
    if (result.again.encoded == 0) continue;
    text += absl::StrFormat(
        "- %s: %d pictures were encoded again for the other question: the gateway's cache of "
        "pictures is too small for this test\n",
        result.test.Name(), result.again.encoded);
  }
  for (const BenchResult& result : report.results) {
    if (result.preemptions == 0) continue;
    text += absl::StrFormat(
        "- %s: %d sequences were preempted because KV blocks ran out, which the figures include; "
        "--kv-tokens makes room\n",
        result.test.Name(), result.preemptions);
  }
  for (const BenchResult& result : report.results) {
    if (result.guesses_verified == 0) continue;
    text +=
        absl::StrFormat("- %s: %d of %d guesses were accepted, %.2f tokens a step and sequence\n",
                        result.test.Name(), result.guesses_accepted, result.guesses_verified,
                        result.tokens / static_cast<double>(result.steps * result.test.batch));
  }
  return text;
}

}  // namespace

std::string ReportAsMarkdown(const BenchReport& report) {
  std::string text;
  if (!report.results.empty()) {
    text = RateTable(report) + "\n" + WorkTable(report) + "\n" + StageTable(report) + "\n";
  }
  if (!report.pictures.empty()) text += PictureTable(report) + "\n";
  return text + Footer(report);
}

}  // namespace tandem
