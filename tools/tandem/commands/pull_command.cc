// tandem pull and tandem rm.
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/model_pull.h"

namespace tandem {
namespace {

absl::Status PrintNames() {
  TANDEM_ASSIGN_OR_RETURN(const pull::ModelTable models, pull::ModelTable::FromEnvironment());
  TextTable table({false, true, false, false});
  table.Add({"NAME", "ABOUT GB", "FILE", "ALSO"});
  for (const pull::TableEntry& entry : models.entries()) {
    const std::vector<std::string> others(entry.names.begin() + 1, entry.names.end());
    table.Add({entry.names.front(),
               entry.gigabytes > 0 ? absl::StrFormat("%.2f", entry.gigabytes) : "",
               entry.hub.Name() + (entry.gated ? " (licence)" : ""), absl::StrJoin(others, " ")});
  }
  std::fputs(table.Print().c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Pull(const std::string& name, const PullFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const pull::PulledModel model, PullModel(name, flags));
  std::printf("%s\n", model.path.c_str());
  std::fprintf(stderr, "serve it with: tandem serve --model %s\n", model.name.c_str());
  return absl::OkStatus();
}

absl::Status Remove(const std::vector<std::string>& names, const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const pull::ModelTable table, pull::ModelTable::FromEnvironment());
  for (const std::string& name : names) {
    TANDEM_ASSIGN_OR_RETURN(const pull::PulledModel model,
                            pull::FindPulled(name, table, pull::ModelsFolders(folder)));
    TANDEM_RETURN_IF_ERROR(pull::RemovePulled(model));
    std::fprintf(stderr, "removed %s: %s\n", model.name.c_str(), model.path.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddPullCommand(CLI::App& app) {
  struct Flags {
    std::string name;
    PullFlags pull;
    bool list = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("pull", "Download a model");
  CLI::Option* name = command->add_option(
      "model", flags->name, "gemma3:27b (--list names more), or hf:OWNER/REPO[:FILE]");
  AddPullFlags(*command, flags->pull);
  CLI::Option* list = command->add_flag("--list", flags->list, "List the short names");
  list->excludes(name);
  return [flags] {
    if (flags->list) {
      const absl::Status status = PrintNames();
      return status.ok() ? 0 : Fail(status);
    }
    if (flags->name.empty()) {
      return Fail(UsageError("name a model, as in `tandem pull gemma3:27b`, or give --list"));
    }
    const absl::Status status = Pull(flags->name, flags->pull);
    return status.ok() ? 0 : Fail(status);
  };
}

std::function<int()> AddRemoveCommand(CLI::App& app) {
  struct Flags {
    std::vector<std::string> names;
    std::string folder;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("rm", "Remove models that were pulled");
  command->add_option("model", flags->names, "gemma3:27b or hf:OWNER/REPO[:FILE]; several")
      ->required();
  AddModelsDirFlag(*command, flags->folder);
  return [flags] {
    const absl::Status status = Remove(flags->names, flags->folder);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
