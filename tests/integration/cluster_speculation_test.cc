// Speculation over the four services: the same tokens with and without, whatever guesses and
// whatever dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_format.h"
#include "services/common/testing/paths.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClusterSetup Demo2(std::vector<std::string> flags) {
  return {.npu = false,
          .context_len = 1024,
          .gateway_flags = std::move(flags),
          .model_folder = TestDataPath(""),
          .model_file = "demo2.Q8_0.gguf"};
}

std::vector<std::string> Draft(const std::string& drafters, const std::string& device = "gpu") {
  return {"--speculate", drafters, "--draft", "demo2-draft.Q8_0.gguf", "--draft-device", device};
}

v1::ChatRequest Ask(const std::string& text, float temperature, uint64_t seed) {
  v1::ChatRequest request;
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content(text);
  request.mutable_limits()->set_max_tokens(80);
  request.mutable_sampling()->set_temperature(temperature);
  request.mutable_sampling()->set_seed(seed);
  return request;
}

std::vector<v1::ChatRequest> Requests() {
  std::vector<v1::ChatRequest> requests;
  const char* texts[] = {"What is the capital of Japan?",
                         "Count from 1 to 30.",
                         "What is 27 + 58?",
                         "List four fruits.",
                         "Tell me a story about Ada, a brave fox.",
                         "Repeat: red green blue red green blue red green blue"};
  uint64_t seed = 100;
  for (const char* text : texts) {
    requests.push_back(Ask(text, 0.0f, 0));
    requests.push_back(Ask(text, 1.0f, ++seed));
    requests.back().mutable_sampling()->set_repetition_penalty(1.1f);
  }
  return requests;
}

class ClusterSpeculationTest : public ClusterFixture {
 protected:
  // All at once.
  std::vector<Answer> AskAll(const std::vector<v1::ChatRequest>& requests) {
    std::vector<Answer> answers(requests.size());
    std::vector<std::thread> clients;
    clients.reserve(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      clients.emplace_back([&, i] { answers[i] = Chat(requests[i]); });
    }
    for (std::thread& client : clients) client.join();
    return answers;
  }
  v1::DrafterStatus StatusOf(const std::string& drafter) {
    const v1::GetStatusResponse status = Status();
    for (const v1::DrafterStatus& known : status.scheduler().drafters()) {
      if (known.name() == drafter) return known;
    }
    ADD_FAILURE() << "no drafter " << drafter;
    return {};
  }
};

void ExpectSame(const std::vector<v1::ChatRequest>& requests, const std::vector<Answer>& plain,
                const std::vector<Answer>& drafted) {
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(plain[i].status.ok()) << plain[i].status.error_message();
    ASSERT_TRUE(drafted[i].status.ok()) << drafted[i].status.error_message();
    ASSERT_FALSE(plain[i].tokens.empty());
    EXPECT_EQ(drafted[i].tokens, plain[i].tokens) << requests[i].ShortDebugString();
  }
}

TEST_F(ClusterSpeculationTest, ADraftModelChangesNoTokenAndSavesSteps) {
  const std::vector<v1::ChatRequest> requests = Requests();
  StartCluster(Demo2({}));
  const std::vector<Answer> plain = AskAll(requests);
  StopCluster();

  StartCluster(Demo2(Draft("lookup,draft")));
  EXPECT_THAT(StatusOf("draft").about(), HasSubstr("demo2-draft.Q8_0.gguf on "));
  ExpectSame(requests, plain, AskAll(requests));
  // One after the other: guesses pay where little else runs.
  uint64_t accepted = 0, drafted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer alone = Chat(requests[i]);
    EXPECT_EQ(alone.tokens, plain[i].tokens) << requests[i].ShortDebugString();
    accepted += alone.usage.accepted_prediction_tokens();
    drafted += alone.usage.accepted_prediction_tokens() + alone.usage.rejected_prediction_tokens();
  }
  EXPECT_GT(StatusOf("draft").accepted_tokens() + StatusOf("lookup").accepted_tokens(), 0u);
  RecordProperty("guesses", absl::StrFormat("%d of %d accepted", accepted, drafted));
}

TEST_F(ClusterSpeculationTest, ADraftModelOfAnotherVocabularyIsRefusedByItsFirstToken) {
  ClusterSetup setup = Demo2({"--draft", "demo.Q4_0.gguf"});
  setup.state = "failed";
  StartCluster(setup);
  EXPECT_THAT(Status().detail(), HasSubstr("demo.Q4_0.gguf has another vocabulary: its token "));
}

// A device's time in the model's steps, or the draft's, as a trace has it.
struct BusySpan {
  int64_t begin_ns = 0, end_ns = 0;
};
std::vector<BusySpan> BusySpans(const v1::GetTraceResponse& trace, const std::string& worker,
                                bool drafts) {
  std::vector<BusySpan> spans;
  for (const v1::TraceStep& step : trace.steps()) {
    if (step.drafts() != drafts) continue;
    const v1::TracePlan& plan = trace.plans(static_cast<int>(step.plan()));
    for (const v1::TraceSegment& segment : step.segments()) {
      const v1::TracePlannedSegment& planned = plan.segments(static_cast<int>(segment.index()));
      if (plan.workers(static_cast<int>(planned.worker())).name() != worker) continue;
      spans.push_back({segment.device_end_ns() - static_cast<int64_t>(segment.device_ns()),
                       segment.device_end_ns()});
    }
  }
  return spans;
}

TEST_F(ClusterSpeculationTest, AnNpuDraftsWhileTheGpuVerifiesAndATraceShowsIt) {
  ClusterSetup setup = Demo2(Draft("draft", "emulate"));
  setup.draft_npu = true;
  StartCluster(setup);
  // Several, so that there is always something to verify.
  int64_t together_ns = 0;
  for (int round = 0; round < 10 && together_ns == 0; ++round) {
    AskAll(Requests());
    v1::GetTraceResponse trace;
    grpc::ClientContext context;
    ASSERT_TRUE(gateway().GetTrace(&context, {}, &trace).ok());
    const std::vector<BusySpan> drafting = BusySpans(trace, "npu0", /*drafts=*/true);
    const std::vector<BusySpan> verifying = BusySpans(trace, "gpu0", /*drafts=*/false);
    EXPECT_FALSE(verifying.empty());
    for (const BusySpan& a : drafting) {
      for (const BusySpan& b : verifying) {
        together_ns +=
            std::max<int64_t>(std::min(a.end_ns, b.end_ns) - std::max(a.begin_ns, b.begin_ns), 0);
      }
    }
  }
  EXPECT_GT(together_ns, 0);
  RecordProperty("both_busy_us", absl::StrFormat("%d", together_ns / 1000));
}

TEST_F(ClusterSpeculationTest, StreamsGoOnWithoutTheDraftsWorkerAndItComesBack) {
  const v1::ChatRequest counting = Ask("Count from 1 to 30.", 0.0f, 0);
  StartCluster(Demo2({}));
  const Answer plain = Chat(counting);
  ASSERT_TRUE(plain.status.ok()) << plain.status.error_message();
  StopCluster();

  ClusterSetup setup = Demo2(Draft("draft", "emulate"));
  setup.draft_npu = true;
  StartCluster(setup);
  EXPECT_THAT(StatusOf("draft").about(), HasSubstr("npu0"));
  EXPECT_EQ(Chat(counting).tokens, plain.tokens);
  KillService("npu");
  EXPECT_EQ(Chat(counting).tokens, plain.tokens);
  WaitForStatus("draft lost", [](const auto& status) {
    return !status.scheduler().drafters(0).detail().empty();
  });
  EXPECT_EQ(Status().state(), "ready");
  EXPECT_EQ(Chat(counting).tokens, plain.tokens);
  StartService("npu");
  // The status is the engine's of its last step.
  WaitForStatus("draft back", [this, &counting](const auto& status) {
    if (status.scheduler().drafters(0).detail().empty()) return true;
    Chat(counting);
    return false;
  });
  EXPECT_THAT(StatusOf("draft").detail(), IsEmpty());
  EXPECT_EQ(Chat(counting).tokens, plain.tokens);
}

}  // namespace
}  // namespace tandem::testing
