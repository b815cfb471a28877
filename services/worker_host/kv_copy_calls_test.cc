// Calls that copy KV: through the exchange region, and in messages.
#include <cstring>
#include <numeric>

#include "services/common/reference/reference_worker.h"
#include "services/worker_host/worker_service_fixture.h"

namespace tandem {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

class KvCopyCallTest : public WorkerServiceTest {
 protected:
  void SetUp() override {
    WorkerServiceTest::SetUp();
    limits_.kv_area_bytes = uint64_t{1} << 20;
    exchange_ = testing::MakeLocalExchange(weights_->config(), limits_, 2);
    StartWorker(std::make_unique<reference::ReferenceWorker>());
  }
  static worker::v1::ExecuteRequest CopyCall(bool write, const std::vector<uint32_t>& global,
                                             const std::vector<uint32_t>& window,
                                             uint64_t epoch = 1) {
    worker::v1::ExecuteRequest request;
    request.set_epoch(epoch);
    request.mutable_kv_copy()->set_write(write);
    request.mutable_kv_copy()->mutable_global_blocks()->Assign(global.begin(), global.end());
    request.mutable_kv_copy()->mutable_window_blocks()->Assign(window.begin(), window.end());
    return request;
  }
  std::span<std::byte> KvArea() const { return exchange_->Area(0, exchange_->layout.kv); }
  // Two blocks of the global layer, one of the window's: float16 numbers that are all different.
  std::vector<std::byte> SomeKv() const {
    const KvCopyLayout layout(weights_->config(), limits_);
    const uint64_t bytes = 2 * layout.BlockBytes(kGlobalGroup) + layout.BlockBytes(kWindowGroup);
    std::vector<uint16_t> halves(bytes / sizeof(uint16_t));
    std::iota(halves.begin(), halves.end(), uint16_t{0x3000});
    std::vector<std::byte> kv(bytes);
    std::memcpy(kv.data(), halves.data(), bytes);
    return kv;
  }
};

TEST_F(KvCopyCallTest, BlocksComeBackAsTheyWereWritten) {
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const std::vector<std::byte> kv = SomeKv();
  std::ranges::copy(kv, KvArea().begin());
  ASSERT_OK(Execute(CopyCall(true, {3, 1}, {2})));
  std::ranges::fill(KvArea(), std::byte{0});
  ASSERT_OK(Execute(CopyCall(false, {3, 1}, {2})));
  EXPECT_TRUE(std::ranges::equal(KvArea().first(kv.size()), kv));
  // One block alone, from its own place.
  const uint64_t block = KvCopyLayout(weights_->config(), limits_).BlockBytes(kGlobalGroup);
  ASSERT_OK(Execute(CopyCall(false, {1}, {})));
  EXPECT_TRUE(std::ranges::equal(KvArea().first(block), std::span(kv).subspan(block, block)));
}

TEST_F(KvCopyCallTest, ACopyIsAnsweredBehindTheStepsBeforeIt) {
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  for (uint32_t lane = 0; lane < 2; ++lane) {
    auto step = Call(1, WriteStep(3, lane), 0, lane);
    step.set_another_follows(true);
    ASSERT_OK(client_->Submit(step, kLong));
  }
  ASSERT_OK(client_->Submit(CopyCall(false, {0}, {0}), kLong));
  for (int answer = 0; answer < 3; ++answer) EXPECT_OK(client_->Wait(kLong).status()) << answer;
}

TEST_F(KvCopyCallTest, MessagesCarryTheWorkersLayersAlone) {
  // The second layer, whose group attends to all positions: a gateway on another host has the first.
  worker::v1::LoadPlanRequest request = LoadRequest(1);
  request.set_inline_activations(true);
  request.clear_exchange_region_id();
  request.clear_segments();
  *request.add_segments() = ToProto(Segment{.index = 1,
                                            .first_ordinal = StageOrdinal({StageKind::kQkv, 1}, 2),
                                            .last_ordinal = NumStages(2) - 1,
                                            .inputs = static_cast<PortMask>(Port::kResidual)});
  ASSERT_OK(client_->LoadPlan(request, nullptr, kLong).status());
  client_->Open(worker_->execution_target());
  const uint64_t block = KvCopyLayout(weights_->config(), limits_).BlockBytes(kGlobalGroup);
  const std::vector<std::byte> kv = SomeKv();
  const std::string bytes(reinterpret_cast<const char*>(kv.data()), 2 * block);
  auto write = CopyCall(true, {3, 1}, {2});
  write.set_segment_index(1);
  write.mutable_inputs()->set_kv(bytes);
  ASSERT_OK(Execute(write));
  auto read = CopyCall(false, {3, 1}, {2});
  read.set_segment_index(1);
  read.mutable_inputs();
  ASSERT_OK_AND_ASSIGN(const auto* answer, Run(*client_, read));
  EXPECT_EQ(answer->outputs().kv(), bytes);
  write.mutable_inputs()->mutable_kv()->pop_back();
  EXPECT_THAT(Execute(write), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("are due")));
}

TEST_F(KvCopyCallTest, CopiesThatCannotBeAreAnswers) {
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const auto refused = [&](const worker::v1::ExecuteRequest& request, const char* why) {
    EXPECT_THAT(Execute(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused(CopyCall(false, {limits_.num_blocks[kGlobalGroup]}, {}), "group 0 has");
  refused(CopyCall(false, {}, {kNoBlock}), "group 1 has");
  refused(CopyCall(false, std::vector<uint32_t>(limits_.num_blocks[kGlobalGroup] + 1, 0), {}),
          "KV blocks, group 0");
  auto request = CopyCall(false, {0}, {});
  request.set_segment_index(1);
  refused(request, "segment 1");
  EXPECT_THAT(Execute(CopyCall(false, {0}, {}, 2)), HasCode(absl::StatusCode::kAborted));
  EXPECT_OK(Execute(CopyCall(false, {0}, {})));
  limits_.kv_area_bytes = 0;
  ASSERT_OK(Load(3));
  refused(CopyCall(false, {0}, {}, 3), "without an area");
}

TEST_F(KvCopyCallTest, AWorkerThatMakesNoCopiesIsAskedForNone) {
  TearDown();
  Start({});
  EXPECT_THAT(Load(1), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("makes none")));
}

}  // namespace
}  // namespace tandem
