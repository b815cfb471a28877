#include "services/gateway/service/response_writer.h"

#include <string>
#include <vector>

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

void WriteEmbeddings(const EmbedResult& result, v1::EmbedResponse& response) {
  *response.mutable_usage() = result.usage;
  if (!result.status.ok()) return;
  for (const std::vector<float>& embedding : result.embeddings) {
    response.add_embeddings()->mutable_values()->Assign(embedding.begin(), embedding.end());
  }
}

}  // namespace tandem::gateway
