#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "services/common/base/status_macros.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/answer.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/line_reader.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {
namespace {

struct ChatFlags {
  RequestFlags request;
  std::string system;
  bool quiet = false;
};

constexpr char kHelp[] =
    "/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer;\n"
    "a line that ends with \\ goes on in the next.\n";

// One conversation.
class Conversation {
 public:
  Conversation(const ChatFlags& flags, LineReader reader)
      : flags_(flags),
        reader_(std::move(reader)),
        stub_(MakeGenerationStub(flags.request.address)),
        interactive_(isatty(STDIN_FILENO) == 1) {
    Reset();
  }

  // Until the end of input or /exit; without a terminal, until the first error too.
  absl::Status Run() {
    if (interactive_) std::fputs(kHelp, stderr);
    std::string line;
    while (ReadMessage(line)) {
      if (line == "/exit") break;
      if (line == "/reset") {
        Reset();
      } else if (line == "/help") {
        std::fputs(kHelp, stderr);
      } else if (line.find_first_not_of(" \t") != std::string::npos) {
        const absl::Status status = Reply(line);
        if (status.ok()) continue;
        if (!interactive_) return status;
        Fail(status);
      }
    }
    return absl::OkStatus();
  }

 private:
  void Reset() {
    messages_.clear();
    if (!flags_.system.empty()) Add("system", flags_.system);
  }

  void Add(const char* role, const std::string& content) {
    v1::ChatMessage& message = messages_.emplace_back();
    message.set_role(role);
    message.set_content(content);
  }

  void Prompt(const char* prompt) const {
    if (interactive_) std::fputs(prompt, stderr);
  }

  // False at the end of input.
  bool ReadMessage(std::string& message) {
    message.clear();
    Prompt("> ");
    std::string line;
    while (true) {
      switch (reader_.Read(line)) {
        case LineReader::Event::kEnd:
          Prompt("\n");
          return !message.empty();
        case LineReader::Event::kInterrupt:
          Prompt("\n(/exit or Ctrl-D leaves)\n> ");
          message.clear();
          break;
        case LineReader::Event::kLine:
          message += line;
          if (!message.ends_with('\\')) return true;
          message.back() = '\n';
          Prompt("  ");
          break;
      }
    }
  }

  // Adds the message and its answer to the conversation; neither when it fails.
  absl::Status Reply(const std::string& content) {
    TANDEM_RETURN_IF_ERROR(CheckText("the message", content));
    Add("user", content);
    v1::ChatRequest request;
    request.set_model(flags_.request.model);
    for (const v1::ChatMessage& message : messages_) *request.add_messages() = message;
    *request.mutable_sampling() = MakeSampling(flags_.request);
    *request.mutable_limits() = MakeLimits(flags_.request);

    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoNanoseconds(absl::Seconds(flags_.request.timeout_seconds)));
    Answer answer;
    absl::Status status;
    bool interrupted = false;
    {
      LineReader::CancelOnInterrupt guard(reader_, context);
      status = ReadAnswer(*stub_->Chat(&context, request), PrintText, answer);
      interrupted = guard.interrupted();
    }
    if (!answer.text.empty() && !answer.text.ends_with('\n')) PrintText("\n");
    if (interrupted && absl::IsCancelled(status)) {
      std::fputs("(stopped)\n", stderr);
      status = absl::OkStatus();
    } else if (status.ok() && !flags_.quiet) {
      std::fputs(DescribeAnswer(answer).c_str(), stderr);
    }
    if (!status.ok() || answer.text.empty()) {
      messages_.pop_back();
    } else {
      Add("assistant", answer.text);  // what came of it, if it was stopped
    }
    return Explain(status, flags_.request.address);
  }

  const ChatFlags& flags_;
  LineReader reader_;
  std::unique_ptr<GenerationStub> stub_;
  const bool interactive_;
  std::vector<v1::ChatMessage> messages_;
};

absl::Status Chat(const ChatFlags& flags) {
  TANDEM_RETURN_IF_ERROR(CheckText("--system", flags.system));
  TANDEM_ASSIGN_OR_RETURN(LineReader reader, LineReader::Create());
  return Conversation(flags, std::move(reader)).Run();
}

}  // namespace

std::function<int()> AddChatCommand(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk with the model; each line of standard input is a message");
  AddRequestFlags(*command, flags->request);
  command->add_option("--system", flags->system, "An instruction put before the conversation");
  command->add_flag("--quiet", flags->quiet, "No rates and placement on standard error");
  return [flags] {
    const absl::Status status = Chat(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
