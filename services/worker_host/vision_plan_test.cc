// Plans of Vision, and decoders whose steps have pictures: what a worker takes and what it refuses.
#include <algorithm>
#include <cstring>

#include "services/common/rpc/inline_exchange.h"
#include "services/common/rpc/worker_convert.h"
#include "services/worker_host/worker_service_fixture.h"

namespace tandem {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr uint32_t kPictureRows = 4;

ModelConfig SeeingConfig() {
  ModelConfig config = testing::MakeConfig({.num_layers = 2});
  VisionConfig vision;
  vision.image_size = 8;
  vision.patch_size = 2;
  vision.num_layers = 3;
  vision.hidden_dim = 16;
  vision.ffn_dim = 24;
  vision.num_heads = 2;
  vision.tokens_per_image = kPictureRows;
  vision.text_hidden_dim = config.hidden_dim;
  config.vision = vision;
  return config;
}

class VisionPlanTest : public WorkerServiceTest {
 protected:
  // A worker that holds the model of seeing_weights_.
  void StartSeeing(testing::FakeWorker::Hooks hooks, bool takes_pictures = true) {
    WorkerDescription description = testing::DescribeFakeWorker("fake0");
    description.stages.push_back(StageKind::kVision);
    description.takes_pictures = takes_pictures;
    worker_ = std::make_unique<testing::InProcessWorker>(
        std::make_unique<testing::FakeWorker>(description, std::move(hooks)), seeing_,
        directory_ + "/w.sock");
    client_ = std::make_unique<WorkerClient>(worker_->target());
  }
  worker::v1::LoadPlanRequest VisionRequest(uint64_t epoch) {
    worker::v1::LoadPlanRequest request =
        testing::MakeLoadRequest(epoch, *seeing_weights_, testing::VisionPlan(config_),
                                 vision_limits_, *vision_exchange_, seeing_);
    request.set_plan_id("vision");
    return request;
  }
  absl::Status LoadPlan(const worker::v1::LoadPlanRequest& request) {
    return client_->LoadPlan(request, nullptr, kLong).status();
  }
  // A step of pictures in the gateway's region, whose pixels are their numbers.
  StepHeader WritePictures(uint32_t num_pictures) {
    std::vector<PictureEntry> entries;
    for (uint32_t p = 0; p < num_pictures; ++p) {
      entries.push_back({p * kPictureRows, kPictureRows});
      const ExchangeArea& pixels = vision_exchange_->layout.pixels;
      std::fill_n(
          reinterpret_cast<float*>(vision_exchange_->Area(0, pixels).data() + p * pixels.row_bytes),
          pixels.row_bytes / sizeof(float), static_cast<float>(p + 1));
    }
    StepBatch step;
    step.header.step_id = ++step_id_;
    step.header.num_pictures = num_pictures;
    step.pictures = entries;
    tandem::WriteStep(step, vision_exchange_->Area(0, vision_exchange_->layout.step));
    return step.header;
  }

  const ModelConfig config_ = SeeingConfig();
  const std::shared_ptr<const WeightSet> seeing_weights_ =
      testing::RandomWeightSet(config_, {.dtype = DType::kF16});
  testing::LocalWeightSource seeing_{seeing_weights_};
  const StepLimits vision_limits_ = VisionLimits(3, kPictureRows);
  const std::shared_ptr<const Exchange> vision_exchange_ =
      testing::MakeLocalExchange(config_, vision_limits_, 1);
};

// Every soft token is the first pixel of its picture.
absl::StatusOr<SegmentResult> FakeVision(const Exchange& exchange, const SegmentRun& run) {
  const ExchangeLayout& layout = exchange.layout;
  for (uint32_t p = 0; p < run.step->pictures.size(); ++p) {
    const PictureEntry& picture = run.step->pictures[p];
    float pixel;
    std::memcpy(&pixel, exchange.Area(run.lane, layout.pixels).data() + p * layout.pixels.row_bytes,
                sizeof(pixel));
    auto* const to = reinterpret_cast<float*>(exchange.Area(run.lane, layout.soft_tokens).data() +
                                              picture.first_row * layout.soft_tokens.row_bytes);
    std::fill_n(to, picture.num_rows * layout.soft_tokens.row_bytes / sizeof(float), pixel);
  }
  return SegmentResult{.device_ns = 5, .stage_times = {{StageKind::kVision, 5}}};
}

TEST_F(VisionPlanTest, PicturesGoThroughSharedMemoryAndThroughMessages) {
  std::shared_ptr<const Exchange> exchange;
  StartSeeing({.run = [&](const SegmentRun& run) { return FakeVision(*exchange, run); },
               .load =
                   [&](const ModelLoad& load) {
                     exchange = load.exchange;
                     EXPECT_TRUE(load.limits.vision());
                     return absl::OkStatus();
                   }});
  const Segment segment = testing::VisionPlan(config_)[0];
  uint64_t epoch = 0;
  for (const bool inline_activations : {false, true}) {
    worker::v1::LoadPlanRequest request = VisionRequest(++epoch);
    request.set_inline_activations(inline_activations);
    if (inline_activations) request.clear_exchange_region_id();
    ASSERT_OK(LoadPlan(request));
    client_->Open(worker_->execution_target());
    const StepHeader header = WritePictures(2);
    worker::v1::ExecuteRequest call = Call(epoch, header.step_id);
    if (inline_activations) {
      PutInputs(*vision_exchange_, 0, segment, header, true, false, *call.mutable_inputs());
    }
    const auto area = vision_exchange_->Area(0, vision_exchange_->layout.soft_tokens);
    std::memset(area.data(), 0, area.size());
    ASSERT_OK_AND_ASSIGN(const auto* answer, Run(*client_, call));
    EXPECT_EQ(answer->stage_times(0).kind(), worker::v1::STAGE_KIND_VISION);
    if (inline_activations) {
      ASSERT_OK(TakeOutputs(answer->outputs(), *vision_exchange_, 0, segment, header, false));
    }
    const auto* const rows = reinterpret_cast<const float*>(area.data());
    const size_t picture = kPictureRows * config_.hidden_dim;
    for (size_t i = 0; i < 3 * picture; ++i) {
      ASSERT_EQ(rows[i], i < 2 * picture ? static_cast<float>(i / picture + 1) : 0.0f) << i;
    }
  }
}

TEST_F(VisionPlanTest, TheWorkOfPicturesIsCounted) {
  StartSeeing({});
  ASSERT_OK(LoadPlan(VisionRequest(1)));
  client_->Open(worker_->execution_target());
  ASSERT_OK(Execute(Call(1, WritePictures(2).step_id)));
  ASSERT_OK_AND_ASSIGN(const auto status, client_->GetStatus(kLong));
  const auto work = std::ranges::find_if(status.work(), [](const worker::v1::StageWork& of) {
    return of.kind() == worker::v1::STAGE_KIND_VISION;
  });
  ASSERT_NE(work, status.work().end());
  // 16 patches of 12 numbers; 3 layers of 4 x 16 x 16 + 2 x 16 x 24 weights; attention; projection.
  const uint64_t patches = 16, hidden = 16, ffn = 24, layers = 3;
  const uint64_t of_one = 2 * patches * 12 * hidden +
                          layers * (2 * patches * (4 * hidden * hidden + 2 * hidden * ffn) +
                                    4 * patches * patches * hidden) +
                          2 * kPictureRows * hidden * config_.hidden_dim;
  EXPECT_EQ(work->operations(), 2 * of_one);
}

TEST_F(VisionPlanTest, CallsThatDoNotFitAreRefused) {
  StartSeeing({});
  ASSERT_OK(LoadPlan(VisionRequest(1)));
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, WritePictures(0).step_id)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_pictures is 0")));
  EXPECT_THAT(Execute(Call(1, WritePictures(1).step_id + 1)),
              HasCode(absl::StatusCode::kInvalidArgument));
  worker::v1::LoadPlanRequest request = VisionRequest(2);
  request.set_inline_activations(true);
  ASSERT_OK(LoadPlan(request));
  const StepHeader header = WritePictures(2);
  worker::v1::ExecuteRequest call = Call(2, header.step_id);
  PutInputs(*vision_exchange_, 0, testing::VisionPlan(config_)[0], header, true, false,
            *call.mutable_inputs());
  call.mutable_inputs()->mutable_pixels()->pop_back();
  EXPECT_THAT(Execute(call),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pixels of 1535 bytes")));
}

TEST_F(VisionPlanTest, PlansThatCannotBeAreRefused) {
  StartSeeing({});
  const auto refused = [&](const worker::v1::LoadPlanRequest& request, const char* why) {
    EXPECT_THAT(LoadPlan(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  worker::v1::LoadPlanRequest request = VisionRequest(1);
  request.mutable_segments(0)->set_first_ordinal(NumStages(2) - 1);
  refused(request, "Vision is beside other stages");
  request = VisionRequest(1);
  request.mutable_segments(0)->set_last_ordinal(VisionOrdinal(2) + 1);
  refused(request, "must follow the one before");
  request = VisionRequest(1);
  request.mutable_limits()->set_max_pictures(0);
  refused(request, "max_pictures is 0");
  request.mutable_limits()->set_max_pictures(kMaxVisionPictures + 1);
  refused(request, "max_pictures is 17, must be in [1, 16]");
  request = VisionRequest(1);
  request.mutable_limits()->set_max_rows(1);
  refused(request, "max_rows of a vision plan");
}

TEST_F(VisionPlanTest, AModelThatReadsNoPicturesHasNoVision) {
  Start({});
  worker::v1::LoadPlanRequest request = LoadRequest(1);
  request.mutable_limits()->set_max_pictures(1);
  EXPECT_THAT(LoadPlan(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("a model without a vision encoder")));
}

TEST_F(VisionPlanTest, ADecoderThatTakesNoPicturesRefusesThem) {
  testing::RunLimits run{.max_rows = 16, .max_sequences = 2, .max_pictures = 4};
  run.max_outputs = run.max_logit_outputs = 16;
  const StepLimits limits = testing::MakeStepLimits(config_, run);
  const auto exchange = testing::MakeLocalExchange(config_, limits, 1);
  const auto request = [&](uint64_t epoch, uint32_t max_pictures) {
    worker::v1::LoadPlanRequest made = testing::MakeLoadRequest(
        epoch, *seeing_weights_, testing::WholeModel(config_), limits, *exchange, seeing_);
    made.mutable_limits()->set_max_pictures(max_pictures);
    return made;
  };
  StartSeeing({}, /*takes_pictures=*/false);
  EXPECT_THAT(LoadPlan(request(1, 4)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("fake0 takes none")));
  client_.reset();
  worker_.reset();
  StartSeeing({});
  EXPECT_OK(LoadPlan(request(1, 4)));
  EXPECT_THAT(LoadPlan(request(2, 5)), StatusIs(absl::StatusCode::kInvalidArgument,
                                                HasSubstr("max_pictures is 5, must be in [0, 4]")));
}

}  // namespace
}  // namespace tandem
