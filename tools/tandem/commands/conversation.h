// One conversation with the model: messages, and commands that begin with a slash.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/answer.h"
#include "tools/tandem/commands/line_reader.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {

struct ChatFlags {
  RequestFlags request;
  std::string system;
  std::string load;
  std::optional<v1::Constraint> constraint;  // of every answer
  bool quiet = false;
};

class Conversation {
 public:
  Conversation(const ChatFlags& flags, LineReader reader);

  // Runs until the end of input or /exit; without a terminal, also until the first error.
  absl::Status Run();

 private:
  struct Totals {
    uint64_t answers = 0, prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
    double decode_seconds = 0.0;
    std::map<std::string, v1::DeviceTime> devices;  // by worker
  };

  absl::Status Greet();
  bool ReadMessage(std::string& message);
  // Handles a line that starts with a slash; sets `done` for /exit.
  absl::Status Command(const std::string& line, bool& done);
  absl::Status Load(const std::string& path);
  // Adds the message and its answer to the conversation, or neither after an error.
  absl::Status Reply(const std::string& content);
  void Add(const char* role, const std::string& content);
  void Count(const Answer& answer);
  std::string DescribeTotals() const;
  void Say(const std::string& text) const;

  const ChatFlags& flags_;
  LineReader reader_;
  std::shared_ptr<GenerationStub> stub_;
  std::string system_;
  std::vector<v1::ChatMessage> messages_;  // the system's not among them
  v1::ChatMessage pictures_;               // for the next message
  Totals totals_;
};

}  // namespace tandem
