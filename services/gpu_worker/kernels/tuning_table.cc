#include "services/gpu_worker/kernels/tuning_table.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "absl/strings/str_format.h"
#include "services/gpu_worker/kernels/launch.h"

namespace tandem::gpu {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 3;
constexpr uint64_t kMostBytes = 1 << 20;  // of a file

// FNV-1a (Fowler, Noll, Vo): tells apart what has not been made to look alike.
class Fnv {
 public:
  void Add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      hash_ = (hash_ ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
    }
  }
  void Add(const std::string& text) {
    Add(std::as_bytes(std::span(text.data(), text.size() + 1)));  // the end counts
  }
  std::string Hex() const { return absl::StrFormat("%016x", hash_); }

 private:
  uint64_t hash_ = 0xCBF29CE484222325;
};

std::string KernelsHash() {
  Fnv hash;
  for (int i = 0; i < kNumKernels; ++i) {
    hash.Add(std::as_bytes(Traits(static_cast<KernelId>(i)).spirv));
  }
  return hash.Hex();
}

absl::Status Differs(const char* what, const std::string& table, const std::string& here) {
  if (table == here) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("it was measured with %s \"%s\", here is \"%s\"", what, table, here));
}

}  // namespace

std::string TuningKey::FileName() const {
  Fnv hash;
  for (const std::string* part : {&device, &driver, &kernels, &shapes}) hash.Add(*part);
  return "tuning-" + hash.Hex() + ".json";
}

TuningKey MakeTuningKey(const vulkan::DeviceInfo& info, std::string shapes) {
  return {.device = info.name,
          .driver = absl::StrFormat("%s (%08x)", info.driver, info.driver_version),
          .kernels = KernelsHash(),
          .shapes = std::move(shapes)};
}

std::string ShapesOf(const std::vector<const PackedTensor*>& tensors) {
  std::vector<std::string> seen;
  std::string shapes;
  for (const PackedTensor* tensor : tensors) {
    if (IsNorm(tensor->role)) continue;
    for (const Shard& shard : tensor->shards) {
      std::string shape = absl::StrFormat("%s %s %dx%d", std::string(WeightRoleName(tensor->role)),
                                          std::string(Traits(shard.dtype).name), tensor->shape.rows,
                                          tensor->shape.cols);
      if (std::ranges::find(seen, shape) != seen.end()) continue;
      shapes += (shapes.empty() ? "" : ", ") + shape;
      seen.push_back(std::move(shape));
    }
  }
  return shapes;
}

std::string ToJson(const TuningTable& table) {
  Json json = {{"format", kFormat},          {"device", table.key.device},
               {"driver", table.key.driver}, {"kernels", table.key.kernels},
               {"shapes", table.key.shapes}, {"made_by", table.made_by},
               {"settings", table.settings}, {"trials", Json::array()}};
  for (const TuningTrial& trial : table.trials) {
    Json time = Json::object();
    for (const auto& [value, relative] : trial.time) time[absl::StrFormat("%d", value)] = relative;
    json["trials"].push_back({{"setting", trial.setting},
                              {"cases", trial.cases},
                              {"chosen", trial.chosen},
                              {"time", std::move(time)}});
  }
  return json.dump(2) + "\n";
}

absl::StatusOr<TuningTable> ParseTuningTable(const std::string& text, const std::string& name) {
  try {
    const Json json = Json::parse(text);
    if (const int format = json.at("format").get<int>(); format != kFormat) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: format %d, this program reads %d", name, format, kFormat));
    }
    TuningTable table;
    table.key = {.device = json.at("device"),
                 .driver = json.at("driver"),
                 .kernels = json.at("kernels"),
                 .shapes = json.at("shapes")};
    table.made_by = json.at("made_by");
    table.settings = json.at("settings").get<std::map<std::string, uint32_t>>();
    for (const Json& trial : json.at("trials")) {
      table.trials.push_back({.setting = trial.at("setting"),
                              .cases = trial.at("cases").get<std::vector<std::string>>(),
                              .chosen = trial.at("chosen")});
      for (const auto& [value, relative] : trial.at("time").items()) {
        table.trials.back().time[static_cast<uint32_t>(std::stoul(value))] = relative;
      }
    }
    return table;
  } catch (const std::exception& error) {  // of the JSON library, and of std::stoul
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not a table of tuning: %s", name, error.what()));
  }
}

absl::Status ApplyTuningTable(const TuningTable& table, const TuningKey& key,
                              const vulkan::DeviceInfo& info, Tuning& tuning) {
  for (const absl::Status& status : {Differs("device", table.key.device, key.device),
                                     Differs("driver", table.key.driver, key.driver),
                                     Differs("kernels", table.key.kernels, key.kernels),
                                     Differs("shapes", table.key.shapes, key.shapes)}) {
    if (!status.ok()) return status;
  }
  Tuning changed = tuning;
  const std::vector<TuningSetting> settings = TuningSettings(info, tuning);
  for (const auto& entry : table.settings) {
    const auto setting = std::ranges::find(settings, entry.first, &TuningSetting::name);
    if (setting == settings.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("there is no setting %s here", entry.first));
    }
    if (std::ranges::find(setting->values, entry.second) == setting->values.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is %d, which no kernel takes here", entry.first, entry.second));
    }
    setting->of(changed) = entry.second;
  }
  tuning = std::move(changed);
  return absl::OkStatus();
}

absl::StatusOr<TuningTable> ReadTuningTable(const std::string& folder, const TuningKey& key) {
  const std::string path = folder + "/" + key.FileName();
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrFormat("%s: %s", path, error.message()));
  if (bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d bytes, too long", path, bytes));
  }
  std::ifstream file(path, std::ios::binary);
  return ParseTuningTable(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

absl::Status WriteTuningTable(const std::string& folder, const TuningTable& table) {
  const std::string path = folder + "/" + table.key.FileName();
  const std::string part = absl::StrFormat("%s.%d", path, ::getpid());
  std::error_code error;
  fs::create_directories(folder, error);
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file << ToJson(table);
    if (!file.flush()) {
      fs::remove(part, error);
      return absl::InternalError(absl::StrFormat("cannot write %s", part));
    }
  }
  fs::rename(part, path, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("cannot rename %s: %s", part, error.message()));
}

}  // namespace tandem::gpu
