#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/placement_table.h"
#include "tools/tandem/commands/request_flags.h"
#include "tools/tandem/commands/status_watch.h"
#include "tools/tandem/commands/style.h"
#include "tools/tandem/printable.h"

namespace tandem {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

std::string Mib(uint64_t bytes) {
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20));
}

std::string Count(uint64_t count) { return absl::StrFormat("%d", count); }

// What was done about pictures of requests, and how long it took each.
void AddPictures(const v1::PictureStatus& pictures, TextTable& table) {
  table.Add(
      {"pictures",
       absl::StrFormat("%d encoded, %d found in the cache; requests with pictures: %d "
                       "refused, %d failed; cache: %d pictures, %s MiB",
                       pictures.encoded(), pictures.cached(), pictures.refused(), pictures.failed(),
                       pictures.cache_pictures(), Mib(pictures.cache_bytes()))});
  if (pictures.encoded() == 0) return;
  const auto mean_ms = [&](double seconds) {
    return seconds * 1e3 / static_cast<double>(pictures.encoded());
  };
  table.Add(
      {"ms of a picture",
       absl::StrFormat("decode %.1f, prepare %.1f, encode %.1f", mean_ms(pictures.decode_seconds()),
                       mean_ms(pictures.prepare_seconds()), mean_ms(pictures.encode_seconds()))});
}

std::string Summary(const v1::GetStatusResponse& status) {
  TextTable table({false, false});
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) table.Add({name, value});
  };
  const Style style = status.state() == "ready"    ? Style::kGood
                      : status.state() == "failed" ? Style::kBad
                                                   : Style::kWarning;
  add("state", Styled(stdout, style, status.state()) +
                   (status.detail().empty() ? "" : ": " + status.detail()));
  add("model", status.model());
  add("placement", status.placement());
  add("notice", status.placement_notice());
  if (!status.model_notice().empty()) {
    add("warning", Styled(stdout, Style::kWarning, status.model_notice()));
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    add(absl::StrFormat("tuning of %s", worker.name()).c_str(), worker.tuning());
    if (!worker.transport().empty() && worker.transport() != "shared memory") {
      add(absl::StrFormat("host of %s", worker.name()).c_str(),
          absl::StrFormat("%s by %s; %s MiB sent, %s received", worker.target(), worker.transport(),
                          Mib(worker.sent_bytes()), Mib(worker.received_bytes())));
    }
  }
  add("version", status.version());
  add("uptime",
      absl::FormatDuration(absl::Trunc(absl::Seconds(status.uptime_seconds()), absl::Seconds(1))));
  add("recoveries", Count(status.recoveries()));
  if (status.placement_moves() > 0) add("placement moves", Count(status.placement_moves()));
  if (status.model_reloads() > 0) add("model reloads", Count(status.model_reloads()));
  const v1::SchedulerStatus& scheduler = status.scheduler();
  add("sequences", absl::StrFormat("%d running, %d waiting, %d at most", scheduler.running(),
                                   scheduler.waiting(), scheduler.max_sequences()));
  for (int i = 0; i < scheduler.kv_blocks_total_size(); ++i) {
    add(i == 0 ? "KV blocks, global layers" : "KV blocks, window layers",
        absl::StrFormat("%d of %d, %d more cached",
                        i < scheduler.kv_blocks_used_size() ? scheduler.kv_blocks_used(i) : 0,
                        scheduler.kv_blocks_total(i),
                        i < scheduler.kv_blocks_cached_size() ? scheduler.kv_blocks_cached(i) : 0));
  }
  add("steps", absl::StrFormat("%d, of %d rows at most", scheduler.steps(), scheduler.max_rows()));
  add("queued",
      absl::StrFormat("%d steps behind another; %d speculative rows, %d tokens rejected",
                      scheduler.steps_queued(), scheduler.rows_fed(), scheduler.wrong_guesses()));
  for (const v1::DrafterStatus& drafter : scheduler.drafters()) {
    const std::string name = "guesses by " + drafter.name();
    std::string line =
        absl::StrFormat("%d of %d accepted", drafter.accepted_tokens(), drafter.drafted_tokens());
    if (!drafter.about().empty()) line += "; " + drafter.about();
    if (!drafter.detail().empty()) line += "; " + drafter.detail();
    add(name.c_str(), line);
  }
  add("tokens",
      absl::StrFormat("%d of prompts, %d of answers; %d preemptions", scheduler.prompt_tokens(),
                      scheduler.completion_tokens(), scheduler.preemptions()));
  add("prefix cache",
      absl::StrFormat("%d of %d tokens of prompts found", scheduler.prefix_tokens_found(),
                      scheduler.prefix_tokens_looked_up()));
  if (status.has_pictures()) AddPictures(status.pictures(), table);
  return table.Print();
}

std::string Workers(const v1::GetStatusResponse& status) {
  TextTable table({false, false, false, false, false, true, true, true, true, true, true});
  table.Add({"WORKER", "STATE", "DEVICE", "WEIGHTS BY", "EXCHANGE BY", "WEIGHTS MiB", "KV MiB",
             "MEMORY MiB", "HOP p50 us", "p99 us", "PID"});
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.state() == "absent" || worker.state() == "unusable") {
      table.Add(
          {worker.name(), worker.state(), worker.detail(), "-", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    table.Add({worker.name(), worker.state(),
               DeviceText(worker.device(), worker.kind(), worker.emulated()),
               worker.weight_import(), worker.exchange_import(), Mib(worker.weight_bytes()),
               Mib(worker.kv_bytes()), Mib(worker.memory_bytes()),
               absl::StrFormat("%.1f", worker.hop_p50_us()),
               absl::StrFormat("%.1f", worker.hop_p99_us()), Count(worker.pid())});
  }
  return table.Print();
}

// Segments of one worker with the same stages in different layers are one line, unless `all`.
std::string Segments(const v1::GetStatusResponse& status, bool all) {
  struct Line {
    std::string worker;
    std::string stages;
    uint64_t num_segments = 0;
    uint64_t calls = 0;
    double device_seconds = 0;
    double round_trip_seconds = 0;
  };
  std::vector<Line> lines;
  for (const v1::SegmentStatus& segment : status.segments()) {
    const std::string stages = all ? segment.stages() : StagesWithoutLayers(segment.stages());
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& known) {
      return known.worker == segment.worker() && known.stages == stages;
    });
    if (line == lines.end()) line = lines.insert(line, {segment.worker(), stages});
    ++line->num_segments;
    line->calls += segment.calls();
    line->device_seconds += segment.device_seconds();
    line->round_trip_seconds += segment.round_trip_seconds();
  }
  TextTable table({false, false, true, true, true, true});
  table.Add({"WORKER", "STAGES", "SEGMENTS", "CALLS", "DEVICE us", "ROUND TRIP us"});
  const auto mean_us = [](double seconds, uint64_t calls) {
    return calls == 0 ? std::string("-")
                      : absl::StrFormat("%.1f", seconds * 1e6 / static_cast<double>(calls));
  };
  for (const Line& line : lines) {
    table.Add({line.worker, line.stages, Count(line.num_segments), Count(line.calls),
               mean_us(line.device_seconds, line.calls),
               mean_us(line.round_trip_seconds, line.calls)});
  }
  return table.Print();
}

std::string Replicas(const v1::GetStatusResponse& status) {
  TextTable table({true, false, false, false, true, true, true, true, true});
  table.Add({"REPLICA", "ROLE", "STATE", "PLACEMENT", "RUNNING", "WAITING", "REQUESTS", "BY PREFIX",
             "MOVED AWAY"});
  for (const v1::ReplicaStatus& replica : status.replicas()) {
    const bool there = !replica.placement().empty();
    table.Add({Count(replica.replica()), replica.role().empty() ? "both" : replica.role(),
               replica.state(), there ? replica.placement() : replica.detail(),
               Count(replica.scheduler().running()), Count(replica.scheduler().waiting()),
               Count(replica.requests()), Count(replica.prefix_requests()),
               Count(replica.moved_away())});
  }
  return table.Print();
}

struct StatusFlags {
  GatewayAddress address;
  double wait_seconds = 0;
  bool all_segments = false;
  bool placements = false;
  bool json = false;
  bool watch = false;
  double interval_seconds = 2;
};

std::string BoldFirstLine(const std::string& table) {
  const size_t end = table.find('\n');
  return Styled(stdout, Style::kBold, table.substr(0, end)) + table.substr(end);
}

std::string Tables(const v1::GetStatusResponse& status, const StatusFlags& flags) {
  const std::string placements = PlacementTable(status);
  if (flags.placements) {
    if (!placements.empty()) return BoldFirstLine(placements);
    return absl::StrFormat("%s: there is no other to choose\n",
                           status.placement().empty() ? "no placement" : status.placement());
  }
  std::string text = Summary(status);
  if (!placements.empty()) text += "\n" + BoldFirstLine(placements);
  if (status.replicas_size() > 0) text += "\n" + BoldFirstLine(Replicas(status));
  if (status.workers_size() > 0) text += "\n" + BoldFirstLine(Workers(status));
  if (status.segments_size() > 0)
    text += "\n" + BoldFirstLine(Segments(status, flags.all_segments));
  return text;
}

absl::Status PrintStatus(const StatusFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const auto stub, OpenGateway(flags.address));
  absl::StatusOr<v1::GetStatusResponse> status =
      flags.wait_seconds > 0 ? WaitReady(*stub, absl::Seconds(flags.wait_seconds))
                             : FetchStatus(*stub, kTimeout);
  if (!status.ok()) return Explain(status.status(), flags.address);
  if (!flags.watch) {
    std::fputs((flags.json ? MessageAsJson(*status) : Tables(*status, flags)).c_str(), stdout);
    return absl::OkStatus();
  }
  StatusWatch watch(flags.json                     ? StatusWatch::Form::kJson
                    : ::isatty(STDOUT_FILENO) == 1 ? StatusWatch::Form::kScreen
                                                   : StatusWatch::Form::kLines,
                    [&flags](const v1::GetStatusResponse& now) { return Tables(now, flags); });
  while (true) {
    status.ok() ? watch.Show(*status) : watch.ShowError(Explain(status.status(), flags.address));
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return absl::OkStatus();  // main tells
    absl::SleepFor(absl::Seconds(flags.interval_seconds));
    status = FetchStatus(*stub, kTimeout);
  }
}

}  // namespace

std::function<int()> AddStatusCommand(CLI::App& app) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command = app.add_subcommand(
      "status", "Print the cluster's state: placement, workers, devices, memory, load");
  AddAddressFlag(*command, flags->address);
  command->add_option("--wait", flags->wait_seconds,
                      "Wait this many seconds for the cluster to be ready, and fail if it is not");
  command->add_flag("--all-segments", flags->all_segments, "A line for every segment");
  command->add_flag("--placements", flags->placements,
                    "Only the placements that were weighed (--npu auto), the best first");
  command->add_flag("--json", flags->json, "Print JSON; with --watch an object a line");
  CLI::Option* watch = command->add_flag(
      "--watch", flags->watch,
      "Go on: at a terminal the same screen again and again, else a line each time");
  command->add_option("--interval", flags->interval_seconds, "With --watch: seconds between two")
      ->needs(watch)
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  return [flags] {
    const absl::Status status = PrintStatus(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
