#include "services/gateway/service/response_writer.h"

#include <string>

namespace tandem::gateway {

void WriteToken(const Decision& decision, const Tokenizer& tokenizer, bool with_logprobs,
                v1::Token& token) {
  token.set_id(decision.token);
  token.set_piece(std::string(tokenizer.TokenBytes(decision.token)));
  if (!with_logprobs) return;
  token.set_logprob(decision.logprob);
  for (const Alternative& alternative : decision.alternatives) {
    v1::TokenAlternative* added = token.add_alternatives();
    added->set_id(alternative.token);
    added->set_piece(std::string(tokenizer.TokenBytes(alternative.token)));
    added->set_logprob(alternative.logprob);
  }
}

}  // namespace tandem::gateway
