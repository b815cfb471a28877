// Lines of standard input and Ctrl-C, as a conversation needs them.
#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"
#include "tools/tandem/commands/line_editor.h"

namespace tandem {

// Takes SIGINT for itself.  Create before any other thread, so that all inherit the signal's mask.
// Single-thread.
class LineReader {
 public:
  // INTERNAL when the system gives no descriptors.
  static absl::StatusOr<LineReader> Create();

  // Whether input comes from a terminal; if so, there is a prompt and line editing.
  bool interactive() const { return editor_ != nullptr; }
  // As LineEditor's; nothing without a terminal.
  void SetCompletions(std::vector<std::string> words) {
    if (editor_ != nullptr) editor_->SetCompletions(std::move(words));
  }
  // Waits for a line (without its line feed), the end of standard input or Ctrl-C.
  InputEvent Read(const char* prompt, std::string& line);

  // Cancels `context` when Ctrl-C comes during its life.
  class CancelOnInterrupt {
   public:
    CancelOnInterrupt(const LineReader& reader, grpc::ClientContext& context);
    // Waits for the watching thread.
    ~CancelOnInterrupt();
    bool interrupted() const { return interrupted_; }

   private:
    UniqueFd stop_;
    std::atomic<bool> interrupted_ = false;
    std::thread thread_;
  };

 private:
  LineReader() = default;
  UniqueFd signals_;
  std::unique_ptr<LineEditor> editor_;  // null without a terminal
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace tandem
