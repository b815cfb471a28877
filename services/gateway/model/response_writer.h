// Stream updates to public messages.
#pragma once

#include "services/gateway/engine/token_stream.h"
#include "services/gateway/model/embed_run.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "services/gateway/tool_calls/answer_reader.h"
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

// The text and the calls of an answer's next piece, or of its last one, into a response that is not
// written yet.
void WriteCalls(const std::string& piece, bool last, AnswerReader& reader,
                v1::ChatResponse& response);

// The embeddings of a result that is OK, and what was used.
void WriteEmbeddings(const EmbedResult& result, v1::EmbedResponse& response);

}  // namespace tandem::gateway
