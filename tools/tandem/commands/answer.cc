#include "tools/tandem/commands/answer.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"

namespace tandem {

void PrintText(std::string_view text) {
  if (text.empty()) return;
  static const bool kTerminal = isatty(STDOUT_FILENO) == 1;
  if (kTerminal) {
    const std::string safe = ForTerminal(text);
    std::fwrite(safe.data(), 1, safe.size(), stdout);
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  std::fflush(stdout);
}

std::string DescribeAnswer(const Answer& answer) {
  const v1::Usage& usage = answer.usage;
  const uint32_t num_tokens = usage.completion_tokens();
  std::string line = absl::StrFormat("%d token%s after %d", num_tokens, num_tokens == 1 ? "" : "s",
                                     usage.prompt_tokens());
  if (usage.cached_tokens() > 0) line += absl::StrFormat(" (%d cached)", usage.cached_tokens());
  const uint32_t accepted = usage.accepted_prediction_tokens();
  const uint32_t guessed = accepted + usage.rejected_prediction_tokens();
  if (guessed > 0) line += absl::StrFormat(", %d of %d guesses accepted", accepted, guessed);
  const double decode_seconds = usage.total_seconds() - usage.first_token_seconds();
  if (num_tokens > 1 && decode_seconds > 0) {
    line += absl::StrFormat(", %.1f tokens/s", (num_tokens - 1) / decode_seconds);
  }
  if (num_tokens > 0) {
    line += absl::StrFormat(", first token after %.3f s", usage.first_token_seconds());
  }
  line += absl::StrFormat(", seed %d", usage.seed());
  if (answer.finish_reason == v1::FINISH_REASON_LENGTH) {
    line += ", cut at the limit (--max-tokens)";
  }
  line += "\n";
  if (!answer.placement.empty()) line += "placement: " + answer.placement + "\n";
  if (usage.device_times_size() > 0) {
    line += "device time:";
    for (const v1::DeviceTime& time : usage.device_times()) {
      line += absl::StrFormat(" %s %.3f s", time.worker(), time.seconds());
      if (time.joules() > 0.0) line += absl::StrFormat(" (%.1f J)", time.joules());
    }
    line += "\n";
  }
  return line;
}

}  // namespace tandem
