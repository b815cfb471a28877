#include "services/common/rpc/inline_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr uint32_t kLane = 1;
constexpr auto kGuard = std::byte{0xA5};

class InlineExchangeTest : public ::testing::Test {
 protected:
  static Exchange MakeExchange(const ModelConfig& config, const StepLimits& limits) {
    Exchange exchange;
    exchange.layout = MakeExchangeLayout(config, limits, 2);
    const uint64_t bytes = exchange.layout.total_bytes();
    exchange.fd = CreateSharedMemory("exchange", bytes).value();
    exchange.mapping = Mapping::Map(exchange.fd.get(), bytes, Mapping::Access::kReadWrite).value();
    std::fill(exchange.mapping.bytes().begin(), exchange.mapping.bytes().end(), kGuard);
    return exchange;
  }
  // Writes a step of five rows, pooled, and three outputs into the gateway's lane.
  StepHeader WriteStep(bool want_logits = false) {
    testing::StepBuilder builder(limits_);
    builder.Begin();
    const uint32_t first = builder.AddRows(builder.AddSequence(), {1, 2, 3, 4, 5});
    for (const uint32_t row : {0u, 3u, 4u}) builder.AddOutput(first + row);
    builder.MaskOutput();
    builder.PoolLastRows();
    builder.set_num_candidates(7);
    builder.set_want_logits(want_logits);
    tandem::WriteStep(builder.batch(), gateway_.Area(kLane, gateway_.layout.step));
    return HeaderOf(gateway_, kLane, limits_).value();
  }
  // Distinct bytes in the first `bytes` of an area.
  static void Fill(const Exchange& exchange, const ExchangeArea& area, uint64_t bytes, int salt) {
    const std::span<std::byte> to = exchange.Area(kLane, area).first(bytes);
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(salt + 13 * i + i / 256);
  }
  // The first `bytes` of an area arrived, and nothing behind them was touched.
  void ExpectArrived(const Exchange& from, const Exchange& to, const ExchangeArea& area,
                     uint64_t bytes) {
    const auto sent = from.Area(kLane, area), got = to.Area(kLane, area);
    EXPECT_EQ(std::memcmp(sent.data(), got.data(), bytes), 0) << area.offset;
    for (size_t i = bytes; i < got.size(); ++i)
      ASSERT_EQ(got[i], kGuard) << area.offset << " " << i;
  }

  const ModelConfig config_ = testing::MakeConfig({.num_layers = 2});
  const StepLimits limits_ = [this] {
    StepLimits limits = testing::MakeStepLimits(config_, {.max_rows = 9, .max_sequences = 3});
    limits.max_outputs = limits.max_logit_outputs = 4;
    return limits;
  }();
  const Exchange gateway_ = MakeExchange(config_, limits_);
  const Exchange worker_ = MakeExchange(config_, limits_);
  // Qkv(1) .. Head, with two ports in and two out, as no plan has them.
  const Segment segment_{.index = 3,
                         .first_ordinal = StageOrdinal({StageKind::kQkv, 1}, 2),
                         .last_ordinal = NumStages(2) - 1,
                         .inputs = Port::kResidual | Port::kAttention,
                         .outputs = Port::kK | Port::kProjection};
};

TEST_F(InlineExchangeTest, TheStepAndItsRowsArriveAndNothingElse) {
  const StepHeader header = WriteStep();
  const ExchangeArea& residual = gateway_.layout.port(Port::kResidual);
  const ExchangeArea& attention = gateway_.layout.port(Port::kAttention);
  Fill(gateway_, residual, residual.bytes, 1);
  Fill(gateway_, attention, attention.bytes, 2);
  worker::v1::InlineInputs inputs;
  const ExchangeArea& masks = gateway_.layout.masks;
  Fill(gateway_, masks, masks.bytes, 3);
  PutInputs(gateway_, kLane, segment_, header, true, true, inputs);
  EXPECT_EQ(inputs.step().size(), StepBytes(header));
  EXPECT_EQ(inputs.ports(0).size(), 5 * residual.row_bytes);
  ASSERT_OK(TakeStep(inputs, worker_, kLane));
  std::vector<std::byte> storage;
  ASSERT_OK_AND_ASSIGN(const StepBatch step,
                       ParseStep(worker_.Area(kLane, worker_.layout.step), limits_, storage));
  EXPECT_EQ(step.rows[4].token, 5u);
  ASSERT_OK(TakeInputs(inputs, worker_, kLane, segment_, header, true));
  ExpectArrived(gateway_, worker_, masks, masks.row_bytes);
  ExpectArrived(gateway_, worker_, gateway_.layout.step, StepBytes(header));
  ExpectArrived(gateway_, worker_, residual, 5 * residual.row_bytes);
  ExpectArrived(gateway_, worker_, attention, 5 * attention.row_bytes);
  for (const Port port : {Port::kQ, Port::kK, Port::kV, Port::kProjection}) {
    ExpectArrived(gateway_, worker_, worker_.layout.port(port), 0);
  }
  inputs.Clear();
  PutInputs(gateway_, kLane, segment_, header, false, false, inputs);
  EXPECT_TRUE(inputs.step().empty() && inputs.masks().empty());
}

TEST_F(InlineExchangeTest, OutputsArriveAsTheStepAsksForThem) {
  for (const bool want_logits : {false, true}) {
    const StepHeader header = WriteStep(want_logits);
    const ExchangeLayout& layout = worker_.layout;
    Fill(worker_, layout.port(Port::kK), layout.port(Port::kK).bytes, 3);
    Fill(worker_, layout.port(Port::kProjection), layout.port(Port::kProjection).bytes, 4);
    Fill(worker_, layout.guesses, layout.guesses.bytes, 5);
    Fill(worker_, layout.logits, layout.logits.bytes, 6);
    Fill(worker_, layout.pooled, layout.pooled.bytes, 7);
    auto* const results =
        reinterpret_cast<OutputResult*>(worker_.Area(kLane, layout.candidates).data());
    for (uint32_t o = 0; o < 3; ++o) {
      results[o] = {.log_sum_exp = 1.5f * static_cast<float>(o), .num_candidates = 7 - o};
      for (uint32_t c = 0; c < kMaxCandidates; ++c) results[o].candidates[c] = {c + o, -1.0f};
    }
    worker::v1::InlineOutputs outputs;
    PutOutputs(worker_, kLane, segment_, header, true, outputs);
    EXPECT_EQ(outputs.candidates().size(), 3 * (16 + 7 * sizeof(Candidate)));
    ASSERT_OK(TakeOutputs(outputs, gateway_, kLane, segment_, header, true));
    ExpectArrived(worker_, gateway_, layout.port(Port::kK), 5 * layout.port(Port::kK).row_bytes);
    ExpectArrived(worker_, gateway_, layout.port(Port::kProjection),
                  5 * layout.port(Port::kProjection).row_bytes);
    ExpectArrived(worker_, gateway_, layout.guesses, 3 * sizeof(uint32_t));
    ExpectArrived(worker_, gateway_, layout.logits,
                  want_logits ? 3 * uint64_t{config_.vocab_size} * sizeof(float) : 0);
    ExpectArrived(worker_, gateway_, layout.pooled, config_.hidden_dim * sizeof(float));
    const auto* const got =
        reinterpret_cast<const OutputResult*>(gateway_.Area(kLane, layout.candidates).data());
    for (uint32_t o = 0; o < 3; ++o) {
      EXPECT_EQ(got[o].log_sum_exp, results[o].log_sum_exp);
      EXPECT_EQ(got[o].num_candidates, 7 - o);
      EXPECT_EQ(std::memcmp(got[o].candidates, results[o].candidates, 7 * sizeof(Candidate)), 0);
      EXPECT_EQ(static_cast<std::byte>(got[o].candidates[7].token & 0xFF), kGuard);
    }
    // Without Head there are ports alone.
    outputs.Clear();
    PutOutputs(worker_, kLane, segment_, header, false, outputs);
    EXPECT_TRUE(outputs.candidates().empty() && outputs.logits().empty() &&
                outputs.pooled().empty());
    EXPECT_OK(TakeOutputs(outputs, gateway_, kLane, segment_, header, false));
  }
}

TEST_F(InlineExchangeTest, AStepOfAnotherSizeThanItsHeaderSaysIsRefused) {
  const StepHeader header = WriteStep();
  worker::v1::InlineInputs inputs;
  PutInputs(gateway_, kLane, segment_, header, true, true, inputs);
  const std::string whole = inputs.step();
  const auto take = [&](const std::string& step) {
    inputs.set_step(step);
    const absl::Status status = TakeStep(inputs, worker_, kLane);
    ExpectArrived(gateway_, worker_, worker_.layout.step, 0);
    return status;
  };
  using absl::StatusCode;
  EXPECT_THAT(take(""), StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 bytes")));
  EXPECT_THAT(take(whole.substr(0, 63)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("63")));
  EXPECT_THAT(take(whole.substr(0, whole.size() - 1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("its header says")));
  EXPECT_THAT(take(whole + "x"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("its header says")));
  StepHeader huge = header;
  huge.num_rows = huge.table_len = huge.num_outputs = huge.num_draws = huge.num_pooled = UINT32_MAX;
  std::string lying = whole;
  std::memcpy(lying.data(), &huge, sizeof(huge));
  EXPECT_THAT(take(lying), StatusIs(StatusCode::kInvalidArgument, HasSubstr("its header says")));
  EXPECT_THAT(take(std::string(worker_.layout.step.bytes + 1, 'x')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("must be in")));
}

TEST_F(InlineExchangeTest, PortsOfAnotherNumberOrSizeAreRefused) {
  const StepHeader header = WriteStep();
  worker::v1::InlineInputs good;
  PutInputs(gateway_, kLane, segment_, header, true, true, good);
  const auto take = [&](const worker::v1::InlineInputs& inputs) {
    const absl::Status status = TakeInputs(inputs, worker_, kLane, segment_, header, true);
    ExpectArrived(gateway_, worker_, worker_.layout.port(Port::kResidual), 0);
    ExpectArrived(gateway_, worker_, worker_.layout.masks, 0);
    return status;
  };
  worker::v1::InlineInputs inputs = good;
  inputs.mutable_ports()->RemoveLast();
  EXPECT_THAT(take(inputs), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("segment 3: 1 ports, the segment has 2")));
  inputs = good;
  inputs.add_ports("more");
  EXPECT_THAT(take(inputs), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 ports")));
  inputs = good;
  inputs.mutable_ports(1)->pop_back();
  EXPECT_THAT(take(inputs), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("port 1 of 2")));
  inputs = good;
  inputs.mutable_ports(0)->append(gateway_.layout.port(Port::kResidual).row_bytes, 'x');
  EXPECT_THAT(take(inputs), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("port 0 of 2")));
  for (const size_t bytes : {size_t{0}, good.masks().size() - 1, good.masks().size() + 1}) {
    inputs = good;
    inputs.mutable_masks()->resize(bytes);
    EXPECT_THAT(take(inputs), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("masks of")));
  }
}

TEST_F(InlineExchangeTest, AnswersThatDoNotFitTheStepAreRefused) {
  const StepHeader header = WriteStep(true);
  std::fill(worker_.mapping.bytes().begin(), worker_.mapping.bytes().end(), std::byte{0});
  worker::v1::InlineOutputs good;
  PutOutputs(worker_, kLane, segment_, header, true, good);
  const auto take = [&](const worker::v1::InlineOutputs& outputs) {
    const absl::Status status = TakeOutputs(outputs, gateway_, kLane, segment_, header, true);
    if (!status.ok()) {
      ExpectArrived(gateway_, gateway_, gateway_.layout.candidates, 0);
      ExpectArrived(gateway_, gateway_, gateway_.layout.port(Port::kK), 0);
    }
    return status;
  };
  using absl::StatusCode;
  for (const auto part :
       {&worker::v1::InlineOutputs::mutable_candidates, &worker::v1::InlineOutputs::mutable_guesses,
        &worker::v1::InlineOutputs::mutable_logits, &worker::v1::InlineOutputs::mutable_pooled}) {
    worker::v1::InlineOutputs outputs = good;
    (outputs.*part)()->pop_back();
    EXPECT_THAT(take(outputs), StatusIs(StatusCode::kInternal, HasSubstr("are due")));
    (outputs.*part)()->append("xx");
    EXPECT_THAT(take(outputs), StatusIs(StatusCode::kInternal, HasSubstr("are due")));
  }
  worker::v1::InlineOutputs outputs = good;
  outputs.clear_ports();
  EXPECT_THAT(take(outputs), StatusIs(StatusCode::kInternal, HasSubstr("answer to segment 3")));
  EXPECT_OK(take(good));
}

TEST_F(InlineExchangeTest, AHeaderThatWasOverwrittenIsNotBelieved) {
  WriteStep();
  auto* const header =
      reinterpret_cast<StepHeader*>(gateway_.Area(kLane, gateway_.layout.step).data());
  for (uint32_t StepHeader::*const field :
       {&StepHeader::num_rows, &StepHeader::num_outputs, &StepHeader::num_candidates,
        &StepHeader::want_logits, &StepHeader::table_len, &StepHeader::num_pooled}) {
    const uint32_t before = header->*field;
    header->*field = UINT32_MAX;
    EXPECT_THAT(HeaderOf(gateway_, kLane, limits_),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("overwritten")));
    header->*field = before;
  }
  EXPECT_OK(HeaderOf(gateway_, kLane, limits_).status());
}

TEST_F(InlineExchangeTest, SoftTokensGoToTheSegmentWithEmbed) {
  ModelConfig config = config_;
  config.vision = VisionConfig{.tokens_per_image = 2};
  const StepLimits limits =
      testing::MakeStepLimits(config, {.max_rows = 9, .max_sequences = 3, .max_pictures = 2});
  const Exchange gateway = MakeExchange(config, limits);
  const Exchange worker = MakeExchange(config, limits);
  const ExchangeArea& rows = gateway.layout.soft_tokens;
  Fill(gateway, rows, rows.bytes, 1);
  const auto header_of = [&](bool picture) {
    testing::StepBuilder builder(limits);
    builder.Begin();
    const uint32_t first = builder.AddRows(builder.AddSequence(), {1, 2, 3, 4});
    if (picture) builder.AddPicture(first + 1);
    tandem::WriteStep(builder.batch(), gateway.Area(kLane, gateway.layout.step));
    return HeaderOf(gateway, kLane, limits).value();
  };
  const Segment first = {.last_ordinal = 2}, second = {.index = 1, .first_ordinal = 3};
  worker::v1::InlineInputs inputs;
  PutInputs(gateway, kLane, first, header_of(false), true, false, inputs);
  EXPECT_EQ(inputs.soft_tokens().size(), 0u);
  const StepHeader header = header_of(true);
  PutInputs(gateway, kLane, second, header, true, false, inputs);
  EXPECT_EQ(inputs.soft_tokens().size(), 0u);
  inputs.Clear();
  PutInputs(gateway, kLane, first, header, true, false, inputs);
  EXPECT_EQ(inputs.soft_tokens().size(), 4 * rows.row_bytes);
  ASSERT_OK(TakeInputs(inputs, worker, kLane, first, header, false));
  ExpectArrived(gateway, worker, rows, 4 * rows.row_bytes);
  inputs.mutable_soft_tokens()->pop_back();
  EXPECT_THAT(TakeInputs(inputs, worker, kLane, first, header, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("soft tokens of")));
  EXPECT_THAT(TakeInputs(inputs, worker, kLane, second, header, false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("soft tokens of")));
}

}  // namespace
}  // namespace tandem
