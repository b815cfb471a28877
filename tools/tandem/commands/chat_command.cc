#include <memory>
#include <utility>

#include "services/common/base/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/constraint_flags.h"
#include "tools/tandem/commands/conversation.h"

namespace tandem {
namespace {

absl::Status Chat(ChatFlags& flags, const ConstraintFlags& constraint) {
  TANDEM_ASSIGN_OR_RETURN(flags.constraint, MakeConstraint(constraint));
  TANDEM_RETURN_IF_ERROR(CheckText("--system", flags.system));
  TANDEM_ASSIGN_OR_RETURN(LineReader reader, LineReader::Create());
  return Conversation(flags, std::move(reader)).Run();
}

}  // namespace

std::function<int()> AddChatCommand(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  auto constraint = std::make_shared<ConstraintFlags>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk with the model; each line of standard input is a message");
  AddRequestFlags(*command, flags->request);
  AddConstraintFlags(*command, *constraint);
  command->add_option(
      "--system", flags->system,
      "An instruction put before the conversation, in place of that in --load's file");
  command->add_option("--load", flags->load, "Go on with a conversation that /save wrote");
  command->add_flag("--quiet", flags->quiet, "No rates and placement on standard error");
  return [flags, constraint] {
    const absl::Status status = Chat(*flags, *constraint);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
