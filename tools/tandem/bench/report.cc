#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "tools/tandem/bench/measure.h"

namespace tandem {

std::string ReportAsTable(const BenchReport& report) {
  std::string text = absl::StrFormat(
      "model      %s\nplacement  %s\nprompt %d, answer %d tokens\n\n", report.model,
      report.placement, report.options.prompt_tokens, report.options.generated_tokens);
  text += "sequences   prompt tok/s   decode tok/s   first token s\n";
  for (const BenchRun& run : report.runs) {
    text += absl::StrFormat("%9d   %12.1f   %12.1f   %13.3f\n", run.sequences,
                            run.prompt_tokens_per_second, run.decode_tokens_per_second,
                            run.first_token_seconds);
  }
  text += "\nworker   segment                    calls    device us   round trip us\n";
  for (const BenchSegment& segment : report.segments) {
    text += absl::StrFormat("%-8s %-22s %9d   %10.1f   %13.1f\n", segment.worker, segment.stages,
                            segment.calls, segment.device_us, segment.round_trip_us);
  }
  text += absl::StrFormat("\n%d steps, %.1f calls and %.0f bytes each\n", report.steps,
                          report.calls_per_step, report.bytes_per_step);
  for (const BenchHop& hop : report.hops) {
    text += absl::StrFormat("hop to %s: p50 %.1f us, p99 %.1f us\n", hop.worker, hop.p50_us,
                            hop.p99_us);
  }
  return text;
}

std::string ReportAsJson(const BenchReport& report) {
  nlohmann::ordered_json json = {{"model", report.model},
                                 {"placement", report.placement},
                                 {"prompt_tokens", report.options.prompt_tokens},
                                 {"generated_tokens", report.options.generated_tokens},
                                 {"repetitions", report.options.repetitions},
                                 {"runs", nlohmann::ordered_json::array()},
                                 {"steps", report.steps},
                                 {"calls_per_step", report.calls_per_step},
                                 {"bytes_per_step", report.bytes_per_step},
                                 {"segments", nlohmann::ordered_json::array()},
                                 {"hops", nlohmann::ordered_json::array()}};
  for (const BenchRun& run : report.runs) {
    json["runs"].push_back({{"sequences", run.sequences},
                            {"prompt_tokens_per_second", run.prompt_tokens_per_second},
                            {"decode_tokens_per_second", run.decode_tokens_per_second},
                            {"first_token_seconds", run.first_token_seconds}});
  }
  for (const BenchSegment& segment : report.segments) {
    json["segments"].push_back({{"worker", segment.worker},
                                {"stages", segment.stages},
                                {"calls", segment.calls},
                                {"device_us", segment.device_us},
                                {"round_trip_us", segment.round_trip_us}});
  }
  for (const BenchHop& hop : report.hops) {
    json["hops"].push_back(
        {{"worker", hop.worker}, {"p50_us", hop.p50_us}, {"p99_us", hop.p99_us}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem
