// Messages between the services, as a peer that is not to be believed sends them: the first byte
// chooses which.  Accepted input keeps the bounds that its reader promises.
#include <cstddef>
#include <cstdint>

#include "services/common/base/check.h"
#include "services/common/rpc/convert.h"
#include "services/common/rpc/inline_exchange.h"
#include "services/common/rpc/worker_convert.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/step_builder.h"

namespace {

using namespace tandem;

constexpr uint32_t kLayers = 2;

// A worker's answer in the place of the one that a step of three rows is due.
void TakeAnswer(const uint8_t* data, size_t size) {
  static const ModelConfig config = tandem::testing::MakeConfig({.num_layers = kLayers});
  static const StepLimits limits =
      tandem::testing::MakeStepLimits(config, {.max_rows = 9, .max_sequences = 3});
  static const Exchange exchange = [] {
    Exchange made;
    made.layout = MakeExchangeLayout(config, limits, 1);
    const uint64_t bytes = made.layout.total_bytes();
    made.fd = CreateSharedMemory("exchange", bytes).value();
    made.mapping = Mapping::Map(made.fd.get(), bytes, Mapping::Access::kReadWrite).value();
    return made;
  }();
  static const StepHeader header = [] {
    tandem::testing::StepBuilder builder(limits);
    builder.Begin();
    builder.AddOutput(builder.AddRows(builder.AddSequence(), {1, 2, 3}) + 2);
    WriteStep(builder.batch(), exchange.Area(0, exchange.layout.step));
    return HeaderOf(exchange, 0, limits).value();
  }();
  static const Segment segment{.index = 3,
                               .first_ordinal = StageOrdinal({StageKind::kQkv, 1}, kLayers),
                               .last_ordinal = NumStages(kLayers) - 1,
                               .inputs = Port::kResidual | Port::kAttention,
                               .outputs = Port::kK | Port::kProjection};
  worker::v1::ExecuteResponse answer;
  if (!answer.ParseFromArray(data, static_cast<int>(size))) return;
  TakeOutputs(answer.outputs(), exchange, 0, segment, header, /*head=*/true).IgnoreError();
}

void TakePlan(const uint8_t* data, size_t size) {
  static const ModelConfig config = tandem::testing::MakeConfig({.num_layers = kLayers});
  worker::v1::LoadPlanRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return;
  const auto segments = SegmentsFromProto(request, kLayers);
  if (segments.ok()) {
    for (const Segment& segment : *segments) {
      TANDEM_CHECK(segment.first_ordinal <= segment.last_ordinal);
      TANDEM_CHECK(segment.last_ordinal < NumStages(kLayers) || IsVisionPlan(*segments, kLayers));
    }
  }
  VisionLimitsFromProto(request.limits(), config).status().IgnoreError();
  const auto limits = LimitsFromProto(request.limits(), config, 512);
  if (limits.ok()) TANDEM_CHECK(limits->max_rows >= 1 && limits->max_rows <= 512);
}

void TakeDescription(const uint8_t* data, size_t size) {
  worker::v1::DescribeResponse response;
  if (!response.ParseFromArray(data, static_cast<int>(size))) return;
  response.set_protocol_version(kWorkerProtocolVersion);
  const auto description = DescriptionFromProto(response);
  if (!description.ok()) return;
  TANDEM_CHECK(!description->name.empty());
  for (const char c : description->name + description->device) TANDEM_CHECK(c >= ' ' && c <= '~');
}

// What a lease comes with.
void TakeModel(const uint8_t* data, size_t size) {
  loader::v1::Model model;
  if (!model.ParseFromArray(data, static_cast<int>(size))) return;
  const auto config = ConfigFromProto(model.config());
  if (!config.ok()) return;
  TANDEM_CHECK(config->Validate().ok());
  TensorsFromProto(model, *config).IgnoreError();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  void (*const takes[])(const uint8_t*, size_t) = {TakeAnswer, TakePlan, TakeDescription,
                                                   TakeModel};
  takes[data[0] % 4](data + 1, size - 1);
  return 0;
}
