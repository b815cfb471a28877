#include "tools/tandem/bench/compare.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/text_table.h"

namespace tandem {
namespace {

struct Earlier {
  double rate = 0;
  double deviation = 0;
  size_t samples = 0;
};

std::string Difference(const Earlier& then, const std::vector<double>& rates) {
  if (then.samples < 2 || rates.size() < 2) return "spread unknown: one repetition";
  const Spread rate = SpreadOf(rates);
  const double beyond = std::abs(rate.mean - then.rate) - (rate.deviation + then.deviation);
  if (beyond <= 0) return "within the spread";
  return rate.mean > then.rate ? "faster" : "slower";
}

}  // namespace

absl::StatusOr<std::string> Compare(const std::string& earlier, const std::string& name,
                                    const BenchReport& now) {
  std::map<std::string, Earlier> tests;
  std::vector<std::string> notes;
  try {
    const auto json = nlohmann::json::parse(earlier);
    for (const auto& test : json.at("tests")) {
      tests[test.at("test").get<std::string>()] = {test.at("tokens_per_second").get<double>(),
                                                   test.at("deviation").get<double>(),
                                                   test.at("samples").size()};
    }
    for (const auto& test : json.value("pictures", nlohmann::json::array())) {
      tests[test.at("test").get<std::string>()] = {test.at("pictures_per_second").get<double>(),
                                                   test.at("deviation").get<double>(),
                                                   test.at("samples").size()};
    }
    const auto note = [&](const char* what, const std::string& then, const std::string& is) {
      if (then != is) notes.push_back(absl::StrFormat("%s: was %s, is %s", what, then, is));
    };
    note("model", json.at("model").get<std::string>(), now.model);
    note("weights", json.at("weight_format").get<std::string>(), now.weight_format);
    note("placement", json.at("placement").get<std::string>(), now.placement);
    std::vector<std::string> then_devices, devices;
    for (const auto& device : json.at("devices")) then_devices.push_back(device.at("device"));
    for (const BenchDevice& device : now.devices) devices.push_back(device.device);
    note("devices", absl::StrJoin(then_devices, " + "), absl::StrJoin(devices, " + "));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not what tandem bench --json prints: %s", name, error.what()));
  }
  TextTable table({false, true, true, true, false});
  table.Add({"test", name, "now", "ratio", ""});
  const auto add = [&](const std::string& test, const std::vector<double>& rates) {
    const auto then = tests.find(test);
    if (then == tests.end()) {
      notes.push_back(test + ": not in " + name);
      return;
    }
    const double rate = SpreadOf(rates).mean;
    table.Add({test, absl::StrFormat("%.2f", then->second.rate), absl::StrFormat("%.2f", rate),
               then->second.rate > 0 ? absl::StrFormat("%.3f", rate / then->second.rate) : "-",
               Difference(then->second, rates)});
    tests.erase(then);
  };
  for (const BenchResult& result : now.results) add(result.test.Name(), result.rates);
  for (const BenchPictureResult& result : now.pictures) add(result.test.Name(), result.rates);
  for (const auto& entry : tests) notes.push_back(entry.first + ": not measured now");
  std::string text = table.Print();
  for (const std::string& line : notes) text += line + "\n";
  return text;
}

}  // namespace tandem
