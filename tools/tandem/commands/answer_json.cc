#include "tools/tandem/commands/answer_json.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

const char* FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
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

nlohmann::ordered_json AnswerAsJson(const Answer& answer) {
  const v1::Usage& usage = answer.usage;
  Json json = {{"text", answer.text}, {"finish_reason", FinishReasonName(answer.finish_reason)}};
  if (!answer.tokens.empty() && answer.tokens[0].has_logprob()) {
    for (const v1::Token& token : answer.tokens) json["tokens"].push_back(TokenAsJson(token));
  }
  Json times = Json::object(), joules = Json::object();
  for (const v1::DeviceTime& time : usage.device_times()) {
    times[time.worker()] = time.seconds();
    if (time.joules() > 0.0) joules[time.worker()] = time.joules();
  }
  json["usage"] = {{"prompt_tokens", usage.prompt_tokens()},
                   {"cached_tokens", usage.cached_tokens()},
                   {"completion_tokens", usage.completion_tokens()},
                   {"accepted_prediction_tokens", usage.accepted_prediction_tokens()},
                   {"rejected_prediction_tokens", usage.rejected_prediction_tokens()},
                   {"seed", usage.seed()},
                   {"queue_seconds", usage.queue_seconds()},
                   {"first_token_seconds", usage.first_token_seconds()},
                   {"total_seconds", usage.total_seconds()},
                   {"device_seconds", times},
                   {"device_joules", joules}};
  json["placement"] = answer.placement;
  json["request_id"] = answer.request_id;
  return json;
}

std::string PrintJson(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tandem
