#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/tandem/bench/bench_report.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json DeviceJson(const BenchDevice& device) {
  Json json = {{"worker", device.worker},
               {"device", device.device},
               {"kind", device.kind},
               {"emulated", device.emulated},
               {"read_bytes_per_second", OrNull(device.read_bytes_per_second)},
               {"fma_flops_per_second", OrNull(device.fma_flops_per_second)},
               {"matrix_flops_per_second", OrNull(device.matrix_flops_per_second)},
               {"hop_p50_us", device.hop_p50_us},
               {"hop_p99_us", device.hop_p99_us}};
  if (!device.not_measured.empty()) json["not_measured"] = device.not_measured;
  return json;
}

Json ResultJson(const BenchReport& report, const BenchResult& result) {
  const Spread rate = result.rate();
  Json json = {{"test", result.test.Name()},
               {"prompt", result.test.is_prompt},
               {"tokens", result.test.tokens},
               {"batch", result.test.batch},
               {"depth", result.test.depth},
               {"tokens_per_second", rate.mean},
               {"deviation", rate.deviation},
               {"samples", result.rates},
               {"first_token_seconds", SpreadOf(result.first_token_seconds).mean},
               {"seconds", result.seconds},
               {"steps", result.steps},
               {"steps_queued", result.steps_queued},
               {"bytes_per_second", result.bytes_per_second()},
               {"flops_per_second", result.flops_per_second()}};
  if (const BenchDevice* device = report.measured_device(); device != nullptr) {
    json["share_of_read"] = result.bytes_per_second() / *device->read_bytes_per_second;
    if (device->best_flops_per_second().has_value()) {
      json["share_of_peak"] = result.flops_per_second() / *device->best_flops_per_second();
    }
  }
  json["device_seconds"] = result.device_seconds();
  json["device_share"] = result.device_share();
  json["preemptions"] = result.preemptions;
  json["guesses_verified"] = result.guesses_verified;
  json["guesses_accepted"] = result.guesses_accepted;
  json["workers"] = Json::array();
  for (const BenchWorkerTime& worker : result.workers) {
    json["workers"].push_back({{"worker", worker.worker},
                               {"calls", worker.calls},
                               {"device_seconds", worker.device_seconds},
                               {"round_trip_seconds", worker.round_trip_seconds},
                               {"stage_seconds", worker.stages}});
  }
  if (result.energy.empty()) return json;
  double joules = 0;
  for (const EnergyReading& energy : result.energy) {
    json["energy"].push_back({{"sensor", energy.sensor}, {"joules", energy.joules}});
    joules += energy.joules;
  }
  json["joules_per_token"] = joules / result.tokens;
  return json;
}

Json PictureTimesJson(const BenchPictureTimes& times) {
  return {{"first_token_seconds", SpreadOf(times.first_token_seconds).mean},
          {"encoded", times.encoded},
          {"cached", times.cached},
          {"cached_tokens", times.cached_tokens},
          {"decode_seconds", times.decode_seconds},
          {"prepare_seconds", times.prepare_seconds},
          {"encode_seconds", times.encode_seconds}};
}

Json PictureJson(const BenchPictureResult& result) {
  return {{"test", result.test.Name()},
          {"images", result.test.images},
          {"batch", result.test.batch},
          {"pictures_per_second", result.rate().mean},
          {"deviation", result.rate().deviation},
          {"samples", result.rates},
          {"first", PictureTimesJson(result.first)},
          {"again", PictureTimesJson(result.again)}};
}

// What a line of CSV is made of.
using Cells = std::vector<std::string>;

constexpr char kTestColumns[] =
    "model,weight_format,weight_bytes,parameters,placement,test,tokens,batch,depth,"
    "tokens_per_second,deviation,repetitions,first_token_seconds,seconds,steps,"
    "steps_queued,bytes_per_second,flops_per_second,device_seconds,joules_per_token";
// Behind those where there are pictures.
constexpr char kPictureColumns[] =
    ",images,image_side,pictures_per_second,pictures_deviation,again_first_token_seconds,"
    "pictures_encoded,again_encoded,again_cached_tokens,decode_seconds,prepare_seconds,"
    "encode_seconds";
constexpr size_t kNumPictureColumns = 11;

std::string Figure(double value) { return absl::StrFormat("%.6g", value); }
std::string Count(uint64_t value) { return absl::StrFormat("%d", value); }

Cells TestCells(const BenchReport& report, const BenchResult& result) {
  const Spread rate = result.rate();
  double joules = 0;
  for (const EnergyReading& energy : result.energy) joules += energy.joules;
  Cells cells = {report.model,
                 report.weight_format,
                 Count(report.weight_bytes),
                 Count(report.parameters),
                 report.placement,
                 result.test.Name(),
                 Count(result.test.tokens),
                 Count(result.test.batch),
                 Count(result.test.depth),
                 Figure(rate.mean),
                 Figure(rate.deviation),
                 Count(result.rates.size()),
                 Figure(SpreadOf(result.first_token_seconds).mean),
                 Figure(result.seconds),
                 Count(result.steps),
                 Count(result.steps_queued),
                 Figure(result.bytes_per_second()),
                 Figure(result.flops_per_second()),
                 Figure(result.device_seconds()),
                 result.energy.empty() ? "" : Figure(joules / result.tokens)};
  if (!report.pictures.empty()) cells.resize(cells.size() + kNumPictureColumns);
  return cells;
}

// Columns of tokens and steps stay empty.
Cells PictureCells(const BenchReport& report, const BenchPictureResult& result) {
  return {report.model,
          report.weight_format,
          Count(report.weight_bytes),
          Count(report.parameters),
          report.placement,
          result.test.Name(),
          "",
          Count(result.test.batch),
          "",
          "",
          "",
          Count(result.rates.size()),
          Figure(SpreadOf(result.first.first_token_seconds).mean),
          "",
          "",
          "",
          "",
          "",
          "",
          "",
          Count(result.test.images),
          Count(report.options.image_side),
          Figure(result.rate().mean),
          Figure(result.rate().deviation),
          Figure(SpreadOf(result.again.first_token_seconds).mean),
          Count(result.first.encoded),
          Count(result.again.encoded),
          Count(result.again.cached_tokens),
          Figure(result.first.decode_seconds),
          Figure(result.first.prepare_seconds),
          Figure(result.first.encode_seconds)};
}

std::string Quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  return "\"" + absl::StrReplaceAll(cell, {{"\"", "\"\""}}) + "\"";
}

}  // namespace

std::string ReportAsJson(const BenchReport& report) {
  Json json = {{"version", report.version},
               {"model", report.model},
               {"weight_format", report.weight_format},
               {"weight_bytes", report.weight_bytes},
               {"parameters", report.parameters},
               {"placement", report.placement},
               {"repetitions", report.options.repetitions},
               {"bytes_per_step", report.bytes_per_step},
               {"devices", Json::array()},
               {"tests", Json::array()}};
  if (!report.no_energy.empty()) json["no_energy"] = report.no_energy;
  for (const BenchDevice& device : report.devices) json["devices"].push_back(DeviceJson(device));
  for (const BenchResult& result : report.results) {
    json["tests"].push_back(ResultJson(report, result));
  }
  if (!report.pictures.empty()) json["image_side"] = report.options.image_side;
  for (const BenchPictureResult& result : report.pictures) {
    json["pictures"].push_back(PictureJson(result));
  }
  return json.dump(2) + "\n";
}

std::string ReportAsCsv(const BenchReport& report) {
  std::string text = kTestColumns;
  if (!report.pictures.empty()) text += kPictureColumns;
  text += "\n";
  const auto add = [&text](const Cells& cells) {
    text += absl::StrJoin(
        cells, ",", [](std::string* out, const std::string& cell) { out->append(Quoted(cell)); });
    text += "\n";
  };
  for (const BenchResult& result : report.results) add(TestCells(report, result));
  for (const BenchPictureResult& result : report.pictures) add(PictureCells(report, result));
  return text;
}

}  // namespace tandem
