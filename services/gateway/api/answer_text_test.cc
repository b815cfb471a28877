#include "services/gateway/api/answer_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/testing/toy_served_model.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kToyEos;
using testing::kToyFirstByte;
using testing::MakeToyModel;

class AnswerTextTest : public ::testing::Test {
 protected:
  // Tokens of the letters of `text`; "." is the end of the sequence, "#" half a character.
  static StreamUpdate Update(const std::string& text, const std::string& tokens) {
    StreamUpdate update{.text = text};
    for (const char c : tokens) {
      const uint32_t token = c == '.' ? kToyEos : c == '#' ? kToyFirstByte + 0xC3 : 261 + c - 'a';
      update.tokens.push_back({.token = token});
    }
    return update;
  }
  static std::vector<uint32_t> Ids(const std::vector<Decision>& decisions) {
    std::vector<uint32_t> ids;
    for (const Decision& decision : decisions) ids.push_back(decision.token);
    return ids;
  }

  std::unique_ptr<ServedModel> model_ = MakeToyModel();
  AnswerText text_{*model_, /*ignore_eos=*/false};
};

TEST_F(AnswerTextTest, TokensComeWithTheTextThatCoversThem) {
  EXPECT_THAT(Ids(text_.Append(Update("", "a"))), IsEmpty());
  EXPECT_THAT(Ids(text_.Append(Update("ab", "b"))), ElementsAre(261, 262));
  EXPECT_THAT(Ids(text_.Append(Update("c", "cd"))), ElementsAre(263));
  EXPECT_THAT(Ids(text_.Finish(v1::FINISH_REASON_LENGTH)), ElementsAre(264));
  EXPECT_EQ(text_.text(), "abc");
}

TEST_F(AnswerTextTest, TokensOfAStopTextAreLeftOut) {
  EXPECT_THAT(Ids(text_.Append(Update("a", "abc"))), ElementsAre(261));
  EXPECT_THAT(Ids(text_.Finish(v1::FINISH_REASON_STOP)), IsEmpty());
}

TEST_F(AnswerTextTest, AStopTokenIsLeftOutUnlessItIsIgnored) {
  EXPECT_THAT(Ids(text_.Append(Update("a", "a."))), ElementsAre(261));
  EXPECT_THAT(Ids(text_.Finish(v1::FINISH_REASON_STOP)), IsEmpty());
  AnswerText going_on(*model_, /*ignore_eos=*/true);
  EXPECT_THAT(Ids(going_on.Append(Update("a", "a."))), ElementsAre(261, kToyEos));
}

TEST_F(AnswerTextTest, HalfACharacterAtTheEndKeepsItsToken) {
  EXPECT_THAT(Ids(text_.Append(Update("a", "a#"))), ElementsAre(261));
  StreamUpdate last{.text = "\uFFFD"};
  EXPECT_THAT(Ids(text_.Append(last)), ElementsAre(kToyFirstByte + 0xC3));
}

}  // namespace
}  // namespace tandem::gateway
