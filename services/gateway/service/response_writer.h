// Stream updates to public messages.
#pragma once

#include "services/gateway/engine/token_stream.h"
#include "services/gateway/service/embed_run.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// `with_logprobs`: fill log-probability and alternatives.
void WriteToken(const Decision& decision, const Tokenizer& tokenizer, bool with_logprobs,
                v1::Token& token);

// Text and tokens of `update`; the prompt's where Response has a place for them.
template <class Response>
void WriteUpdate(const StreamUpdate& update, const Tokenizer& tokenizer, bool with_logprobs,
                 Response& response) {
  response.set_text(update.text);
  for (const Decision& decision : update.tokens) {
    WriteToken(decision, tokenizer, with_logprobs, *response.add_tokens());
  }
  if constexpr (requires { response.add_prompt_tokens(); }) {
    for (const Decision& decision : update.prompt_tokens) {
      WriteToken(decision, tokenizer, /*with_logprobs=*/true, *response.add_prompt_tokens());
    }
  }
}

// The embeddings of a result that is OK, and what was used.
void WriteEmbeddings(const EmbedResult& result, v1::EmbedResponse& response);

}  // namespace tandem::gateway
