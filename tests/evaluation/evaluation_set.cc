#include "tests/evaluation/evaluation_set.h"

#include <algorithm>

#include "services/common/base/status_macros.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/json.h"

namespace tandem::evaluation {

absl::StatusOr<std::vector<Item>> ReadEvaluationSet(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, loader::FileSource::Open(path));
  TANDEM_ASSIGN_OR_RETURN(const std::string text, loader::ReadAll(file, 16 << 20));
  std::vector<Item> items;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    TANDEM_ASSIGN_OR_RETURN(const nlohmann::json json,
                            loader::ParseJson(text.substr(begin, end - begin)));
    Item item{.kind = json.at("kind"), .expected = json.at("expected")};
    for (const nlohmann::json& turn : json.at("turns")) {
      item.messages.push_back({"user", turn.at(0)});
      if (!turn.at(1).is_null()) item.messages.push_back({"model", turn.at(1)});
    }
    items.push_back(std::move(item));
    begin = end + 1;
  }
  return items;
}

absl::StatusOr<std::vector<std::vector<uint32_t>>> RenderPrompts(
    const gateway::Tokenizer& tokenizer, const ModelConfig& config,
    const std::vector<Item>& items) {
  std::vector<std::vector<uint32_t>> prompts;
  for (const Item& item : items) {
    TANDEM_ASSIGN_OR_RETURN(auto prompt,
                            gateway::RenderChat(tokenizer, config.bos_token_id, item.messages));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace tandem::evaluation
