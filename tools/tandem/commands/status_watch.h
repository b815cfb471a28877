// `tandem status --watch`: prints the status periodically.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tandem/v1/generation.pb.h"

namespace tandem {

// Prints to standard output.  Single-thread.
class StatusWatch {
 public:
  enum class Form {
    kScreen,  // a terminal's screen, redrawn each time
    kLines,   // a line each time
    kJson,    // an object each time, in one line
  };
  // `tables`: what the screen shows below the rates.
  StatusWatch(Form form, std::function<std::string(const v1::GetStatusResponse&)> tables)
      : form_(form), tables_(std::move(tables)) {}

  void Show(const v1::GetStatusResponse& status);
  void ShowError(const absl::Status& error);

 private:
  // "34.5 tokens/s answered, 120.0 of prompts", since the last time; empty the first time.
  std::string Rates(const v1::GetStatusResponse& status, absl::Time now);
  void Redraw(const std::string& text);

  const Form form_;
  const std::function<std::string(const v1::GetStatusResponse&)> tables_;
  absl::Time last_ = absl::InfinitePast();
  uint64_t last_prompt_tokens_ = 0, last_completion_tokens_ = 0;
  bool drawn_ = false;
};

}  // namespace tandem
