// One tokenizer from every file format: the same ids, and the reference's.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "services/common/testing/paths.h"
#include "services/gateway/tokenizer/chat_template.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "services/loader/formats/open_model.h"
#include "tests/support/reference_outputs.h"

namespace tandem {
namespace {

// Ids of text whose turn markers are read as such, as the reference read its prompts.
std::vector<uint32_t> EncodeWithMarkers(const gateway::Tokenizer& tokenizer, int32_t bos_token_id,
                                        std::string_view text) {
  std::vector<uint32_t> ids;
  if (bos_token_id >= 0) ids.push_back(static_cast<uint32_t>(bos_token_id));
  while (!text.empty()) {
    const size_t marker = std::min(text.find("<start_of_turn>"), text.find("<end_of_turn>"));
    const auto plain = tokenizer.Encode(text.substr(0, marker));
    EXPECT_TRUE(plain.ok()) << plain.status();
    if (!plain.ok()) break;
    ids.insert(ids.end(), plain->begin(), plain->end());
    if (marker == std::string_view::npos) break;
    const size_t length = text.find('>', marker) + 1 - marker;
    ids.push_back(tokenizer.FindPiece(text.substr(marker, length)).value());
    text.remove_prefix(marker + length);
  }
  return ids;
}

struct Source {
  std::string model;
  std::string reference;
};

class VocabularySourcesTest : public ::testing::TestWithParam<Source> {};

TEST_P(VocabularySourcesTest, GivesTheIdsOfTheReference) {
  const auto source = loader::OpenModelSource(GetParam().model);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto tokenizer = gateway::Tokenizer::Create((*source)->vocabulary());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const ModelConfig& config = (*source)->config();
  EXPECT_EQ((*tokenizer)->vocab_size(), config.vocab_size);

  const auto reference = testing::LoadReferenceOutputs(GetParam().reference);
  ASSERT_TRUE(reference.ok()) << reference.status();
  ASSERT_FALSE(reference->prompts.empty());
  for (const testing::ReferencePrompt& prompt : reference->prompts) {
    EXPECT_EQ(EncodeWithMarkers(**tokenizer, config.bos_token_id, prompt.text), prompt.tokens);
    // Spelt out by a user, the same markers are text.
    const auto as_text = (*tokenizer)->Encode(prompt.text);
    ASSERT_TRUE(as_text.ok());
    for (const char* marker : {"<start_of_turn>", "<end_of_turn>"}) {
      EXPECT_EQ(std::count(as_text->begin(), as_text->end(), *(*tokenizer)->FindPiece(marker)), 0);
    }
    EXPECT_EQ((*tokenizer)->Decode(*as_text), prompt.text);
  }
  // The long text comes back from its tokens and becomes the same ones, but for those without text.
  std::vector<uint32_t> long_tokens = reference->long_tokens;
  std::erase_if(long_tokens, [&](uint32_t id) { return (*tokenizer)->TokenBytes(id).empty(); });
  EXPECT_EQ((*tokenizer)->Encode((*tokenizer)->Decode(long_tokens)).value(), long_tokens);
}

// Without a reference: text survives a round trip, chats find their markers, every id has a piece.
TEST(SyntheticVocabularyTest, EncodesAnyTextAndGivesItBack) {
  const auto source = loader::OpenModelSource("synthetic:gemma3-270m");
  ASSERT_TRUE(source.ok()) << source.status();
  const auto tokenizer = gateway::Tokenizer::Create((*source)->vocabulary());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const ModelConfig& config = (*source)->config();
  EXPECT_EQ((*tokenizer)->vocab_size(), config.vocab_size);
  for (const std::string text : {"Once upon a time", "  two\n lines ", "na\u00efve \u4f60\u597d"}) {
    const auto ids = (*tokenizer)->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ((*tokenizer)->Decode(*ids), text);
  }
  EXPECT_EQ((*tokenizer)->FindPiece("<bos>"), static_cast<uint32_t>(config.bos_token_id));
  for (const int32_t stop : config.stop_token_ids) {
    EXPECT_EQ((*tokenizer)->TokenBytes(static_cast<uint32_t>(stop)), "");
  }
  EXPECT_TRUE(gateway::RenderChat(**tokenizer, config.bos_token_id, {{"user", "Hello"}}).ok());
  EXPECT_EQ((*tokenizer)->TokenBytes(262), " ");
}

INSTANTIATE_TEST_SUITE_P(
    All, VocabularySourcesTest,
    ::testing::Values(Source{TestDataPath("demo"), TestDataPath("demo")},
                      Source{SourcePath("models/demo/demo.Q8_0.gguf"), TestDataPath("demo")},
                      Source{TestDataPath("demo.Q4_0.gguf"), TestDataPath("demo")},
                      Source{TestDataPath("random-1b-shape"), TestDataPath("random-1b-shape")},
                      Source{TestDataPath("random-27b-shape"), TestDataPath("random-27b-shape")}));

}  // namespace
}  // namespace tandem
