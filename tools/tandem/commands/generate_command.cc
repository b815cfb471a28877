#include <unistd.h>

#include <cstdio>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/batch.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/constraint_flags.h"
#include "tools/tandem/commands/image_file.h"
#include "tools/tandem/commands/request_flags.h"
#include "tools/tandem/commands/style.h"

namespace tandem {
namespace {

struct GenerateFlags {
  RequestFlags request;
  ConstraintFlags constraint;
  std::vector<std::string> words;
  bool chat = false;
  std::string system;
  std::vector<std::string> images;  // files
  std::optional<uint32_t> logprobs;
  bool ignore_eos = false;
  bool json = false;
  bool jsonl = false;
  uint32_t parallel = 8;
  bool quiet = false;
};

// Longest prompt read from standard input; a gRPC message is no longer.
constexpr size_t kMaxPromptBytes = 64 << 20;

// The words of the command line, or standard input less its last line feed.
absl::StatusOr<std::string> ReadPrompt(const std::vector<std::string>& words) {
  if (!words.empty() && words != std::vector<std::string>{"-"}) return absl::StrJoin(words, " ");
  if (isatty(STDIN_FILENO) == 1 && words.empty()) {
    return UsageError("no prompt: give one after the command or on standard input");
  }
  std::string prompt;
  char buffer[1 << 14];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;) {
    prompt.append(buffer, n);
    if (prompt.size() > kMaxPromptBytes) {
      return absl::InvalidArgumentError("the prompt is longer than 64 MiB");
    }
  }
  if (prompt.ends_with('\n')) prompt.pop_back();
  return prompt;
}

// Where neither flag nor line says: a text to continue may have no end, an answer has one.
constexpr uint32_t kMaxTokensOfText = 512;
constexpr uint32_t kMaxTokensOfAnswer = 4096;

// What the flags ask of every prompt.
BatchItem MakeItem(const GenerateFlags& flags) {
  BatchItem item;
  item.model = flags.request.model;
  item.sampling = MakeSampling(flags.request);
  item.limits = MakeLimits(flags.request, flags.chat ? kMaxTokensOfAnswer : kMaxTokensOfText);
  item.limits.set_ignore_eos(flags.ignore_eos);
  item.logprobs = flags.logprobs;
  return item;
}

void AddMessage(BatchItem& item, const char* role, const std::string& content) {
  v1::ChatMessage& message = item.messages.emplace_back();
  message.set_role(role);
  message.set_content(content);
}

absl::Status Generate(const GenerateFlags& flags) {
  const absl::Duration timeout = absl::Seconds(flags.request.timeout_seconds);
  if (!flags.system.empty() && flags.jsonl) {
    return UsageError("--system does nothing with --jsonl: put it into the lines' messages");
  }
  if (!flags.images.empty() && flags.jsonl) {
    return UsageError("--image does nothing with --jsonl");
  }
  if (flags.logprobs.has_value() && !flags.json && !flags.jsonl) {
    return UsageError("--logprobs needs --json or --jsonl");
  }
  BatchItem item = MakeItem(flags);
  TANDEM_ASSIGN_OR_RETURN(item.constraint, MakeConstraint(flags.constraint));
  if (flags.jsonl) return RunBatch(flags.request.address, item, flags.parallel, timeout);
  TANDEM_ASSIGN_OR_RETURN(const std::string prompt, ReadPrompt(flags.words));
  TANDEM_RETURN_IF_ERROR(CheckText("the prompt", prompt));
  TANDEM_RETURN_IF_ERROR(CheckText("--system", flags.system));
  if (!flags.system.empty() && !flags.chat) {
    return UsageError("--system needs --chat");
  }
  Answer answer;
  const TextSink sink = flags.json ? TextSink([](std::string_view) {}) : TextSink(PrintText);
  item.prompt = prompt;
  if (flags.chat) {
    if (!flags.system.empty()) AddMessage(item, "system", flags.system);
    AddMessage(item, "user", prompt);
    for (const std::string& image : flags.images) {
      TANDEM_RETURN_IF_ERROR(AddImageFile(image, item.messages.back()));
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const auto stub, OpenGateway(flags.request.address));
  const absl::Status status = Ask(*stub, item, timeout, sink, answer);
  if (!flags.json && !answer.text.empty() && !answer.text.ends_with('\n')) PrintText("\n");
  TANDEM_RETURN_IF_ERROR(Explain(status, flags.request.address));
  if (flags.json) std::fputs(PrintJson(AnswerAsJson(answer), 2).c_str(), stdout);
  if (!flags.quiet) std::fputs(Styled(stderr, Style::kDim, DescribeAnswer(answer)).c_str(), stderr);
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddGenerateCommand(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand(
      "generate", "Continue a text, or with --chat answer a question, as it streams");
  command->add_option("prompt", flags->words,
                      "Words of the prompt; none or \"-\": standard input is read");
  AddRequestFlags(*command, flags->request);
  AddConstraintFlags(*command, flags->constraint);
  command->get_option("--max-tokens")
      ->description(absl::StrFormat(
          "Tokens to generate at most, %d by default, with --chat %d; 0: as many as the context "
          "holds",
          kMaxTokensOfText, kMaxTokensOfAnswer));
  command->add_flag("--chat", flags->chat, "The prompt is a user's message to be answered");
  command
      ->add_option("--image", flags->images,
                   "A picture (PNG, JPEG, WebP, GIF, BMP) before the message; may be repeated; as "
                   "with --chat")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_option("--system", flags->system, "With --chat: an instruction put before it");
  command->add_option(
      "--logprobs", flags->logprobs,
      "With --json or --jsonl: probabilities, with this many alternatives to each token");
  command->add_flag("--ignore-eos", flags->ignore_eos, "Go on past the end of the text");
  command->add_flag("--json", flags->json, "Print one JSON object at the end");
  CLI::Option* jsonl = command->add_flag(
      "--jsonl", flags->jsonl,
      "Standard input is JSON lines, {\"prompt\": ...} or {\"messages\": [...]}; so is "
      "the output, in the same order");
  command->add_option("--parallel", flags->parallel, "With --jsonl: requests at a time")
      ->needs(jsonl)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--quiet", flags->quiet, "No rates and placement on standard error");
  return [flags] {
    if (!flags->images.empty()) flags->chat = true;  // a picture is part of a message
    const absl::Status status = Generate(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
