#include "tools/tandem/bench/picture_measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/rpc/server.h"
#include "services/common/testing/status_matchers.h"
#include "services/image_decoder/formats/decode.h"
#include "tools/tandem/bench/bench_picture.h"
#include "tools/tandem/bench/compare.h"
#include "tools/tandem/bench/measure.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kEncodeTime = absl::Milliseconds(20);

// A gateway that remembers the pictures it was asked about, and takes 20 ms for each that is new.
class SeeingGateway final : public v1::Generation::Service {
 public:
  grpc::Status Chat(grpc::ServerContext*, const v1::ChatRequest* request,
                    grpc::ServerWriter<v1::ChatResponse>* writer) override {
    uint32_t num_new = 0;
    for (const v1::Image& image : request->messages(0).images()) {
      const std::lock_guard lock(mutex);
      num_new += seen.insert(request->limits().cache_salt() + image.data()).second ? 1 : 0;
    }
    absl::SleepFor(num_new * kEncodeTime);
    v1::ChatResponse response;
    {
      const std::lock_guard lock(mutex);
      questions.insert(request->messages(0).content());
      num_requests[request->messages(0).images_size()] += 1;
      counts.set_encoded(counts.encoded() + num_new);
      counts.set_cached(counts.cached() + request->messages(0).images_size() - num_new);
      counts.set_decode_seconds(counts.decode_seconds() + 0.001 * num_new);
      counts.set_prepare_seconds(counts.prepare_seconds() + 0.002 * num_new);
      counts.set_encode_seconds(counts.encode_seconds() + 0.017 * num_new);
      if (forgets) seen.clear();
    }
    if (fail) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many pictures wait"};
    response.add_tokens()->set_id(1);
    response.mutable_usage()->set_cached_tokens(num_new == 0 ? 48 : 0);
    writer->Write(response);
    return grpc::Status::OK;
  }
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    v1::ModelInfo* model = response->add_models();
    model->set_name("fake");
    model->set_context_len(1000);
    model->set_vocab_size(64);
    model->set_image_tokens(image_tokens);
    if (image_tokens == 0) model->set_no_images_reason("it has no vision encoder");
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_state("ready");
    response->mutable_scheduler()->set_max_sequences(4);
    response->mutable_scheduler()->set_max_rows(64);
    const std::lock_guard lock(mutex);
    if (!old) *response->mutable_pictures() = counts;
    return grpc::Status::OK;
  }

  std::mutex mutex;
  std::set<std::string> seen, questions;
  std::map<int, int> num_requests;  // by their pictures
  v1::PictureStatus counts;
  uint32_t image_tokens = 16;
  bool forgets = false, fail = false, old = false;
};

class PictureMeasureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string socket = absl::StrFormat("unix:/tmp/tandem-pictures-%d.sock", ::getpid());
    auto server =
        Server::Start({.listen = {socket}}, {{v1::Generation::service_full_name(), &gateway_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = MakeGenerationStub(server_->targets()[0]);
    options_ = {.prompts = {0},
                .tokens = {0},
                .batches = {1, 3},
                .images = {1, 4},
                .image_side = 32,
                .repetitions = 2};
  }
  void TearDown() override { server_->Shutdown(absl::Seconds(5)); }

  SeeingGateway gateway_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<GenerationStub> stub_;
  BenchOptions options_;
};

TEST_F(PictureMeasureTest, NewPicturesAreToldFromThoseAskedAboutAgain) {
  ASSERT_OK_AND_ASSIGN(const BenchReport report, Measure(*stub_, options_));
  EXPECT_TRUE(report.results.empty()) << "--prompt 0 --tokens 0";
  ASSERT_EQ(report.pictures.size(), 4u);
  const BenchPictureResult& last = report.pictures[3];
  EXPECT_EQ(last.test.Name(), "img4 b3");
  EXPECT_EQ(last.first.encoded, 2 * 3 * 4u) << "the warm-up is not counted";
  EXPECT_EQ(last.first.cached, 0u);
  EXPECT_EQ(last.again.encoded, 0u);
  EXPECT_EQ(last.again.cached, 2 * 3 * 4u);
  EXPECT_EQ(last.again.cached_tokens, 2 * 3 * 48u);
  EXPECT_NEAR(last.first.decode_seconds, 0.001 * 24, 1e-9);
  EXPECT_NEAR(last.first.prepare_seconds, 0.002 * 24, 1e-9);
  EXPECT_NEAR(last.first.encode_seconds, 0.017 * 24, 1e-9);
  EXPECT_EQ(last.again.encode_seconds, 0);
  ASSERT_EQ(last.first.first_token_seconds.size(), 2u);
  ASSERT_EQ(last.rates.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_GE(last.first.first_token_seconds[i], 4 * absl::ToDoubleSeconds(kEncodeTime));
    EXPECT_DOUBLE_EQ(last.rates[i], 12 / last.first.first_token_seconds[i]);
  }
  // The best of each: a machine that does other things besides may hold up one.
  EXPECT_LT(std::ranges::min(last.again.first_token_seconds),
            std::ranges::min(last.first.first_token_seconds));
  EXPECT_EQ(gateway_.questions.size(), 2u);
  EXPECT_EQ(gateway_.num_requests[4], 2 * 2 * (1 + 3));
  // The same pictures, which another run has asked about.
  ASSERT_OK_AND_ASSIGN(const BenchReport later, Measure(*stub_, options_));
  EXPECT_EQ(later.pictures[3].first.encoded, 24u);
}

TEST_F(PictureMeasureTest, TheReportHasATableAndSaysWhatWasEncodedAgain) {
  options_.batches = {1};
  ASSERT_OK_AND_ASSIGN(BenchReport report, Measure(*stub_, options_));
  const std::string text = ReportAsMarkdown(report);
  EXPECT_THAT(text, HasSubstr("| pictures | first token s |"));
  EXPECT_THAT(text, HasSubstr("| img4     |"));
  EXPECT_THAT(text, HasSubstr(" 1.00 |       2.00 |     17.00 |"));
  EXPECT_THAT(text, HasSubstr("PNG of 32 x 32 pixels"));
  EXPECT_THAT(text, Not(HasSubstr("t/s"))) << "no test of tokens";
  EXPECT_THAT(text, Not(HasSubstr("encoded again")));
  const auto json = nlohmann::json::parse(ReportAsJson(report));
  EXPECT_EQ(json["image_side"], 32);
  EXPECT_EQ(json["pictures"][1]["test"], "img4");
  EXPECT_EQ(json["pictures"][1]["samples"].size(), 2u);
  EXPECT_EQ(json["pictures"][1]["first"]["encoded"], 8);
  EXPECT_EQ(json["pictures"][1]["again"]["cached"], 8);
  const std::string earlier = ReportAsJson(report);
  report.pictures[1].rates = {1, 1};
  EXPECT_THAT(*Compare(earlier, "old.json", report), HasSubstr("slower"));
  gateway_.forgets = true;
  ASSERT_OK_AND_ASSIGN(const BenchReport small, Measure(*stub_, options_));
  EXPECT_THAT(ReportAsMarkdown(small), HasSubstr("img4: 8 pictures were encoded again"));
}

TEST_F(PictureMeasureTest, SaysWhyItCannotMeasure) {
  options_.images = {64};
  EXPECT_THAT(Measure(*stub_, options_).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("1448 positions, the cluster's context is 1000")));
  options_.images = {1};
  options_.batches = {5};
  EXPECT_THAT(Measure(*stub_, options_).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("5 sequences, the cluster runs at most 4")));
  options_.batches = {1};
  gateway_.fail = true;
  EXPECT_THAT(Measure(*stub_, options_).status(),
              testing::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many")));
  gateway_.old = true;
  EXPECT_THAT(Measure(*stub_, options_).status(),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("older")));
  gateway_.image_tokens = 0;
  EXPECT_THAT(
      Measure(*stub_, options_).status(),
      testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                        HasSubstr("img1: the gateway takes no pictures: it has no vision")));
}

TEST(BenchPictureTest, IsAPngThatDiffersBySeed) {
  for (const uint32_t side : {1u, 7u, 96u}) {
    const std::string file = MakeBenchPicture(side, 5);
    std::vector<uint8_t> pixels(size_t{3} * side * side);
    image_decoder::PixelSink sink(pixels, uint64_t{side} * side);
    EXPECT_OK(image_decoder::DecodePicture(
        std::span(reinterpret_cast<const uint8_t*>(file.data()), file.size()), sink));
    EXPECT_EQ(sink.width(), side);
    EXPECT_EQ(sink.height(), side);
    EXPECT_EQ(MakeBenchPicture(side, 5), file);
  }
  EXPECT_NE(MakeBenchPicture(96, 6), MakeBenchPicture(96, 5));
  EXPECT_LT(MakeBenchPicture(896, 1).size(), 896u * 896) << "well below a gateway's limits";
}

}  // namespace
}  // namespace tandem
