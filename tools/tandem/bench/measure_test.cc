#include "tools/tandem/bench/measure.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/rpc/server.h"

namespace tandem {
namespace {

// A gateway of one model with two layers' worth of segments; every token is one step.
class FakeGateway final : public v1::Generation::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    if (fail) return {grpc::StatusCode::UNAVAILABLE, "worker gpu0 is lost"};
    prompt_tokens = request->tokens().ids_size();
    for (uint32_t i = 0; i < request->limits().max_tokens(); ++i) {
      absl::SleepFor(absl::Milliseconds(2));
      v1::GenerateResponse response;
      response.add_tokens()->set_id(i);
      ++steps;
      if (!writer->Write(response)) break;
    }
    return grpc::Status::OK;
  }
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    auto* model = response->add_models();
    model->set_name("fake");
    model->set_context_len(100);
    model->set_vocab_size(64);
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_state("ready");
    response->set_placement("everything on gpu0");
    const uint64_t n = steps;
    response->mutable_scheduler()->set_steps(n);
    response->mutable_scheduler()->set_step_bytes(n * 200);
    const char* stages[] = {"Embed+Qkv(0)", "Attend(0)", "Out(0)+Ffn(0)+Qkv(1)", "Attend(1)"};
    for (uint32_t i = 0; i < 4; ++i) {
      auto* segment = response->add_segments();
      segment->set_index(i);
      segment->set_worker(i % 2 == 0 ? "gpu0" : "npu0");
      segment->set_stages(stages[i]);
      segment->set_calls(n);
      segment->set_device_seconds(static_cast<double>(n) * 10e-6);
      segment->set_round_trip_seconds(static_cast<double>(n) * 40e-6);
    }
    auto* worker = response->add_workers();
    worker->set_name("gpu0");
    worker->set_hop_p50_us(29);
    return grpc::Status::OK;
  }

  std::atomic<uint64_t> steps = 0;
  std::atomic<int> prompt_tokens = 0;
  std::atomic<bool> fail = false;
};

class MeasureTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string target = absl::StrFormat("unix:/tmp/tandem-measure-test.%d", getpid());
    auto server =
        Server::Start({.listen = {target}}, {{v1::Generation::service_full_name(), &gateway_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    stub_ = MakeGenerationStub(target);
    options_ = {.prompt_tokens = 10, .generated_tokens = 8, .sequences = {1, 3}, .repetitions = 3};
  }

  FakeGateway gateway_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<GenerationStub> stub_;
  BenchOptions options_;
};

TEST_F(MeasureTest, CountsCallsBytesAndSegmentsOfTheMeasuredSteps) {
  const auto report = Measure(*stub_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(gateway_.prompt_tokens, 10);
  EXPECT_EQ(report->steps, 3u * (1 + 3) * 8) << "the warm-up is not counted";
  EXPECT_DOUBLE_EQ(report->calls_per_step, 4);
  EXPECT_DOUBLE_EQ(report->bytes_per_step, 200);
  ASSERT_EQ(report->segments.size(), 3u) << "both Attend segments are one line";
  EXPECT_EQ(report->segments[1].stages, "Attend");
  EXPECT_EQ(report->segments[1].calls, 2 * report->steps);
  EXPECT_NEAR(report->segments[1].round_trip_us, 40, 1e-6);
  ASSERT_EQ(report->runs.size(), 2u);
  for (const BenchRun& run : report->runs) {
    EXPECT_GT(run.prompt_tokens_per_second, 0);
    EXPECT_GT(run.decode_tokens_per_second, 0);
  }
}

TEST_F(MeasureTest, BothFormsHoldTheFigures) {
  const auto report = Measure(*stub_, options_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_NE(ReportAsTable(*report).find("hop to gpu0: p50 29.0 us"), std::string::npos);
  const auto json = nlohmann::json::parse(ReportAsJson(*report));
  EXPECT_EQ(json["runs"][1]["sequences"], 3);
  EXPECT_EQ(json["hops"][0]["p50_us"], 29);
}

TEST_F(MeasureTest, SaysWhyItCannotMeasure) {
  options_.generated_tokens = 91;
  EXPECT_EQ(Measure(*stub_, options_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.generated_tokens = 8;
  gateway_.fail = true;
  const absl::Status status = Measure(*stub_, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "worker gpu0 is lost");
}

}  // namespace
}  // namespace tandem
