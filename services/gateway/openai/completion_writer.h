// Answers of /v1/completions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

struct CompletionWriterOptions {
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool ignore_eos = false;
  std::vector<std::string> ignored;  // members accepted without effect
  size_t num_prompts = 1;
  size_t num_choices = 1;  // of each prompt

  // A prompt that is put before its answers.
  struct Echo {
    std::string text;
    // The first token, which has no probability; nullopt if it stands for no text.
    std::optional<uint32_t> first_token;
  };
  std::vector<Echo> echoes;  // by prompt; empty: no echo
};

// Run i is choice i % num_choices of prompt i / num_choices.  `model`: Borrowed; must outlive the
// writer.
std::unique_ptr<AnswerWriter> MakeCompletionWriter(const ServedModel& model,
                                                   CompletionWriterOptions options);

}  // namespace tandem::gateway
