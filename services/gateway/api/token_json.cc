#include "services/gateway/api/token_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/common/base/utf8.h"
#include "services/gateway/api/json.h"

namespace tandem::gateway {
namespace {

// Without the closing brace: more members may follow.
void AppendCandidate(uint32_t token, float logprob, const Tokenizer& tokenizer, std::string& out) {
  absl::StrAppend(&out, R"({"token":)", DumpJson(TokenText(token, tokenizer)), R"(,"logprob":)",
                  DumpJson(FiniteLogprob(logprob)), R"(,"bytes":[)");
  const char* before = "";
  for (const char byte : tokenizer.TokenBytes(token)) {
    absl::StrAppend(&out, before, static_cast<unsigned char>(byte));
    before = ",";
  }
  out += ']';
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

void AppendTokenLogprob(const Decision& decision, const Tokenizer& tokenizer, std::string& list) {
  if (!list.empty()) list += ',';
  AppendCandidate(decision.token, decision.logprob, tokenizer, list);
  list += R"(,"top_logprobs":[)";
  const char* before = "";
  for (const Alternative& alternative : decision.alternatives) {
    list += before;
    AppendCandidate(alternative.token, alternative.logprob, tokenizer, list);
    list += '}';
    before = ",";
  }
  list += "]}";
}

void AppendTokenLogprobs(std::span<const Decision> decisions, const Tokenizer& tokenizer,
                         std::string& list) {
  for (const Decision& decision : decisions) AppendTokenLogprob(decision, tokenizer, list);
}

}  // namespace tandem::gateway
