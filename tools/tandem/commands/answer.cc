#include "tools/tandem/commands/answer.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

const char* FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "";
  }
}

Json TokenAsJson(const v1::Token& token) {
  Json json = {{"id", token.id()}, {"piece", token.piece()}};
  if (token.has_logprob()) json["logprob"] = token.logprob();
  for (const v1::TokenAlternative& alternative : token.alternatives()) {
    json["alternatives"].push_back({{"id", alternative.id()},
                                    {"piece", alternative.piece()},
                                    {"logprob", alternative.logprob()}});
  }
  return json;
}

}  // namespace

std::string ForTerminal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    const bool is_c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c0 || is_c1) {
      out += "\uFFFD";
      if (is_c1) ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

void PrintText(std::string_view text) {
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
  const double decode_seconds = usage.total_seconds() - usage.first_token_seconds();
  if (num_tokens > 1 && decode_seconds > 0) {
    line += absl::StrFormat(", %.1f tokens/s", (num_tokens - 1) / decode_seconds);
  }
  if (num_tokens > 0) {
    line += absl::StrFormat(", first token after %.3f s", usage.first_token_seconds());
  }
  line += absl::StrFormat(", seed %d", usage.seed());
  if (answer.finish_reason == v1::FINISH_REASON_LENGTH) line += ", cut at the limit";
  line += "\n";
  if (!answer.placement.empty()) line += "placement: " + answer.placement + "\n";
  if (usage.device_times_size() > 0) {
    line += "device time:";
    for (const v1::DeviceTime& time : usage.device_times()) {
      line += absl::StrFormat(" %s %.3f s", time.worker(), time.seconds());
    }
    line += "\n";
  }
  return line;
}

std::string AnswerAsJson(const Answer& answer) {
  const v1::Usage& usage = answer.usage;
  Json json = {{"text", answer.text}, {"finish_reason", FinishReasonName(answer.finish_reason)}};
  if (!answer.tokens.empty() && answer.tokens[0].has_logprob()) {
    for (const v1::Token& token : answer.tokens) json["tokens"].push_back(TokenAsJson(token));
  }
  Json times = Json::object();
  for (const v1::DeviceTime& time : usage.device_times()) times[time.worker()] = time.seconds();
  json["usage"] = {{"prompt_tokens", usage.prompt_tokens()},
                   {"completion_tokens", usage.completion_tokens()},
                   {"seed", usage.seed()},
                   {"queue_seconds", usage.queue_seconds()},
                   {"first_token_seconds", usage.first_token_seconds()},
                   {"total_seconds", usage.total_seconds()},
                   {"device_seconds", times}};
  json["placement"] = answer.placement;
  json["request_id"] = answer.request_id;
  // A token may hold half a character.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tandem
