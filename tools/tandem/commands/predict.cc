#include "tools/tandem/commands/predict.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tandem {

std::vector<std::string> PredictCommand(const PredictOptions& options, const std::string& folder) {
  std::vector<std::string> command = {folder + "/kernel_report",
                                      "--predict",
                                      "--chip",
                                      options.chip,
                                      "--model",
                                      options.model,
                                      "--max-rows",
                                      absl::StrFormat("%d", options.max_rows),
                                      "--kv-type",
                                      options.kv_type,
                                      "--prompt",
                                      absl::StrJoin(options.prompts, ","),
                                      "--batch",
                                      absl::StrJoin(options.batches, ","),
                                      "--depth",
                                      absl::StrJoin(options.depths, ",")};
  if (options.json) command.emplace_back("--json");
  return command;
}

absl::Status Predict(const PredictOptions& options, const std::string& folder) {
  std::vector<std::string> command = PredictCommand(options, folder);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(arguments[0], arguments.data());
  if (errno != ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s cannot be started: %s", command[0], std::strerror(errno)));
  }
  return absl::NotFoundError(absl::StrFormat(
      "%s is not there: predictions need a build of the sources (scripts/build release "
      "kernel_report) and AMD's compiler (scripts/fetch-radv)",
      command[0]));
}

}  // namespace tandem
