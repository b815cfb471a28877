#include "tools/tandem/commands/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

#include "absl/strings/str_format.h"
#include "services/common/rpc/library_logs.h"
#include "services/common/version/version.h"

namespace tandem {
namespace {

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

absl::Status UnknownCommand(const CLI::App& app, const std::string& name) {
  const std::string closest = ClosestWord(name, CommandNames(app));
  return UsageError(absl::StrFormat("there is no command '%s'%s (`tandem help` lists them)", name,
                                    closest.empty() ? "" : "; did you mean '" + closest + "'?"));
}

bool HasCommand(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> names = CommandNames(app);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// As app.help(), which prints the parsed subcommand's help in its place.
std::string ListOfCommands(const CLI::App& app) {
  return app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
}

std::function<int()> AddHelp(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  app.add_subcommand("help", "Print the list of commands, or what one command takes")
      ->add_option("command", *name, "A command's name");
  return [&app, name]() -> int {
    if (name->empty()) {
      std::fputs(ListOfCommands(app).c_str(), stdout);
      return kExitSuccess;
    }
    if (!HasCommand(app, *name)) return Fail(UnknownCommand(app, *name));
    std::fputs(app.get_subcommand(*name)->help(app.get_name()).c_str(), stdout);
    return kExitSuccess;
  };
}

std::function<int()> AddVersion(CLI::App& app) {
  app.add_subcommand("version", "Print the version, as --version does");
  return [] {
    std::printf("%s\n", VersionText("tandem").c_str());
    return kExitSuccess;
  };
}

// The exit status after `code`, once standard output has taken everything.
int FinishOutput(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const char* reason = errno != 0 ? std::strerror(errno) : "not everything could be written";
  // Like a program that SIGPIPE ends, say nothing where the reader has gone.
  const bool reader_left = errno == EPIPE;
  if (!reader_left) Fail(absl::DataLossError(absl::StrFormat("standard output: %s", reason)));
  return code == kExitSuccess ? kExitFailure : code;
}

}  // namespace

int RunProgram(const std::vector<CommandGroup>& groups, int argc, char** argv) {
  CLI::App app{"Serves large language models on an NPU and a GPU together.", "tandem"};
  app.set_version_flag("--version", VersionText("tandem"));
  app.require_subcommand(0, 1);
  app.footer("`tandem help COMMAND` says what a command takes; `man tandem` has it all.");
  std::map<const CLI::App*, std::function<int()>> commands;
  const auto add = [&](CommandFactory factory, const char* heading) {
    auto run = factory(app);
    CLI::App* command = app.get_subcommands({}).back();
    if (!command->get_group().empty()) command->group(heading);  // empty: hidden
    commands[command] = std::move(run);
  };
  for (const CommandGroup& group : groups) {
    for (const CommandFactory factory : group.commands) add(factory, group.heading);
  }
  for (const CommandFactory factory : {AddHelp, AddVersion}) add(factory, groups.back().heading);

  // CLI11 would say only that a word was not expected.
  if (argc > 1 && argv[1][0] != '-' && !HasCommand(app, argv[1])) {
    return Fail(UnknownCommand(app, argv[1]));
  }
  if (const auto ended = ParseFlags(app, argc, argv)) return *ended;
  if (app.get_subcommands().empty()) {
    std::fputs(ListOfCommands(app).c_str(), stdout);
    return FinishOutput(kExitSuccess);
  }
  // Calls that fail say so; `serve` logs what the libraries say.
  SilenceLibraryLogs();
  return FinishOutput(commands.at(app.get_subcommands().front())());
}

}  // namespace tandem
