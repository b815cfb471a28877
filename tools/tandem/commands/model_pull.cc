#include "tools/tandem/commands/model_pull.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/loader/vision/seeing_model.h"

namespace tandem {
namespace {

std::atomic<bool> pull_stopped = false;

// A first signal stops in order, a second one at once.
class StopOnSignal {
 public:
  StopOnSignal() {
    pull_stopped = false;
    struct sigaction action {};
    action.sa_handler = [](int) { pull_stopped = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
  }
  ~StopOnSignal() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
  }

 private:
  struct sigaction interrupt_ {
  }, terminate_{};
};

// One line that is written over at a terminal; elsewhere a line for each tenth.
class PullProgressLine {
 public:
  ~PullProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void Show(const pull::PullProgress& progress) {
    if (progress.total_bytes == 0) return;
    const absl::Time now = absl::Now();
    if (progress.phase != phase_ || progress.file != file_) {
      phase_ = progress.phase;
      file_ = progress.file;
      from_ = progress.phase == pull::PullPhase::kDownloading ? progress.resumed_bytes : 0;
      begin_ = now;
      tenth_ = -1;
      if (from_ > 0) std::fprintf(stderr, "%s are there from before\n", SizeText(from_).c_str());
    }
    const double share =
        static_cast<double>(progress.done_bytes) / static_cast<double>(progress.total_bytes);
    if (!terminal_) {
      const int tenth = static_cast<int>(share * 10);
      if (tenth == tenth_) return;
      tenth_ = tenth;
      std::fprintf(stderr, "%s\n", Text(progress, share, now).c_str());
      return;
    }
    if (now - shown_at_ < absl::Milliseconds(200)) return;
    shown_at_ = now;
    shown_ = true;
    std::fprintf(stderr, "\r\033[K%s", Text(progress, share, now).c_str());
  }

 private:
  std::string Text(const pull::PullProgress& progress, double share, absl::Time now) const {
    const bool verifies = progress.phase == pull::PullPhase::kVerifying;
    std::string text =
        absl::StrFormat("%s %s %3.0f%%  %s of %s", verifies ? "checking" : "pulling",
                        pull::FileNameOf(progress.file), share * 100, SizeText(progress.done_bytes),
                        SizeText(progress.total_bytes));
    const double seconds = absl::ToDoubleSeconds(now - begin_);
    if (seconds < 1 || progress.done_bytes <= from_) return text;
    const double rate = static_cast<double>(progress.done_bytes - from_) / seconds;
    const auto left = absl::Seconds(static_cast<int64_t>(
        static_cast<double>(progress.total_bytes - progress.done_bytes) / rate));
    return text + absl::StrFormat("  %.1f MB/s  %s left", rate * 1e-6, absl::FormatDuration(left));
  }

  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  pull::PullPhase phase_ = pull::PullPhase::kResolving;
  std::string file_;  // that is pulled
  uint64_t from_ = 0;
  absl::Time begin_, shown_at_ = absl::InfinitePast();
  int tenth_ = -1;
  bool shown_ = false;
};

}  // namespace

std::string SizeText(uint64_t bytes) {
  const double size = static_cast<double>(bytes);
  return bytes < 1'000'000'000 ? absl::StrFormat("%.1f MB", size * 1e-6)
                               : absl::StrFormat("%.2f GB", size * 1e-9);
}

void AddModelsDirFlag(CLI::App& command, std::string& folder) {
  command.add_option("--models-dir", folder,
                     "Folder of pulled models; default: TANDEM_MODELS, else "
                     "~/.local/share/tandem/models (docs/models.md)");
}

void AddPullFlags(CLI::App& command, PullFlags& flags) {
  AddModelsDirFlag(command, flags.folder);
  command.add_option("--token-file", flags.token_file,
                     "File with the hub's token; default: HF_TOKEN, or where the hub's own tools "
                     "keep it");
  command.add_option("--mmproj", flags.mmproj,
                     "Vision encoder to pull with the model: a file of its repository, or none.  "
                     "Default: the one that belongs to the model");
  command.add_option("--connections", flags.connections, "Ranges of the file read at a time")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
}

namespace {

// Says what was pulled and what of it cannot be served.
void Report(const pull::PullResult& result) {
  const pull::PulledModel& model = result.model;
  std::fprintf(stderr, "%s %s: %s, sha256 %s\n", model.name.c_str(),
               result.was_there ? "is there already" : "is pulled", SizeText(model.bytes).c_str(),
               model.sha256.c_str());
  if (model.encoder.has_value()) {
    std::fprintf(stderr, "it reads pictures with %s: %s\n",
                 pull::FileNameOf(model.encoder->path).c_str(),
                 SizeText(model.encoder->bytes).c_str());
  } else if (!result.no_encoder_reason.empty()) {
    std::fprintf(stderr, "it reads no pictures: %s\n", result.no_encoder_reason.c_str());
  }
  const auto source = loader::OpenSeeingModel(model.path);
  if (!source.ok()) {
    std::fprintf(stderr, "warning: Tandem cannot serve it: %s\n",
                 std::string(source.status().message()).c_str());
    return;
  }
  if (!model.encoder.has_value() || (*source)->config().vision.has_value()) return;
  for (const std::string& warning : (*source)->warnings()) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
}

}  // namespace

absl::StatusOr<pull::PulledModel> PullModel(const std::string& text, const PullFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const pull::ModelName name, pull::ParseModelName(text));
  TANDEM_ASSIGN_OR_RETURN(const pull::ModelTable table, pull::ModelTable::FromEnvironment());
  TANDEM_ASSIGN_OR_RETURN(pull::PullOptions options,
                          pull::PullOptionsFromEnvironment(flags.folder, flags.token_file));
  options.transfer.connections = flags.connections;
  options.mmproj = flags.mmproj;
  absl::StatusOr<pull::PullResult> result;
  {
    const StopOnSignal signals;
    PullProgressLine line;
    result = pull::Pull(name, table, options, [&line](const pull::PullProgress& progress) {
      line.Show(progress);
      return !pull_stopped;
    });
  }
  if (absl::IsCancelled(result.status())) {
    return absl::CancelledError(
        absl::StrFormat("stopped; `tandem pull %s` goes on from there", name.text));
  }
  TANDEM_RETURN_IF_ERROR(result.status());
  Report(*result);
  return result->model;
}

std::string PulledAsTable(const std::vector<pull::PulledModel>& models) {
  if (models.empty()) return "";
  TextTable table({false, true, false, false});
  table.Add({"PULLED", "SIZE", "PICTURES", "FILE"});
  for (const pull::PulledModel& model : models) {
    table.Add({model.name, SizeText(model.total_bytes()), model.encoder.has_value() ? "yes" : "",
               model.path});
  }
  return table.Print();
}

std::string PulledAsJson(const std::vector<pull::PulledModel>& models) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const pull::PulledModel& model : models) {
    nlohmann::ordered_json one = {{"name", model.name},
                                  {"path", model.path},
                                  {"file_bytes", model.bytes},
                                  {"repository", model.hub.repository()},
                                  {"revision", model.hub.revision},
                                  {"commit", model.commit},
                                  {"sha256", model.sha256}};
    if (model.encoder.has_value()) {
      one["mmproj"] = {{"path", model.encoder->path},
                       {"file_bytes", model.encoder->bytes},
                       {"sha256", model.encoder->sha256}};
    }
    all.push_back(std::move(one));
  }
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tandem
