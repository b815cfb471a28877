#include "services/gateway/model/response_writer.h"

#include <string>
#include <utility>
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

void WriteCalls(const std::string& piece, bool last, AnswerReader& reader,
                v1::ChatResponse& response) {
  std::vector<AnswerEvent> events = reader.Append(piece);
  if (last) {
    for (AnswerEvent& event : reader.Finish()) events.push_back(std::move(event));
  }
  response.clear_text();
  for (AnswerEvent& event : events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        response.mutable_text()->append(event.text);
        break;
      case AnswerEvent::Kind::kCallBegin: {
        v1::ToolCallDelta* begin = response.add_tool_calls();
        begin->set_index(static_cast<uint32_t>(event.call));
        begin->set_id(std::move(event.id));
        begin->set_name(std::move(event.name));
        break;
      }
      case AnswerEvent::Kind::kCallArguments: {
        v1::ToolCallDelta* arguments = response.add_tool_calls();
        arguments->set_index(static_cast<uint32_t>(event.call));
        arguments->set_arguments_json(std::move(event.text));
        break;
      }
      case AnswerEvent::Kind::kCallEnd:
        break;
    }
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
