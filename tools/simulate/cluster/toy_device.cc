#include "tools/simulate/cluster/toy_device.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/reference/ops.h"
#include "services/common/rpc/inline_kv.h"
#include "services/gateway/engine/testing/toy_model.h"
#include "tools/simulate/cluster/toy_layers.h"

namespace tandem::simulate {

using gateway::testing::ToyHead;
using gateway::testing::ToyHidden;
using gateway::testing::ToyLogits;

struct ToyDevice::Plan {
  Plan(ModelLoad loaded, uint32_t wrong_guess)
      : load(std::move(loaded)), config(load.weights->config()), wrong_guess_in(wrong_guess) {}

  // Activations of a lane's step, by row.
  struct Lane {
    std::vector<uint64_t> residual, q, k, v, attention, projection;
  };

  std::span<std::byte> Area(uint32_t lane, const ExchangeArea& area) const {
    return load.exchange->Area(lane, area);
  }
  uint64_t& Cached(const SegmentRun& run, const SequenceEntry& sequence, uint32_t layer,
                   uint32_t position) {
    const int group = config.layer_is_global[layer] ? kGlobalGroup : kWindowGroup;
    const uint32_t block_tokens = load.kv.block_tokens;
    const uint32_t block =
        run.step->block_table[sequence.table_offset[group] + position / block_tokens];
    return cache[layer].at(size_t{block} * block_tokens + position % block_tokens);
  }
  std::vector<uint64_t>* Values(Lane& lane, Port port) {
    switch (port) {
      case Port::kResidual:
        return &lane.residual;
      case Port::kQ:
        return &lane.q;
      case Port::kK:
        return &lane.k;
      case Port::kV:
        return &lane.v;
      case Port::kAttention:
        return &lane.attention;
      case Port::kProjection:
        return &lane.projection;
    }
    return nullptr;
  }
  // Copies the ports of a mask between the exchange region and the lane.
  void Exchange(const SegmentRun& run, PortMask ports, bool import) {
    for (int bit = 0; bit < kNumPorts; ++bit) {
      const auto port = static_cast<Port>(1u << bit);
      if (!Has(ports, port)) continue;
      const ExchangeArea& area = load.exchange->layout.port(port);
      const std::span<std::byte> bytes = Area(run.lane, area);
      std::vector<uint64_t>& values = *Values(lanes[run.lane], port);
      for (size_t r = 0; r < run.step->rows.size(); ++r) {
        std::byte* const row = bytes.data() + r * area.row_bytes;
        if (import) {
          std::memcpy(&values[r], row, sizeof(uint64_t));
        } else {
          std::memcpy(row, &values[r], sizeof(uint64_t));
        }
      }
    }
  }
  void Embed(const SegmentRun& run);
  void Attend(const SegmentRun& run, uint32_t layer);
  void Head(const SegmentRun& run);
  void RunStage(const SegmentRun& run, Stage stage);

  const ModelLoad load;
  const ModelConfig& config;
  const uint32_t wrong_guess_in;
  uint64_t num_guesses = 0;
  std::vector<std::vector<uint64_t>> cache;  // [layer][block and slot]
  std::vector<Lane> lanes;
  std::vector<uint32_t> guesses;  // of the step whose head ran last
  uint64_t guessed_step = 0;
  std::set<std::pair<uint64_t, uint32_t>> has_run;  // steps and segments
};

void ToyDevice::Plan::Embed(const SegmentRun& run) {
  const StepBatch& step = *run.step;
  for (size_t r = 0; r < step.rows.size(); ++r) {
    const RowEntry& row = step.rows[r];
    const uint32_t token = row.feed == 0 ? row.token : guesses.at(row.feed - 1);
    lanes[run.lane].residual[r] = ToyEmbed(token);
  }
}

void ToyDevice::Plan::Attend(const SegmentRun& run, uint32_t layer) {
  Lane& lane = lanes[run.lane];
  for (const SequenceEntry& sequence : run.step->sequences) {
    for (uint32_t r = sequence.first_row; r < sequence.first_row + sequence.num_rows; ++r) {
      const uint32_t last = run.step->rows[r].position;
      Cached(run, sequence, layer, last) =
          ToyCached({.q = lane.q[r], .k = lane.k[r], .v = lane.v[r]});
      uint64_t sum = lane.q[r];
      for (uint32_t p = FirstSeen(config, layer, last); p <= last; ++p) {
        sum = ToyAttend(sum, Cached(run, sequence, layer, p));
      }
      lane.attention[r] = sum;
    }
  }
}

void ToyDevice::Plan::Head(const SegmentRun& run) {
  const StepBatch& step = *run.step;
  const Lane& lane = lanes[run.lane];
  const ExchangeLayout& layout = load.exchange->layout;
  guesses.clear();
  guessed_step = step.header.step_id;
  for (size_t o = 0; o < step.outputs.size(); ++o) {
    const OutputEntry& output = step.outputs[o];
    const std::vector<float> logits = ToyLogits(lane.residual[output.row], config.vocab_size);
    std::vector<uint32_t> mask;
    if (output.mask != kNoMask) {
      mask.resize(MaskWords(config.vocab_size));
      std::memcpy(mask.data(),
                  Area(run.lane, layout.masks).data() + output.mask * layout.masks.row_bytes,
                  mask.size() * sizeof(uint32_t));
    }
    const OutputResult result = ToyHead(logits, step.header.num_candidates, output.target, mask);
    const auto put = [&](const ExchangeArea& area, size_t row_bytes, const void* data,
                         size_t bytes) {
      std::memcpy(Area(run.lane, area).data() + o * row_bytes, data, bytes);
    };
    put(layout.candidates, sizeof(OutputResult), &result, sizeof(OutputResult));
    if (step.header.want_logits != 0) {
      put(layout.logits, layout.logits.row_bytes, logits.data(), logits.size() * sizeof(float));
    }
    const DrawEntry* const draw = output.draw == kNoDraw ? nullptr : &step.draws[output.draw];
    guesses.push_back(reference::GuessToken(result, draw));
    if (wrong_guess_in != 0 && ++num_guesses % wrong_guess_in == 0) {
      guesses.back() = (guesses.back() + 1) % config.vocab_size;
    }
    put(layout.guesses, sizeof(uint32_t), &guesses.back(), sizeof(uint32_t));
  }
  for (size_t i = 0; i < step.pooled.size(); ++i) {
    const SequenceEntry& sequence = step.sequences[step.pooled[i]];
    std::vector<float> sum(config.hidden_dim);
    for (uint32_t r = sequence.first_row; r < sequence.first_row + sequence.num_rows; ++r) {
      const std::vector<float> hidden = ToyHidden(lane.residual[r], config.hidden_dim);
      for (size_t d = 0; d < sum.size(); ++d) sum[d] += hidden[d];
    }
    std::memcpy(Area(run.lane, layout.pooled).data() + i * layout.pooled.row_bytes, sum.data(),
                sum.size() * sizeof(float));
  }
}

void ToyDevice::Plan::RunStage(const SegmentRun& run, Stage stage) {
  Lane& lane = lanes[run.lane];
  const uint32_t layer = stage.layer_idx;
  switch (stage.kind) {
    case StageKind::kEmbed:
      return Embed(run);
    case StageKind::kAttend:
      return Attend(run, layer);
    case StageKind::kHead:
      return Head(run);
    case StageKind::kVision:
      return;
    default:
      break;
  }
  for (size_t r = 0; r < run.step->rows.size(); ++r) {
    if (stage.kind == StageKind::kQkv) {
      const ToyQkv qkv = ToyProject(layer, lane.residual[r]);
      lane.q[r] = qkv.q;
      lane.k[r] = qkv.k;
      lane.v[r] = qkv.v;
    } else if (stage.kind == StageKind::kOut) {
      lane.projection[r] = ToyOut(layer, lane.attention[r]);
    } else {
      lane.residual[r] = ToyFfn(lane.residual[r], lane.projection[r]);
    }
  }
}

ToyDevice::ToyDevice(WorkerDescription description, Hooks hooks, bool keeps_answers,
                     uint32_t wrong_guess_in)
    : description_(std::move(description)),
      hooks_(std::move(hooks)),
      keeps_answers_(keeps_answers),
      wrong_guess_in_(wrong_guess_in) {}

ToyDevice::~ToyDevice() = default;

absl::StatusOr<LoadReport> ToyDevice::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  progress(0.5, "loading");
  TANDEM_RETURN_IF_ERROR(hooks_.load());
  auto plan = std::make_unique<Plan>(std::move(load), wrong_guess_in_);
  ++num_loads_;
  for (uint32_t layer = 0; layer < plan->config.num_layers; ++layer) {
    const int group = plan->config.layer_is_global[layer] ? kGlobalGroup : kWindowGroup;
    // Nothing that any text has.
    plan->cache.emplace_back(size_t{plan->load.kv.num_blocks[group]} * plan->load.kv.block_tokens,
                             num_loads_ << 48);
  }
  const size_t rows = plan->load.limits.max_rows;
  plan->lanes.resize(plan->load.exchange->layout.num_lanes);
  for (Plan::Lane& lane : plan->lanes) {
    for (auto* values :
         {&lane.residual, &lane.q, &lane.k, &lane.v, &lane.attention, &lane.projection})
      values->resize(rows);
  }
  const uint32_t number = plan->load.plan;
  LoadReport report{.weight_import = ImportPath::kHostPointer,
                    .exchange_import = ImportPath::kHostPointer,
                    .weight_bytes = plan->load.weights->total_bytes()};
  plans_[number] = std::move(plan);
  progress(1.0, "loaded");
  return report;
}

absl::Status ToyDevice::CopyKv(uint32_t plan_idx, const KvCopy& copy) {
  Plan& plan = *plans_[plan_idx];
  TANDEM_RETURN_IF_ERROR(hooks_.run(1, 1));
  const StepLimits& limits = plan.load.limits;
  const uint64_t vector_bytes = uint64_t{plan.config.head_dim} * sizeof(uint16_t);
  const std::span<std::byte> area = plan.Area(0, plan.load.exchange->layout.kv);
  const std::vector<bool> mine = AttendedLayers(plan.load.segments, plan.config.num_layers);
  KvCopyLayout(plan.config, limits)
      .ForEachPart(copy, [&](uint32_t layer, uint32_t block, uint64_t offset) {
        for (uint32_t slot = 0; slot < limits.block_tokens && mine[layer]; ++slot) {
          uint64_t& cached = plan.cache[layer].at(size_t{block} * limits.block_tokens + slot);
          std::byte* const in_area = area.data() + offset + slot * vector_bytes;
          if (copy.write) {
            std::memcpy(&cached, in_area, sizeof(cached));
          } else {
            std::memcpy(in_area, &cached, sizeof(cached));
          }
        }
      });
  return absl::OkStatus();
}

void ToyDevice::Unload(uint32_t plan) { plans_[plan].reset(); }

absl::StatusOr<SegmentResult> ToyDevice::Run(const SegmentRun& run) {
  Plan& plan = *plans_[run.plan];
  const StepBatch& step = *run.step;
  const Segment& segment =
      *std::ranges::find(plan.load.segments, run.segment_index, &Segment::index);
  if (!plan.has_run.emplace(step.header.step_id, run.segment_index).second) {
    hooks_.violation(absl::StrFormat("%s: segment %d of step %d is run twice", description_.name,
                                     run.segment_index, step.header.step_id));
  }
  const int64_t begin = NowNanos();
  TANDEM_RETURN_IF_ERROR(hooks_.run(static_cast<uint32_t>(step.rows.size()),
                                    segment.last_ordinal - segment.first_ordinal + 1));
  if (step.header.after_step != 0 && step.header.after_step != plan.guessed_step) {
    return absl::InvalidArgumentError("the step before was refused");
  }
  plan.Exchange(run, segment.inputs, true);
  for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
    plan.RunStage(run, StageAt(s, plan.config.num_layers));
  }
  plan.Exchange(run, segment.outputs, false);
  const auto device_ns = static_cast<uint64_t>(NowNanos() - begin);
  return SegmentResult{.device_ns = device_ns,
                       .stage_times = {{.kind = StageKind::kFfn, .device_ns = device_ns}}};
}

}  // namespace tandem::simulate
