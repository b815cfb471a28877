#include "services/gateway/api/token_json.h"

#include <algorithm>
#include <utility>

#include "services/common/base/utf8.h"

namespace tandem::gateway {
namespace {

Json Candidate(uint32_t token, float logprob, const Tokenizer& tokenizer) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.TokenBytes(token)) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", TokenText(token, tokenizer)},
          {"logprob", FiniteLogprob(logprob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

std::string AsText(std::string_view bytes) {
  std::string text;
  Utf8Stream stream;
  stream.Append(bytes, text);
  stream.Finish(text);
  return text;
}

std::string TokenText(uint32_t token, const Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.TokenBytes(token);
  return AsText(bytes.empty() ? tokenizer.Piece(token) : bytes);
}

double FiniteLogprob(float logprob) { return std::max(double{logprob}, -9999.0); }

Json TokenLogprob(const Decision& decision, const Tokenizer& tokenizer) {
  Json json = Candidate(decision.token, decision.logprob, tokenizer);
  Json top = Json::array();
  for (const Alternative& alternative : decision.alternatives) {
    top.push_back(Candidate(alternative.token, alternative.logprob, tokenizer));
  }
  json["top_logprobs"] = std::move(top);
  return json;
}

}  // namespace tandem::gateway
