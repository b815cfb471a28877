// Texts that no context holds cost little, over gRPC and in the parsers.
#include "services/gateway/model/text_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "services/common/base/cancellation.h"
#include "services/gateway/grpc/testing/service_fixture.h"
#include "services/gateway/model/request_parser.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

class TextTokensTest : public testing::ServiceFixture {
 protected:
  const ServedModel& model() { return **launcher_->model(); }
  uint32_t context() { return model().replicas().max_sequence_len(); }

  grpc::Status Tokenize(const std::string& text, v1::TokenizeResponse& response) {
    v1::TokenizeRequest request;
    request.set_text(text);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return stub_->Tokenize(&context, request, &response);
  }
};

TEST_F(TextTokensTest, ATextMayFillTheContextAndNoMore) {
  Start();
  v1::TokenizeResponse response;
  // "\x01" is no piece of its own: a token each.
  ASSERT_TRUE(Tokenize(std::string(context(), '\x01'), response).ok());
  EXPECT_EQ(response.ids_size(), static_cast<int>(context()));
  EXPECT_EQ(response.pieces_size(), static_cast<int>(context()));
  const grpc::Status longer = Tokenize(std::string(context() + 1, '\x01'), response);
  EXPECT_EQ(longer.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(longer.error_message(),
              HasSubstr("context_length_exceeded: the text has 257 tokens, a context holds 256"));
}

TEST_F(TextTokensTest, OneThatIsMuchTooLongIsRefusedWithoutBeingEncoded) {
  Start();
  int num_asked = 0;
  const CancellationScope scope([&num_asked] {
    ++num_asked;
    return false;
  });
  for (const char* unit : {"\x01", " the", "x", "\n"}) {
    std::string text;
    while (text.size() < 8 << 20) text += unit;
    EXPECT_THAT(std::string(TokensOf(text, true, model()).status().message()),
                HasSubstr("context_length_exceeded: the text has at least "));
    EXPECT_THAT(std::string(EncodePrompt(text, model()).status().message()),
                HasSubstr("context_length_exceeded: the prompt has at least "));
    EXPECT_THAT(std::string(EncodeChat({{"user", text}}, model()).status().message()),
                HasSubstr("context_length_exceeded: the prompt has at least "));
  }
  EXPECT_EQ(num_asked, 0);  // not once in 16,384 steps
}

TEST_F(TextTokensTest, TokensThatNoContextHoldsAreNotMadeText) {
  Start();
  v1::DetokenizeRequest request;
  v1::DetokenizeResponse response;
  for (uint32_t i = 0; i < context(); ++i) request.add_ids(10);
  grpc::ClientContext fits;
  EXPECT_TRUE(stub_->Detokenize(&fits, request, &response).ok());
  request.add_ids(10);
  grpc::ClientContext longer;
  EXPECT_THAT(stub_->Detokenize(&longer, request, &response).error_message(),
              HasSubstr("context_length_exceeded: 257 tokens, a context holds 256"));
  v1::GenerateRequest generate;
  for (int i = 0; i < 1 << 20; ++i) generate.mutable_tokens()->add_ids(1'000'000);
  EXPECT_THAT(std::string(ParseGenerate(generate, model()).status().message()),
              HasSubstr("context_length_exceeded: the prompt has 1048576 tokens"));
}

TEST_F(TextTokensTest, MessagesAreBoundedInNumber) {
  Start();
  v1::ChatRequest request;
  for (int i = 0; i <= kMaxMessages; ++i) request.add_messages()->set_role("user");
  EXPECT_THAT(std::string(ParseChat(request, model()).status().message()),
              HasSubstr("messages: 16385 of them, at most 16384 in one request"));
}

TEST_F(TextTokensTest, EmbeddingsHaveABoundOfAllInputsTogether) {
  Start();
  v1::EmbedRequest request;
  for (int i = 0; i < kMaxEmbedInputs; ++i) {
    auto* ids = request.add_inputs()->mutable_tokens()->mutable_ids();
    for (uint32_t k = 0; k + 1 < context(); ++k) ids->Add(10);
  }
  const auto parsed = ParseEmbed(request, model());
  EXPECT_THAT(std::string(parsed.status().message()),
              HasSubstr("tokens together, at most 300000 in one request"));
}

}  // namespace
}  // namespace tandem::gateway
