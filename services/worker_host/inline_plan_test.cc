// Plans of a gateway on another host: messages carry the activations.
#include <cstring>

#include "services/common/rpc/inline_exchange.h"
#include "services/common/rpc/worker_convert.h"
#include "services/worker_host/worker_service_fixture.h"

namespace tandem {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

class InlinePlanTest : public WorkerServiceTest {
 protected:
  // The second layer and the head, of a gateway that shares no memory: `exchange_` is its own.
  worker::v1::LoadPlanRequest InlineRequest(uint64_t epoch) {
    worker::v1::LoadPlanRequest request = LoadRequest(epoch);
    request.set_inline_activations(true);
    request.clear_exchange_region_id();
    request.clear_segments();
    Segment segment{.index = 1,
                    .first_ordinal = StageOrdinal({StageKind::kQkv, 1}, 2),
                    .last_ordinal = NumStages(2) - 1,
                    .inputs = static_cast<PortMask>(Port::kResidual)};
    *request.add_segments() = ToProto(segment);
    return request;
  }
  absl::Status LoadInline(uint64_t epoch) {
    return client_->LoadPlan(InlineRequest(epoch), nullptr, kLong).status();
  }
  // A call for the step in lane 0 of the gateway's region, with its bytes and one row of residual
  // for each of its rows.
  worker::v1::ExecuteRequest InlineCall(uint64_t epoch, uint64_t step_id, uint32_t num_rows) {
    worker::v1::ExecuteRequest request = Call(epoch, step_id, 1);
    const auto area = exchange_->Area(0, exchange_->layout.step);
    const StepHeader header = HeaderOf(*exchange_, 0, limits_).value();
    request.mutable_inputs()->set_step(area.data(), StepBytes(header));
    request.mutable_inputs()->add_ports(
        std::string(num_rows * exchange_->layout.port(Port::kResidual).row_bytes, 'r'));
    return request;
  }
};

// Writes the first byte of its input, the residual, as the token of every candidate.
absl::StatusOr<SegmentResult> Echo(const Exchange& exchange, const SegmentRun& run) {
  const auto residual = exchange.Area(run.lane, exchange.layout.port(Port::kResidual));
  auto* const results =
      reinterpret_cast<OutputResult*>(exchange.Area(run.lane, exchange.layout.candidates).data());
  for (uint32_t o = 0; o < run.step->header.num_outputs; ++o) {
    results[o].num_candidates = run.step->header.num_candidates;
    results[o].candidates[0] = {static_cast<uint32_t>(residual[0]), 0.5f};
  }
  return SegmentResult{.device_ns = 5};
}

TEST_F(InlinePlanTest, RowsComeInAndResultsGoOut) {
  std::shared_ptr<const Exchange> own;
  Start({.run = [&](const SegmentRun& run) { return Echo(*own, run); },
         .load =
             [&](const ModelLoad& load) {
               own = load.exchange;
               return absl::OkStatus();
             }});
  ASSERT_OK(LoadInline(1));
  EXPECT_NE(own->mapping.data(), exchange_->mapping.data());
  EXPECT_EQ(own->layout.total_bytes(), exchange_->layout.total_bytes());
  client_->Open(worker_->execution_target());
  testing::StepBuilder builder(limits_);
  builder.Begin();
  const uint32_t first = builder.AddRows(builder.AddSequence(), {7, 7, 7});
  builder.AddOutput(first + 2);
  StepBatch batch = builder.batch();
  batch.header.step_id = 9;
  tandem::WriteStep(batch, exchange_->Area(0, exchange_->layout.step));
  ASSERT_OK_AND_ASSIGN(const auto* answer, Run(*client_, InlineCall(1, 9, 3)));
  ASSERT_EQ(answer->outputs().candidates().size(), 16 + sizeof(Candidate));
  Candidate candidate;
  std::memcpy(&candidate, answer->outputs().candidates().data() + 16, sizeof(candidate));
  EXPECT_EQ(candidate.token, static_cast<uint32_t>('r'));
  EXPECT_EQ(answer->outputs().guesses().size(), sizeof(uint32_t));
  EXPECT_EQ(answer->outputs().ports_size(), 0);
}

TEST_F(InlinePlanTest, CallsThatDoNotFitAreAnswersAndTheNextOneRuns) {
  int num_runs = 0;
  Start({.run = [&](const SegmentRun& /*run*/) {
    ++num_runs;
    return SegmentResult{};
  }});
  ASSERT_OK(LoadInline(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(2);
  const auto refused = [&](const worker::v1::ExecuteRequest& request, const char* why) {
    EXPECT_THAT(Execute(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused(Call(1, step, 1), "without inputs");
  refused(InlineCall(1, step, 1), "port 0 of 1");
  refused(InlineCall(1, step, 3), "port 0 of 1");
  refused(InlineCall(1, step + 1, 2), "the call is for");
  auto request = InlineCall(1, step, 2);
  request.mutable_inputs()->mutable_step()->pop_back();
  refused(request, "its header says");
  request = InlineCall(1, step, 2);
  (*request.mutable_inputs()->mutable_step())[0] ^= 1;
  refused(request, "magic");
  request = InlineCall(1, step, 2);
  request.set_lane(2);
  refused(request, "lane 2");
  request = InlineCall(1, step, 2);
  request.set_segment_index(0);
  refused(request, "segment 0");
  EXPECT_THAT(Execute(InlineCall(2, step, 2)), HasCode(absl::StatusCode::kAborted));
  EXPECT_EQ(num_runs, 0);
  EXPECT_OK(Execute(InlineCall(1, step, 2)));
  EXPECT_EQ(num_runs, 1);
  // And the other way round.
  ASSERT_OK(Load(3));
  request = InlineCall(3, WriteStep(2), 2);
  request.set_segment_index(0);
  refused(request, "with inputs");
}

TEST_F(InlinePlanTest, APlanThatAsksForTooMuchIsRefused) {
  Start({});
  worker::v1::LoadPlanRequest request = InlineRequest(1);
  request.mutable_limits()->set_max_table_len(1u << 26);
  request.set_num_lanes(16);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("a worker gives")));
  request.set_num_lanes(1);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("travel between hosts")));
  EXPECT_OK(LoadInline(1));
}

TEST_F(InlinePlanTest, AnAnswerHeldBackWhenThePlanIsReplacedSaysSo) {
  Start({});
  ASSERT_OK(LoadInline(1));
  client_->Open(worker_->execution_target());
  for (int call = 0; call < 2; ++call) {
    auto request = InlineCall(1, WriteStep(1), 1);
    request.set_another_follows(true);
    ASSERT_OK(client_->Submit(request, kLong));
  }
  ASSERT_OK(client_->Wait(kLong).status()) << "so that the second has been submitted";
  ASSERT_OK(LoadInline(2));
  ASSERT_OK(client_->Flush(kLong));
  EXPECT_THAT(client_->Wait(kLong).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("has been replaced")));
}

}  // namespace
}  // namespace tandem
