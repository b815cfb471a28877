// The answers of tests/data/tool_calls.jsonl, cut at every byte.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/common/testing/paths.h"
#include "services/gateway/tool_calls/answer_reader.h"
#include "services/gateway/tool_calls/spaced_json.h"

namespace tandem::gateway {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The text and the calls, written as the model writes calls.
OrderedJson ReadInPieces(const std::vector<std::string>& pieces, const CallOptions& options) {
  AnswerReader reader(options);
  for (const std::string& piece : pieces) reader.Append(piece);
  reader.Finish();
  OrderedJson calls = OrderedJson::array();
  for (const v1::ToolCall& call : reader.calls()) {
    EXPECT_FALSE(call.id().empty());
    calls.push_back({{"name", call.name()},
                     {"parameters", OrderedJson::parse(call.arguments_json(), nullptr, false)}});
  }
  return {{"text", reader.text()}, {"calls", std::move(calls)}};
}

TEST(RecordedCallsTest, EveryAnswerIsReadRightCutAtEveryByte) {
  std::ifstream file(TestDataPath("tool_calls.jsonl"));
  int num_calls = 0;
  int num_cuts = 0;
  int num_texts = 0;
  for (std::string line; std::getline(file, line);) {
    const OrderedJson item = OrderedJson::parse(line);
    CallOptions options;
    for (const OrderedJson& function : item["functions"]) options.names.insert(function["name"]);
    const std::string answer = item["answer"];
    OrderedJson expected = {{"text", ""}, {"calls", OrderedJson::array()}};
    const OrderedJson json = OrderedJson::parse(answer, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
      expected["text"] = answer;
      ++num_texts;
    } else if (json.is_array()) {
      expected["calls"] = json;
    } else {
      expected["calls"].push_back(json);
    }
    num_calls += static_cast<int>(expected["calls"].size());
    ASSERT_EQ(ReadInPieces({answer}, options), expected);
    std::vector<std::string> bytes;
    for (const char c : answer) bytes.emplace_back(1, c);
    ASSERT_EQ(ReadInPieces(bytes, options), expected);
    for (size_t cut = 1; cut < answer.size(); ++cut, ++num_cuts) {
      ASSERT_EQ(ReadInPieces({answer.substr(0, cut), answer.substr(cut)}, options), expected)
          << answer << " cut at " << cut;
    }
    // As the model writes calls, so the conversation gives them back to it.
    if (!json.is_discarded()) {
      EXPECT_EQ(SpacedJson(json), answer);
    }
  }
  std::printf("%d calls and %d texts, %d cuts\n", num_calls, num_texts, num_cuts);
  EXPECT_EQ(num_calls, 60 + 120 + 60);
  EXPECT_EQ(num_texts, 120);
}

}  // namespace
}  // namespace tandem::gateway
