#include "services/gateway/placement/costs_file.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/json/guarded_json.h"

namespace tandem::gateway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr size_t kMostKeys = 64;
constexpr char kPlacements[] = "placements";

Json ToJson(const StepSeconds& seconds) {
  Json json = {{"device", seconds.device}, {"other", seconds.other}};
  if (!seconds.watts.empty()) json["watts"] = seconds.watts;
  return json;
}

Json ToJson(const PlacementCosts& costs) {
  return {{"prompt_rows", costs.prompt_rows},
          {"streams", costs.streams},
          {"depth", costs.depth},
          {"prompt", ToJson(costs.prompt)},
          {"lone", ToJson(costs.lone)},
          {"full", ToJson(costs.full)}};
}

// Of a time or a power.
bool IsSane(double value) { return std::isfinite(value) && value >= 0.0; }

// False: it makes no sense.
bool Read(const Json& json, size_t num_workers, StepSeconds& seconds) {
  seconds.device = json.at("device").get<std::vector<double>>();
  seconds.other = json.at("other").get<double>();
  // Entries from before power was measured have none.
  seconds.watts = json.value("watts", std::vector<double>());
  if (!seconds.watts.empty() && seconds.watts.size() != num_workers) return false;
  return seconds.device.size() == num_workers && std::ranges::all_of(seconds.device, IsSane) &&
         std::ranges::all_of(seconds.watts, IsSane) && IsSane(seconds.other) &&
         seconds.Total() > 0.0;
}

std::optional<PlacementCosts> ReadCosts(const Json& json, size_t num_workers) {
  try {
    PlacementCosts costs{.prompt_rows = json.at("prompt_rows").get<uint32_t>(),
                         .streams = json.at("streams").get<uint32_t>(),
                         .depth = json.at("depth").get<uint32_t>()};
    const bool good = costs.prompt_rows > 0 && costs.streams > 0 &&
                      Read(json.at("prompt"), num_workers, costs.prompt) &&
                      Read(json.at("lone"), num_workers, costs.lone) &&
                      Read(json.at("full"), num_workers, costs.full);
    if (good) return costs;
  } catch (const Json::exception&) {
    // Another program wrote it.
  }
  return std::nullopt;
}

// By key, the oldest first.
Json ReadPlacements(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto json = ParseGuardedJson(text);
  if (!json.ok() || !json->is_object() || json->value("version", Json()) != kVersion) {
    return Json::object();
  }
  Json placements = json->value(kPlacements, Json::object());
  return placements.is_object() ? placements : Json::object();
}

}  // namespace

std::optional<PlacementCosts> CostsFile::Find(const std::string& key, size_t num_workers) const {
  if (path_.empty()) return std::nullopt;
  const Json placements = ReadPlacements(path_);
  const auto found = placements.find(key);
  if (found == placements.end()) return std::nullopt;
  return ReadCosts(*found, num_workers);
}

absl::Status CostsFile::Put(const std::string& key, const PlacementCosts& costs) const {
  if (path_.empty()) return absl::OkStatus();
  Json placements = ReadPlacements(path_);
  placements.erase(key);
  placements[key] = ToJson(costs);
  while (placements.size() > kMostKeys) placements.erase(placements.begin());
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const std::string written = absl::StrCat(path_, ".new");
  std::ofstream file(written, std::ios::binary | std::ios::trunc);
  file << Json{{"version", kVersion}, {kPlacements, std::move(placements)}}.dump(1) << '\n';
  file.close();
  if (!file) return absl::UnavailableError(absl::StrFormat("cannot write %s", written));
  std::filesystem::rename(written, path_, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrFormat("cannot rename %s: %s", written, error.message()));
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway
