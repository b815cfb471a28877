#include "tools/tandem/commands/conversation.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/image_file.h"
#include "tools/tandem/commands/style.h"
#include "tools/tandem/commands/transcript.h"
#include "tools/tandem/commands/word_wrap.h"

namespace tandem {
namespace {

constexpr char kHelp[] =
    "/image FILE    puts a picture before the next message; several may be put\n"
    "/system TEXT   instructs the model from here on; without a text shows the instruction\n"
    "/reset         forgets the conversation, not the instruction\n"
    "/save FILE     writes the conversation; /load FILE goes on with one\n"
    "/stats         says what this chat took\n"
    "/exit          leaves, as Ctrl-D does; Ctrl-C stops an answer\n"
    "A line that ends with \\ goes on in the next; \"\"\" begins and ends a message of many "
    "lines.\n"
    "A paste of several lines is one message. Tab completes commands and file names.\n";
const std::vector<std::string>& Commands() {
  static const std::vector<std::string> kCommands = {"/exit",  "/help", "/image", "/load",
                                                     "/reset", "/save", "/stats", "/system"};
  return kCommands;
}
constexpr char kQuotes[] = "\"\"\"";

constexpr absl::Duration kGreetingTimeout = absl::Seconds(10);

// Of standard output; 0: it is no terminal.
int TerminalColumns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

Conversation::Conversation(const ChatFlags& flags, LineReader reader)
    : flags_(flags),
      reader_(std::move(reader)),
      stub_(MakeGenerationStub(flags.request.address)),
      system_(flags.system) {}

absl::Status Conversation::Run() {
  TANDEM_RETURN_IF_ERROR(OpenGateway(flags_.request.address).status());
  if (!flags_.load.empty()) {
    TANDEM_RETURN_IF_ERROR(Load(flags_.load));
    if (!flags_.system.empty()) system_ = flags_.system;
  }
  if (reader_.interactive()) TANDEM_RETURN_IF_ERROR(Greet());
  std::string line;
  bool done = false;
  while (!done && ReadMessage(line)) {
    if (Trimmed(line).empty()) continue;
    const absl::Status status = line.starts_with('/') ? Command(line, done) : Reply(line);
    if (status.ok()) continue;
    if (!reader_.interactive()) return status;
    Fail(status);
  }
  return absl::OkStatus();
}

// Says whom one talks with; fails where nobody answers, before anything is typed.
absl::Status Conversation::Greet() {
  TANDEM_ASSIGN_OR_RETURN(const v1::GetStatusResponse status,
                          [&]() -> absl::StatusOr<v1::GetStatusResponse> {
                            auto fetched = FetchStatus(*stub_, kGreetingTimeout);
                            if (!fetched.ok())
                              return Explain(fetched.status(), flags_.request.address);
                            return fetched;
                          }());
  reader_.SetCompletions(Commands());
  const std::string& model = flags_.request.model.empty() ? status.model() : flags_.request.model;
  Say(absl::StrFormat("%s. %s\n", model.empty() ? "Connected" : Styled(stderr, Style::kBold, model),
                      Styled(stderr, Style::kDim, "/help lists the commands, Ctrl-D leaves.")));
  if (status.state() != "ready") {
    Say(absl::StrFormat("The gateway is not ready, it is %s: %s\n", status.state(),
                        status.detail()));
  }
  return absl::OkStatus();
}

// False at the end of input.
bool Conversation::ReadMessage(std::string& message) {
  message.clear();
  bool quoted = false;
  std::string line;
  while (true) {
    const char* prompt = quoted ? "... " : message.empty() ? "> " : "  ";
    switch (reader_.Read(prompt, line)) {
      case InputEvent::kEnd:
        if (reader_.interactive()) Say("\n");
        return !message.empty();
      case InputEvent::kInterrupt:
        if (reader_.interactive()) Say("\n(/exit or Ctrl-D leaves)\n");
        message.clear();
        quoted = false;
        continue;
      case InputEvent::kLine:
        break;
    }
    if (quoted) {
      if (line.ends_with(kQuotes)) return message += line.substr(0, line.size() - 3), true;
      message += line + "\n";
    } else if (message.empty() && line.starts_with(kQuotes)) {
      const std::string rest = line.substr(3);
      if (rest.size() >= 3 && rest.ends_with(kQuotes)) {
        return message = rest.substr(0, rest.size() - 3), true;
      }
      message = rest.empty() ? "" : rest + "\n";
      quoted = true;
    } else {
      message += line;
      if (!message.ends_with('\\')) return true;
      message.back() = '\n';
    }
  }
}

absl::Status Conversation::Command(const std::string& line, bool& done) {
  const size_t space = line.find_first_of(" \t\n");
  const std::string name = line.substr(0, space);
  const std::string argument = space == std::string::npos ? "" : Trimmed(line.substr(space + 1));
  if (name == "/exit") {
    done = true;
  } else if (name == "/help") {
    Say(kHelp);
  } else if (name == "/reset") {
    messages_.clear();
    pictures_.Clear();
  } else if (name == "/image") {
    if (argument.empty()) return absl::InvalidArgumentError("/image needs a file's name");
    TANDEM_RETURN_IF_ERROR(AddImageFile(argument, pictures_));
    const int count = pictures_.images_size();
    Say(absl::StrFormat("the next message has %d picture%s\n", count, count == 1 ? "" : "s"));
  } else if (name == "/stats") {
    Say(DescribeTotals());
  } else if (name == "/system") {
    if (argument.empty()) {
      Say(system_.empty() ? "no instruction\n" : system_ + "\n");
    } else {
      TANDEM_RETURN_IF_ERROR(CheckText("the instruction", argument));
      system_ = argument;
    }
  } else if ((name == "/save" || name == "/load") && argument.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s needs a file's name", name));
  } else if (name == "/save") {
    std::vector<v1::ChatMessage> messages = messages_;
    if (!system_.empty()) {
      messages.insert(messages.begin(), v1::ChatMessage());
      messages[0].set_role("system");
      messages[0].set_content(system_);
    }
    TANDEM_RETURN_IF_ERROR(SaveTranscript(argument, messages));
    Say(absl::StrFormat("%d messages in %s\n", messages.size(), argument));
  } else if (name == "/load") {
    return Load(argument);
  } else {
    const std::string closest = ClosestWord(name, Commands());
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is no command%s; /help lists them (begin the message with a space to "
                        "send it)",
                        name, closest.empty() ? "" : ", did you mean " + closest + "?"));
  }
  return absl::OkStatus();
}

absl::Status Conversation::Load(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<v1::ChatMessage> messages, LoadTranscript(path));
  std::string system;
  if (!messages.empty() && messages[0].role() == "system") {
    system = messages[0].content();
    messages.erase(messages.begin());
  }
  system_ = system;
  messages_ = std::move(messages);
  Say(absl::StrFormat("%d messages from %s\n", messages_.size(), path));
  return absl::OkStatus();
}

absl::Status Conversation::Reply(const std::string& content) {
  TANDEM_RETURN_IF_ERROR(CheckText("the message", content));
  Add("user", content);
  *messages_.back().mutable_images() = pictures_.images();
  v1::ChatRequest request;
  request.set_model(flags_.request.model);
  if (!system_.empty()) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("system");
    message->set_content(system_);
  }
  for (const v1::ChatMessage& message : messages_) *request.add_messages() = message;
  *request.mutable_sampling() = MakeSampling(flags_.request);
  *request.mutable_limits() = MakeLimits(flags_.request);
  if (flags_.constraint) *request.mutable_constraint() = *flags_.constraint;

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoNanoseconds(absl::Seconds(flags_.request.timeout_seconds)));
  Answer answer;
  absl::Status status;
  bool interrupted = false;
  {
    LineReader::CancelOnInterrupt guard(reader_, context);
    WordWrap wrap(reader_.interactive() ? TerminalColumns() : 0);
    status = ReadAnswer(
        *stub_->Chat(&context, request),
        [&wrap](std::string_view text) { PrintText(wrap.Add(text)); }, answer);
    PrintText(wrap.Finish());
    interrupted = guard.interrupted();
  }
  if (!answer.text.empty() && !answer.text.ends_with('\n')) PrintText("\n");
  if (interrupted && absl::IsCancelled(status)) {
    Say("(stopped)\n");
    status = absl::OkStatus();
  } else if (status.ok()) {
    Count(answer);
    if (!flags_.quiet) Say(Styled(stderr, Style::kDim, DescribeAnswer(answer)));
  }
  if (!status.ok() || answer.text.empty()) {
    messages_.pop_back();
  } else {
    pictures_.Clear();
    Add("assistant", answer.text);  // what came of it, if it was stopped
  }
  return Explain(status, flags_.request.address);
}

void Conversation::Add(const char* role, const std::string& content) {
  v1::ChatMessage& message = messages_.emplace_back();
  message.set_role(role);
  message.set_content(content);
}

void Conversation::Count(const Answer& answer) {
  const v1::Usage& usage = answer.usage;
  totals_.answers += 1;
  totals_.prompt_tokens += usage.prompt_tokens();
  totals_.cached_tokens += usage.cached_tokens();
  totals_.completion_tokens += usage.completion_tokens();
  totals_.decode_seconds += usage.total_seconds() - usage.first_token_seconds();
  for (const v1::DeviceTime& time : usage.device_times()) {
    v1::DeviceTime& sum = totals_.devices[time.worker()];
    sum.set_seconds(sum.seconds() + time.seconds());
    sum.set_joules(sum.joules() + time.joules());
  }
}

std::string Conversation::DescribeTotals() const {
  std::string text = absl::StrFormat("%d answers, %d tokens after %d of prompts", totals_.answers,
                                     totals_.completion_tokens, totals_.prompt_tokens);
  if (totals_.cached_tokens > 0) {
    absl::StrAppendFormat(&text, " (%d cached)", totals_.cached_tokens);
  }
  // Each answer's first token belongs to its prompt.
  const uint64_t decoded = totals_.completion_tokens - totals_.answers;
  if (decoded > 0 && totals_.decode_seconds > 0) {
    absl::StrAppendFormat(&text, ", %.1f tokens/s",
                          static_cast<double>(decoded) / totals_.decode_seconds);
  }
  text += "\n";
  for (const auto& [worker, time] : totals_.devices) {
    absl::StrAppendFormat(&text, "%s worked %.3f s", worker, time.seconds());
    if (time.joules() > 0.0) absl::StrAppendFormat(&text, ", %.1f J", time.joules());
    text += "\n";
  }
  return text;
}

void Conversation::Say(const std::string& text) const { std::fputs(text.c_str(), stderr); }

}  // namespace tandem
