#include "services/common/reference/reference_worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/clock.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/common/reference/ops.h"
#include "services/common/tensor/kv_format.h"
#include "services/common/tensor/port_numbers.h"

namespace tandem::reference {
namespace {

constexpr Port kPorts[kNumPorts] = {Port::kResidual, Port::kQ,         Port::kK,
                                    Port::kV,        Port::kAttention, Port::kProjection};

bool IsFloat32(Port port) { return port == Port::kResidual || port == Port::kProjection; }

KvGroup GroupOf(const ModelConfig& config, uint32_t layer_idx) {
  return config.is_global(layer_idx) ? kGlobalGroup : kWindowGroup;
}

// What a q8_0 cache makes of k or v (common/tensor/kv_format.h).
void RoundToQ8(std::vector<float>& values) {
  constexpr size_t kBlock = 32;
  for (size_t at = 0; at < values.size(); at += kBlock) {
    const std::span<float> block = std::span(values).subspan(at, kBlock);
    float highest = 0;
    for (const float x : block) highest = std::max(highest, std::abs(x));
    const float inverse = highest > 0 ? 127.0f / highest : 0.0f;
    const float scale = HalfToFloat(FloatToHalf(highest / 127.0f));
    for (float& x : block) x = std::nearbyint(x * inverse) * scale;
  }
}

std::vector<float>& PortRows(Port port, Activations& rows) {
  switch (port) {
    case Port::kResidual:
      return rows.residual;
    case Port::kQ:
      return rows.q;
    case Port::kK:
      return rows.k;
    case Port::kV:
      return rows.v;
    case Port::kAttention:
      return rows.attention;
    case Port::kProjection:
      return rows.projection;
  }
  return rows.residual;
}

uint64_t NowNs() { return static_cast<uint64_t>(NowNanos()); }

}  // namespace

ReferenceWorker::ReferenceWorker(ReferenceWorkerOptions options)
    : num_threads_(options.num_threads), delay_(std::move(options.delay)) {
  description_ = {.name = std::move(options.name),
                  .device = "reference arithmetic on the host",
                  .driver = std::move(options.driver),
                  .kind = options.kind,
                  .emulated = options.emulated,
                  .feeds_steps = true,
                  .takes_pictures = true,
                  .copies_kv = true,
                  .stages = std::move(options.stages),
                  .kv_dtypes = {DType::kF16, DType::kQ8_0},
                  .attend_port_dtypes = options.port_dtypes,
                  .matrix_port_dtypes = options.port_dtypes,
                  .max_rows = options.max_rows,
                  .memory_bytes = uint64_t{8} << 30,
                  .memory_available_bytes = uint64_t{8} << 30};
  if (description_.stages.empty()) {
    for (int kind = 0; kind < kNumStageKinds; ++kind) {
      description_.stages.push_back(static_cast<StageKind>(kind));
    }
  }
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    description_.weight_dtypes.push_back(static_cast<DType>(dtype));
  }
}

absl::StatusOr<LoadReport> ReferenceWorker::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  Plan& plan = plans_[load.plan];
  plan = {};
  const ModelConfig& config = load.weights->config();
  std::vector<Stage> stages;
  for (const Segment& segment : load.segments) {
    for (uint32_t i = segment.first_ordinal; i <= segment.last_ordinal; ++i) {
      const Stage stage = StageAt(i, config.num_layers);
      if (std::ranges::find(description_.stages, stage.kind) == description_.stages.end()) {
        return absl::FailedPreconditionError(
            absl::StrFormat("%s cannot run %s", description_.name, StageName(stage)));
      }
      stages.push_back(stage);
    }
  }
  progress(0.0, "dequantising weights");
  const bool vision = stages.front().kind == StageKind::kVision;
  auto parameters =
      std::make_unique<Parameters>(*load.weights, vision ? std::vector<Stage>() : stages);
  if (vision) {
    plan.encoder = std::make_unique<VisionEncoder>(DequantizeVision(*load.weights), num_threads_);
  }
  LoadReport report{.weight_import = ImportPath::kUpload,
                    .exchange_import = ImportPath::kHostPointer,
                    .weight_bytes = load.weights->total_bytes()};
  TANDEM_ASSIGN_OR_RETURN(report.kv_bytes, AllocateCache(load, stages, plan.kv));
  plan.parameters = std::move(parameters);
  plan.load = std::move(load);
  progress(1.0, "ready");
  return report;
}

absl::StatusOr<uint64_t> ReferenceWorker::AllocateCache(const ModelLoad& load,
                                                        const std::vector<Stage>& stages,
                                                        std::vector<KvLayer>& kv) const {
  const ModelConfig& config = load.weights->config();
  const auto elements = [&](Stage stage) {
    const uint64_t blocks = load.kv.num_blocks[GroupOf(config, stage.layer_idx)];
    return stage.kind == StageKind::kAttend ? blocks * load.kv.block_tokens * config.kv_dim() : 0;
  };
  uint64_t bytes = 0;
  for (const Stage stage : stages) bytes += 2 * sizeof(float) * elements(stage);
  if (bytes > description_.memory_available_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: KV cache of %d bytes, %d are available", description_.name, bytes,
                        description_.memory_available_bytes));
  }
  kv.resize(config.num_layers);
  for (const Stage stage : stages) {
    if (stage.kind != StageKind::kAttend) continue;
    kv[stage.layer_idx].keys.assign(elements(stage), 0.0f);
    kv[stage.layer_idx].values.assign(elements(stage), 0.0f);
  }
  return bytes;
}

absl::Status ReferenceWorker::CopyKv(uint32_t plan_idx, const KvCopy& copy) {
  Plan& plan = plans_[plan_idx];
  if (plan.parameters == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s has no model loaded", description_.name));
  }
  const ModelConfig& config = plan.parameters->config();
  const StepLimits& limits = plan.load.limits;
  const std::span<std::byte> area = plan.load.exchange->Area(0, plan.load.exchange->layout.kv);
  const size_t head_dim = config.head_dim;
  const size_t page_bytes = KvPageBytes(limits.kv_dtype, limits.block_tokens, config.head_dim);
  std::vector<float> page(limits.block_tokens * head_dim);
  KvCopyLayout(config, limits)
      .ForEachPart(copy, [&](uint32_t layer_idx, uint32_t block, uint64_t offset) {
        KvLayer& layer = plan.kv[layer_idx];
        if (layer.keys.empty()) return;
        std::span<std::byte> pages = area.subspan(offset);
        for (std::vector<float>* const cache : {&layer.keys, &layer.values}) {
          for (uint32_t head = 0; head < config.num_kv_heads; ++head) {
            const std::span<std::byte> bytes = pages.first(page_bytes);
            pages = pages.subspan(page_bytes);
            if (copy.write) DecodeKvPage(limits.kv_dtype, bytes, page);
            for (size_t token = 0; token < limits.block_tokens; ++token) {
              float* const row =
                  cache->data() +
                  ((size_t{block} * limits.block_tokens + token) * config.num_kv_heads + head) *
                      head_dim;
              float* const in_page = page.data() + token * head_dim;
              if (copy.write) {
                std::copy_n(in_page, head_dim, row);
              } else {
                std::copy_n(row, head_dim, in_page);
              }
            }
            if (!copy.write) EncodeKvPage(limits.kv_dtype, page, bytes);
          }
        }
      });
  return absl::OkStatus();
}

absl::StatusOr<SegmentResult> ReferenceWorker::Run(const SegmentRun& run) {
  Plan& plan = plans_[run.plan];
  if (plan.parameters == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s has no model loaded", description_.name));
  }
  const auto segment = std::ranges::find(plan.load.segments, run.segment_index, &Segment::index);
  if (segment == plan.load.segments.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("segment %d is not one of %s's", run.segment_index, description_.name));
  }
  if (run.lane >= plan.load.exchange->layout.num_lanes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("lane %d of %d", run.lane, plan.load.exchange->layout.num_lanes));
  }
  for (const RowEntry& row : run.step->rows) {
    if (row.feed <= plan.guesses.size()) continue;
    return absl::InvalidArgumentError(absl::StrFormat("a row takes the guess of output %d of %d",
                                                      row.feed - 1, plan.guesses.size()));
  }
  const uint64_t start = NowNs();
  SegmentResult result;
  plan.lanes.resize(plan.load.exchange->layout.num_lanes);
  std::swap(plan.rows, plan.lanes[run.lane]);
  ReadPorts(segment->inputs, run.lane, run.step->header.num_rows, plan);
  for (uint32_t i = segment->first_ordinal; i <= segment->last_ordinal; ++i) {
    const Stage stage = StageAt(i, plan.parameters->config().num_layers);
    const uint64_t stage_start = NowNs();
    RunStage(stage, run, plan);
    if (delay_ != nullptr) absl::SleepFor(delay_(stage.kind, run.step->header.num_rows));
    const auto time = std::ranges::find(result.stage_times, stage.kind, &StageTime::kind);
    const uint64_t elapsed = NowNs() - stage_start;
    if (time == result.stage_times.end()) {
      result.stage_times.push_back({stage.kind, elapsed});
    } else {
      time->device_ns += elapsed;
    }
  }
  WritePorts(segment->outputs, run.lane, plan);
  std::swap(plan.rows, plan.lanes[run.lane]);
  result.device_ns = NowNs() - start;
  return result;
}

void ReferenceWorker::RunStage(Stage stage, const SegmentRun& run, Plan& plan) const {
  std::vector<uint32_t> tokens, positions;
  for (const RowEntry& row : run.step->rows) {
    tokens.push_back(row.feed == 0 ? row.token : plan.guesses[row.feed - 1]);
    positions.push_back(row.position);
  }
  switch (stage.kind) {
    case StageKind::kEmbed:
      Embed(*plan.parameters, tokens, plan.rows);
      return TakeSoftTokens(run, plan);
    case StageKind::kVision:
      return EncodePictures(run, plan);
    case StageKind::kQkv:
      Qkv(*plan.parameters, stage.layer_idx, positions, num_threads_, plan.rows);
      RoundToPort(plan.load.port_dtype, plan.rows.q);
      RoundToPort(plan.load.port_dtype, plan.rows.k);
      return RoundToPort(plan.load.port_dtype, plan.rows.v);
    case StageKind::kAttend:
      Attend(stage.layer_idx, *run.step, plan);
      return RoundToPort(plan.load.port_dtype, plan.rows.attention);
    case StageKind::kOut:
      return Out(*plan.parameters, stage.layer_idx, num_threads_, plan.rows);
    case StageKind::kFfn:
      return Ffn(*plan.parameters, stage.layer_idx, num_threads_, plan.rows);
    case StageKind::kHead:
      WritePooled(run, plan);
      return WriteHead(run, plan);
  }
}

// Appends k and v of every row first, then attends: rows of one chunk see one another.
void ReferenceWorker::Attend(uint32_t layer_idx, const StepBatch& step, Plan& plan) const {
  const ModelConfig& config = plan.parameters->config();
  const uint32_t block_tokens = plan.load.kv.block_tokens;
  const KvGroup group = GroupOf(config, layer_idx);
  KvLayer& cache = plan.kv[layer_idx];
  const size_t kv_dim = config.kv_dim();
  const size_t q_dim = config.q_dim();
  const auto offset = [&](const SequenceEntry& sequence, uint32_t position) {
    const uint32_t block = step.block_table[sequence.table_offset[group] + position / block_tokens];
    return (size_t{block} * block_tokens + position % block_tokens) * kv_dim;
  };
  if (plan.load.kv.dtype == DType::kQ8_0) {
    RoundToQ8(plan.rows.k);
    RoundToQ8(plan.rows.v);
  }
  for (size_t r = 0; r < step.rows.size(); ++r) {
    const size_t at = offset(step.sequences[step.rows[r].sequence], step.rows[r].position);
    std::copy_n(&plan.rows.k[r * kv_dim], kv_dim, &cache.keys[at]);
    std::copy_n(&plan.rows.v[r * kv_dim], kv_dim, &cache.values[at]);
  }
  plan.rows.attention.resize(plan.rows.q.size());
  const auto visible = Visible(config, layer_idx, step);
  ParallelFor(step.rows.size() < 8 ? 1 : num_threads_, step.rows.size(),
              [&](size_t begin, size_t end) {
                std::vector<const float*> keys, values;
                for (size_t r = begin; r < end; ++r) {
                  const SequenceEntry& sequence = step.sequences[step.rows[r].sequence];
                  keys.clear();
                  values.clear();
                  for (uint32_t p = visible[r].first; p <= visible[r].second; ++p) {
                    const size_t at = offset(sequence, p);
                    keys.push_back(&cache.keys[at]);
                    values.push_back(&cache.values[at]);
                  }
                  AttendRow(config, std::span(plan.rows.q).subspan(r * q_dim, q_dim), keys, values,
                            std::span(plan.rows.attention).subspan(r * q_dim, q_dim));
                }
              });
}

void ReferenceWorker::WriteHead(const SegmentRun& run, Plan& plan) const {
  const StepBatch& step = *run.step;
  plan.guesses.clear();
  if (step.outputs.empty()) return;
  const ModelConfig& config = plan.parameters->config();
  std::vector<float> residual;
  for (const OutputEntry& output : step.outputs) {
    const auto row = plan.rows.residual.begin() + size_t{output.row} * config.hidden_dim;
    residual.insert(residual.end(), row, row + config.hidden_dim);
  }
  const std::vector<float> logits = Head(*plan.parameters, residual, num_threads_);
  const Exchange& exchange = *plan.load.exchange;
  std::byte* results = exchange.Area(run.lane, exchange.layout.candidates).data();
  for (size_t o = 0; o < step.outputs.size(); ++o) {
    const auto row = std::span(logits).subspan(o * config.vocab_size, config.vocab_size);
    std::span<const uint32_t> mask;
    if (step.outputs[o].mask != kNoMask) {
      const ExchangeArea& area = exchange.layout.masks;
      const std::byte* words =
          exchange.Area(run.lane, area).data() + step.outputs[o].mask * area.row_bytes;
      mask = {reinterpret_cast<const uint32_t*>(words), MaskWords(config.vocab_size)};
    }
    const OutputResult result =
        SummariseLogits(row, step.header.num_candidates, step.outputs[o].target, mask);
    std::memcpy(results + o * sizeof(OutputResult), &result, sizeof(result));
    const uint32_t draw = step.outputs[o].draw;
    plan.guesses.push_back(GuessToken(result, draw == kNoDraw ? nullptr : &step.draws[draw]));
  }
  std::memcpy(exchange.Area(run.lane, exchange.layout.guesses).data(), plan.guesses.data(),
              plan.guesses.size() * sizeof(uint32_t));
  if (step.header.want_logits != 0) {
    std::memcpy(exchange.Area(run.lane, exchange.layout.logits).data(), logits.data(),
                logits.size() * sizeof(float));
  }
}

void ReferenceWorker::WritePooled(const SegmentRun& run, Plan& plan) {
  const Exchange& exchange = *plan.load.exchange;
  const size_t hidden_dim = plan.parameters->config().hidden_dim;
  std::byte* to = exchange.Area(run.lane, exchange.layout.pooled).data();
  for (const uint32_t s : run.step->pooled) {
    const SequenceEntry& sequence = run.step->sequences[s];
    const std::vector<float> sum =
        Pool(*plan.parameters,
             std::span(plan.rows.residual)
                 .subspan(sequence.first_row * hidden_dim, sequence.num_rows * hidden_dim));
    std::memcpy(to, sum.data(), exchange.layout.pooled.row_bytes);
    to += exchange.layout.pooled.row_bytes;
  }
}

void ReferenceWorker::ReadPorts(PortMask ports, uint32_t lane, uint32_t num_rows, Plan& plan) {
  for (const Port port : kPorts) {
    if (!Has(ports, port)) continue;
    const ExchangeArea& area = plan.load.exchange->layout.port(port);
    const std::byte* data = plan.load.exchange->Area(lane, area).data();
    std::vector<float>& values = PortRows(port, plan.rows);
    if (IsFloat32(port)) {
      values.resize(num_rows * area.row_bytes / sizeof(float));
      std::memcpy(values.data(), data, values.size() * sizeof(float));
    } else {
      values.resize(num_rows * area.row_bytes / sizeof(uint16_t));
      PortToFloats(plan.load.port_dtype, reinterpret_cast<const uint16_t*>(data), values);
    }
  }
}

void ReferenceWorker::WritePorts(PortMask ports, uint32_t lane, Plan& plan) {
  for (const Port port : kPorts) {
    if (!Has(ports, port)) continue;
    std::byte* data = plan.load.exchange->Area(lane, plan.load.exchange->layout.port(port)).data();
    const std::vector<float>& values = PortRows(port, plan.rows);
    if (IsFloat32(port)) {
      std::memcpy(data, values.data(), values.size() * sizeof(float));
    } else {
      FloatsToPort(plan.load.port_dtype, values, reinterpret_cast<uint16_t*>(data));
    }
  }
}

}  // namespace tandem::reference
