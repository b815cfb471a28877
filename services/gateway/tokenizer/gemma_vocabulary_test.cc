// The tokenizer on Gemma 3's own vocabulary, which is not part of this repository.  The file
// gemma3-tokenizer.json(.xz), with gemma3-cases.json beside it (texts and their ids), is looked for
// at $TANDEM_GEMMA_TOKENIZER and in ../shared/tokenizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "services/common/testing/paths.h"
#include "services/gateway/tokenizer/testing/vocabularies.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {
namespace {

using Json = nlohmann::json;

std::filesystem::path FindTokenizerFile() {
  if (const char* path = std::getenv("TANDEM_GEMMA_TOKENIZER")) return path;
  const std::filesystem::path folder = SourcePath("../shared/tokenizer");
  for (const char* name : {"gemma3-tokenizer.json", "gemma3-tokenizer.json.xz"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  return {};
}

// Without the merges, which are most of it.
Json ReadTokenizer(const std::filesystem::path& path) {
  const auto skip_merges = [](int, Json::parse_event_t event, Json& value) {
    return event != Json::parse_event_t::key || value != "merges";
  };
  std::string text;
  const std::string command =
      (path.extension() == ".xz" ? "xz -dc '" : "cat '") + path.string() + "'";
  std::FILE* pipe = popen(command.c_str(), "r");
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return Json::parse(text, skip_merges);
}

Vocabulary MakeGemmaVocabulary(const Json& json) {
  const Json& vocab = json.at("model").at("vocab");
  Vocabulary vocabulary;
  vocabulary.pieces.resize(vocab.size());
  vocabulary.scores.resize(vocab.size());
  vocabulary.types.resize(vocab.size(), TokenType::kNormal);
  for (const auto& [piece, id] : vocab.items()) {
    vocabulary.pieces.at(id.get<size_t>()) = piece;
    if (piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with(">")) {
      vocabulary.types[id.get<size_t>()] = TokenType::kByte;
    }
  }
  for (const auto& token : json.at("added_tokens")) {
    const size_t id = token.at("id");
    if (id >= vocabulary.pieces.size()) continue;  // beyond the text model's vocabulary
    const std::string content = token.at("content");
    vocabulary.types[id] = content == "<unk>"    ? TokenType::kUnknown
                           : token.at("special") ? TokenType::kControl
                                                 : TokenType::kUserDefined;
  }
  return vocabulary;
}

TEST(GemmaVocabularyTest, GivesTheIdsOfAnIndependentImplementation) {
  const std::filesystem::path path = FindTokenizerFile();
  if (path.empty()) GTEST_SKIP() << "no gemma3-tokenizer.json; set TANDEM_GEMMA_TOKENIZER";
  const auto tokenizer = Tokenizer::Create(MakeGemmaVocabulary(ReadTokenizer(path)));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::ifstream file(path.parent_path() / "gemma3-cases.json");
  const Json cases = Json::parse(file);
  for (const Json& test_case : cases) {
    const std::string text = test_case.at("text");
    const auto ids = (*tokenizer)->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ((*tokenizer)->Decode(*ids), text);
    const auto expected = test_case.at("ids").get<std::vector<uint32_t>>();
    if (text.find("_of_turn>") != std::string::npos) {
      // The other implementation reads turn markers in text; here they stay text.
      const uint32_t marker = *(*tokenizer)->FindPiece("<start_of_turn>");
      EXPECT_EQ(std::count(ids->begin(), ids->end(), marker), 0);
      continue;
    }
    EXPECT_EQ(*ids, expected) << text;
  }
}

}  // namespace
}  // namespace tandem::gateway
