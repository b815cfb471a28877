// Which format of tools a model gets, and what a request then is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/tool_calls/functiongemma_parser.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kFirstMarker = 261 + 19;  // the toy vocabulary's letters "t" to "z"

// The toy model, with FunctionGemma's tokens in place of some letters.
class FunctionModel : public testing::FakeExecutor {
 public:
  FunctionModel() : FakeExecutor(Options()), functions_(FakeExecutor::vocabulary()) {
    for (uint32_t i = 0; i < std::size(kFunctionMarkers); ++i) {
      functions_.pieces[kFirstMarker + i] = kFunctionMarkers[i];
      functions_.types[kFirstMarker + i] = TokenType::kUserDefined;  // as some files have them
    }
  }
  const Vocabulary& vocabulary() const override { return functions_; }

 private:
  static testing::FakeExecutorOptions Options() {
    testing::FakeExecutorOptions options;
    options.limits.context_len *= 8;
    options.limits.max_table_len *= 8;
    for (uint32_t& blocks : options.limits.num_blocks) blocks *= 8;
    return options;
  }
  Vocabulary functions_;
};

const EngineOptions kToyOptions = {
    .max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 20};

absl::StatusOr<std::unique_ptr<ServedModel>> ServeToy(std::unique_ptr<Executor> executor,
                                                      std::optional<ToolFormat> tools) {
  return ServedModel::Create(std::move(executor), kToyOptions, {}, tools);
}

v1::ChatRequest RollRequest() {
  v1::ChatRequest request;
  request.add_messages()->set_role("user");
  request.mutable_messages(0)->set_content("he <escape>");
  request.add_tools()->set_name("roll");
  return request;
}

TEST(ToolFormatTest, TheVocabularyDecidesUnlessAFlagDoes) {
  const auto functions = ServeToy(std::make_unique<FunctionModel>(), std::nullopt);
  ASSERT_TRUE(functions.ok()) << functions.status();
  EXPECT_EQ((*functions)->tool_format(), ToolFormat::kFunctionGemma);
  const auto forced = ServeToy(std::make_unique<FunctionModel>(), ToolFormat::kGemma3);
  EXPECT_EQ((*forced)->tool_format(), ToolFormat::kGemma3);
  const auto plain = ServeToy(
      std::make_unique<testing::FakeExecutor>(testing::FakeExecutorOptions()), std::nullopt);
  EXPECT_EQ((*plain)->tool_format(), ToolFormat::kGemma3);
  const absl::Status lacks =
      ServeToy(std::make_unique<testing::FakeExecutor>(testing::FakeExecutorOptions()),
               ToolFormat::kFunctionGemma)
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(lacks)) << lacks;
  EXPECT_THAT(std::string(lacks.message()), HasSubstr("--tool-format functiongemma"));
  EXPECT_THAT(std::string(lacks.message()), HasSubstr("<start_function_declaration>"));
}

TEST(ToolFormatTest, ARequestShowsTheTokensAndStopsBeforeAResult) {
  const auto model = ServeToy(std::make_unique<FunctionModel>(), std::nullopt);
  const auto parsed = ParseChat(RollRequest(), **model);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->stops, ElementsAre("<start_function_response>"));
  EXPECT_EQ(parsed->shown_tokens, (*model)->tool_tokens());
  const auto count = [&](std::string_view piece) {
    return std::count(parsed->prompt.begin(), parsed->prompt.end(),
                      *(*model)->tokenizer().FindPiece(piece));
  };
  EXPECT_EQ(count(kStartDeclaration), 1);
  EXPECT_EQ(count(kEndDeclaration), 1);
  EXPECT_EQ(count(kEscape), 4) << "around the description and the type; the user's is text";
  v1::ChatRequest without = RollRequest();
  without.clear_tools();
  const auto plain = ParseChat(without, **model);
  EXPECT_TRUE(plain->stops.empty());
  EXPECT_TRUE(plain->shown_tokens.empty());
}

TEST(ToolFormatTest, AModelWithTokensForCallsCannotBeMadeToCall) {
  const auto model = ServeToy(std::make_unique<FunctionModel>(), std::nullopt);
  v1::ChatRequest request = RollRequest();
  request.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
  const absl::Status status = ParseChat(request, **model).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tool_choice: this model writes calls"));
  const auto plain = ServeToy(std::make_unique<FunctionModel>(), ToolFormat::kGemma3);
  EXPECT_NE(ParseChat(request, **plain)->constraint_source, nullptr);
}

}  // namespace
}  // namespace tandem::gateway
