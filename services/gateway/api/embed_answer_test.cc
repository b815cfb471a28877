#include "services/gateway/api/embed_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/testing/eventually.h"
#include "services/gateway/api/testing/recording_responder.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::CountingClient;
using testing::EmbeddingRequest;
using testing::FakeExecutorOptions;
using testing::Gate;
using testing::MakeToyModel;
using testing::RecordingResponder;

class EmbedAnswerTest : public ::testing::Test {
 protected:
  void Start(std::vector<EngineRequest> runs) {
    StartEmbedding(*model_,
                   {std::move(runs),
                    [](const EmbedResult& result) {
                      return "body of " + std::to_string(result.embeddings.size());
                    }},
                   client_, responder_);
  }
  void WaitUntilAllIsLetGo() {
    ASSERT_TRUE(tandem::testing::Eventually([this] { return responder_.use_count() == 1; }));
    v1::GetStatusResponse status;
    model_->replicas().FillStatus(status);
    EXPECT_EQ(status.scheduler().running() + status.scheduler().waiting(), 0u);
  }

  std::unique_ptr<ServedModel> model_ = MakeToyModel();
  std::shared_ptr<CountingClient> client_ = std::make_shared<CountingClient>();
  std::shared_ptr<RecordingResponder> responder_ = std::make_shared<RecordingResponder>();
};

TEST_F(EmbedAnswerTest, AnswersOnceChargesTheKeyAndLetsGoOfEverything) {
  std::vector<EngineRequest> runs;
  for (uint32_t i = 0; i < 40; ++i) runs.push_back(EmbeddingRequest(i, 5 + i));
  Start(std::move(runs));
  responder_->WaitForEnd();
  WaitUntilAllIsLetGo();
  EXPECT_EQ(responder_->response()->body, "body of 40");
  EXPECT_EQ(client_->charged(), 40u * 5 + 40 * 39 / 2);
}

TEST_F(EmbedAnswerTest, NothingAskedForIsAnsweredAtOnce) {
  Start({});
  EXPECT_EQ(responder_->response()->body, "body of 0");
  EXPECT_EQ(client_->charged(), 0u);
}

TEST_F(EmbedAnswerTest, AFailureIsAnErrorAndWhatWasBegunIsCharged) {
  EngineRequest poisoned = EmbeddingRequest(1, 40);
  poisoned.prompt[3] = testing::kToyPoison;
  Start({poisoned});
  responder_->WaitForEnd();
  WaitUntilAllIsLetGo();
  EXPECT_EQ(responder_->response()->status, 500);
  EXPECT_EQ(client_->charged(), 40u);
}

TEST_F(EmbedAnswerTest, AClientThatHasGoneBeforeOrGoesDuringTheRunFreesItsPlaces) {
  auto go = std::make_shared<Gate>();
  FakeExecutorOptions fake;
  fake.on_step = [go](const StepBatch&) {
    go->Wait();
    return absl::OkStatus();
  };
  model_ = MakeToyModel(fake);
  std::vector<EngineRequest> runs;
  for (uint32_t i = 0; i < 20; ++i) runs.push_back(EmbeddingRequest(i, 50));
  Start(runs);
  responder_->Leave();
  go->Open();
  WaitUntilAllIsLetGo();
  EXPECT_LT(client_->charged(), 20u * 50);
}

}  // namespace
}  // namespace tandem::gateway
