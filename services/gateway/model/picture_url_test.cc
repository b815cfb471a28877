// Pictures that are fetched before they are encoded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/pull/testing/fake_hub.h"
#include "services/common/testing/status_matchers.h"
#include "services/gateway/api/testing/toy_pictures.h"
#include "services/gateway/model/prepare_request.h"
#include "services/gateway/model/request_parser.h"

namespace tandem::gateway {
namespace {

using tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using testing::ToyBmp;
using testing::ToyPixel;
using testing::ToySoftTokens;

// A server of pictures, and a model that fetches them.
class PictureUrlTest : public ::testing::Test {
 protected:
  ~PictureUrlTest() override { go_on_.set_value(); }
  pull::testing::TestReply Answer(const pull::testing::TestRequest& request) {
    if (request.target == "/hangs") may_go_on_.wait();
    if (request.target == "/text") return {.body = "a secret text"};
    return {.body = ToyBmp(10)};
  }
  EngineRequest Parse(const std::vector<std::string>& targets) {
    v1::ChatRequest request;
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content("the hat");
    request.mutable_limits()->set_max_tokens(1);
    PictureUrls urls = {.rules = &model_->pictures()->fetcher()->rules(), .checked = {}};
    for (const std::string& target : targets) {
      const std::string url = absl::StrFormat("http://127.0.0.1:%d%s", server_.port(), target);
      EXPECT_OK(urls.rules->Check(url).status());
      urls.checked.insert(url);
      message->add_images()->set_data(url);
    }
    message->add_images()->set_data(ToyBmp(20));
    auto parsed = ParseChatWithUrls(request, *model_, urls);
    EXPECT_OK(parsed.status());
    return *std::move(parsed);
  }
  using Prepared = absl::StatusOr<std::vector<EngineRequest>>;
  std::future<Prepared> Prepare(EngineRequest request, RequestWait* wait = nullptr) {
    auto result = std::make_shared<std::promise<Prepared>>();
    const RequestWait started =
        PrepareRequests(*model_, {std::move(request)},
                        [result](Prepared prepared) { result->set_value(std::move(prepared)); });
    if (wait != nullptr) *wait = started;
    return result->get_future();
  }

  std::promise<void> go_on_;
  const std::shared_future<void> may_go_on_ = go_on_.get_future().share();
  pull::testing::TestServer server_{
      [this](const pull::testing::TestRequest& request) { return Answer(request); }};
  const std::unique_ptr<ServedModel> model_ =
      testing::MakeSeeingToyModel({absl::StrFormat("127.0.0.1:%d", server_.port())});
};

TEST_F(PictureUrlTest, PicturesAreFetchedThenEncoded) {
  const EngineRequest request = Parse({"/a", "/b"});
  EXPECT_THAT(server_.requests(), SizeIs(0));
  const Prepared prepared = Prepare(request).get();
  ASSERT_OK(prepared.status());
  const EngineRequest& ready = prepared->front();
  ASSERT_EQ(ready.pictures.size(), 3u);
  EXPECT_EQ(ready.pictures[0].picture->soft_tokens, ToySoftTokens(ToyPixel(10)));
  EXPECT_EQ(ready.pictures[1].picture, ready.pictures[0].picture);
  EXPECT_EQ(ready.pictures[2].picture->soft_tokens, ToySoftTokens(ToyPixel(20)));
  EXPECT_EQ(ready.picture_files, nullptr);
  EXPECT_EQ(ready.picture_urls, nullptr);
  EXPECT_LE(ready.pictures_begin, ready.pictures_end);
  std::vector<PictureStage> stages;
  for (const PictureTime& time : *ready.picture_times) stages.push_back(time.stage);
  using enum PictureStage;
  EXPECT_THAT(stages, ElementsAre(kFetch, kFetch, kDecode, kPrepare, kDecode, kPrepare, kEncode));
  const PictureEncoder::Counts counts = model_->pictures()->counts();
  EXPECT_GT(counts.stage_times[static_cast<int>(PictureStage::kFetch)], absl::ZeroDuration());
}

TEST_F(PictureUrlTest, WhatIsNoPictureIsRefusedWithoutItsBytes) {
  const absl::Status status = Prepare(Parse({"/a", "/text"})).get().status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("images[1]: the picture is no PNG")));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
}

TEST_F(PictureUrlTest, ACancelledRequestEndsItsFetchAndAStoppedModelToo) {
  RequestWait wait;
  auto cancelled = Prepare(Parse({"/hangs"}), &wait);
  wait.Cancel();
  EXPECT_TRUE(absl::IsCancelled(cancelled.get().status()));
  auto stopped = Prepare(Parse({"/hangs"}));
  model_->StopPreparing(absl::UnavailableError("the end"));
  EXPECT_TRUE(absl::IsUnavailable(stopped.get().status()));
  EXPECT_TRUE(absl::IsUnavailable(Prepare(Parse({"/a"})).get().status()));
  EXPECT_EQ(model_->pictures()->counts().outcomes[static_cast<int>(PictureOutcome::kRefused)], 0u);
}

// As over gRPC and REST: data is a file, whatever it says.
TEST_F(PictureUrlTest, DataThatLooksLikeAUrlIsNotFetchedWithoutLeave) {
  v1::ChatRequest request;
  v1::ChatMessage* message = request.add_messages();
  message->set_role("user");
  message->add_images()->set_data(absl::StrFormat("http://127.0.0.1:%d/a", server_.port()));
  const PictureUrls none = {.rules = &model_->pictures()->fetcher()->rules(), .checked = {}};
  for (auto parsed : {ParseChat(request, *model_), ParseChatWithUrls(request, *model_, none)}) {
    ASSERT_OK(parsed.status());
    EXPECT_EQ(parsed->picture_urls, nullptr);
    EXPECT_TRUE(absl::IsInvalidArgument(Prepare(*std::move(parsed)).get().status()));
  }
  EXPECT_THAT(server_.requests(), SizeIs(0));
}

}  // namespace
}  // namespace tandem::gateway
