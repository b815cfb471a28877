#include "services/gpu_worker/stages/vision_recorder.h"

#include <cmath>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/vision_launches.h"

namespace tandem::gpu {

using enum VisionRole;

VisionRecorder::VisionRecorder(const VisionContext& context, vulkan::Recorder& recorder)
    : context_(context),
      config_(*context.weights->config().vision),
      buffers_(*context.buffers),
      tuning_(context.kernels->tuning()),
      recorder_(recorder) {}

const DeviceTensor& VisionRecorder::Matrix(VisionRole role, uint32_t layer_idx) const {
  return context_.import->Find(*context_.weights->Find(ToWeightRole(role), layer_idx));
}

uint64_t VisionRecorder::Vector(VisionRole role, uint32_t layer_idx) const {
  return Matrix(role, layer_idx).shards[0].plane[0];
}

absl::Status VisionRecorder::Run(const Launch& launch) {
  TANDEM_RETURN_IF_ERROR(context_.kernels->Record(launch, recorder_));
  recorder_.Barrier();
  return absl::OkStatus();
}

VisionRecorder::Product VisionRecorder::PatchProduct(VisionRole role, uint32_t layer_idx,
                                                     uint64_t x, uint64_t destination,
                                                     uint32_t out_stride) const {
  return {.weights = &Matrix(role, layer_idx),
          .input = context_.format,
          .args = {.count = buffers_.num_patches(),
                   .x = x,
                   .destination = destination,
                   .out_stride = out_stride,
                   .max_rows = config_.num_patches()}};
}

Launch VisionRecorder::LaunchOf(const Product& product, const DeviceShard& shard,
                                const MatrixWorkspace& workspace) const {
  MatrixArgs args = product.args;
  if (on_units() && UsesMatrixUnits(tuning_, product.weights->dtype, args.max_rows)) {
    args.workspace = workspace;
    return MatrixMatmulLaunch(tuning_, *product.weights, shard, args);
  }
  TANDEM_CHECK(args.output == MatrixOutput::kF32);
  return PlainMatmulLaunch(tuning_, *product.weights, shard,
                           {.count = args.count,
                            .x = args.x,
                            .x_format = product.input,
                            .destination = args.destination,
                            .out_stride = args.out_stride,
                            .max_rows = args.max_rows});
}

absl::Status VisionRecorder::Multiply(std::initializer_list<Product> products) {
  for (const Product& product : products) {
    const std::vector<DeviceShard>& shards = product.weights->shards;
    // There is one workspace.
    const bool alone = products.size() == 1 && shards.size() == 1;
    for (const DeviceShard& shard : shards) {
      TANDEM_RETURN_IF_ERROR(context_.kernels->Record(
          LaunchOf(product, shard, alone ? buffers_.workspace() : MatrixWorkspace()), recorder_));
    }
  }
  recorder_.Barrier();
  return absl::OkStatus();
}

absl::Status VisionRecorder::AddNorm(uint64_t from, VisionRole bias, uint32_t bias_layer,
                                     uint32_t next_layer) {
  const bool second = bias == kOutBias, last = next_layer == config_.num_layers;
  const auto norm = [&](VisionRole first_of_layer, VisionRole second_of_layer, VisionRole of_end) {
    if (last) return Vector(of_end);
    return Vector(second ? second_of_layer : first_of_layer, next_layer);
  };
  return Run(AddLayerNormLaunch(
      tuning_, {.source = buffers_.sums.address(),
                .bias = Vector(bias, bias_layer),
                .residual = from,
                .updated = buffers_.residual.address(),
                .weight = norm(kNorm1Weight, kNorm2Weight, kPostNormWeight),
                .norm_bias = norm(kNorm1Bias, kNorm2Bias, kPostNormBias),
                .normed = last ? buffers_.wide.address() : buffers_.normed.address(),
                .cols = config_.hidden_dim,
                .rows = config_.num_patches(),
                .epsilon = config_.layer_norm_eps,
                .format = last ? ActivationFormat::kF32 : context_.format}));
}

absl::Status VisionRecorder::Begin(uint32_t lane, uint32_t picture) {
  const ExchangeArea& pixels = context_.exchange->layout().pixels;
  TANDEM_RETURN_IF_ERROR(Run(CutPatchesLaunch(
      tuning_, {.pixels = context_.exchange->Address(lane, pixels) + picture * pixels.row_bytes,
                .destination = buffers_.patches.address(),
                .image_size = config_.image_size,
                .patch_size = config_.patch_size,
                .stride = static_cast<uint32_t>(PackedColumns(config_.patch_dim())),
                .format = context_.format})));
  TANDEM_RETURN_IF_ERROR(Multiply({PatchProduct(kPatchWeight, 0, buffers_.patches.address(),
                                                buffers_.sums.address(), config_.hidden_dim)}));
  return AddNorm(buffers_.positions.address(), kPatchBias, 0, 0);
}

absl::Status VisionRecorder::Project(uint32_t layer_idx) {
  const uint32_t hidden = config_.hidden_dim, heads = config_.num_heads;
  const uint64_t x = buffers_.normed.address();
  if (on_units()) {
    const auto heads_of = [&](VisionRole role, VisionRole bias, const vulkan::Buffer& to,
                              uint32_t block_tokens) {
      Product product = PatchProduct(role, layer_idx, x, to.address(), hidden);
      product.args.output = MatrixOutput::kHeadsF16;
      product.args.bias = Vector(bias, layer_idx);
      product.args.head_dim = config_.head_dim();
      product.args.block_tokens = block_tokens;
      return product;
    };
    return Multiply({heads_of(kQWeight, kQBias, buffers_.q, 1),
                     heads_of(kKWeight, kKBias, buffers_.k, kVisionBlockTokens),
                     heads_of(kVWeight, kVBias, buffers_.v, kVisionBlockTokens)});
  }
  const auto part = [&](VisionRole role, uint32_t number) {
    return PatchProduct(role, layer_idx, x,
                        buffers_.wide.address() + uint64_t{number} * hidden * sizeof(float),
                        3 * hidden);
  };
  TANDEM_RETURN_IF_ERROR(Multiply({part(kQWeight, 0), part(kKWeight, 1), part(kVWeight, 2)}));
  return Run(SplitHeadsLaunch(tuning_, {.sums = buffers_.wide.address(),
                                        .q_bias = Vector(kQBias, layer_idx),
                                        .k_bias = Vector(kKBias, layer_idx),
                                        .v_bias = Vector(kVBias, layer_idx),
                                        .q = buffers_.q.address(),
                                        .k_cache = buffers_.k.address(),
                                        .v_cache = buffers_.v.address(),
                                        .num_heads = heads,
                                        .head_dim = config_.head_dim(),
                                        .block_tokens = kVisionBlockTokens,
                                        .rows = config_.num_patches()}));
}

absl::Status VisionRecorder::Attend(uint32_t layer_idx) {
  TANDEM_RETURN_IF_ERROR(Project(layer_idx));
  const uint32_t heads = config_.num_heads, head_dim = config_.head_dim();
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  if (buffers_.tiles != 0) {
    return Run(TiledLaunch(tuning_, {.push = {.step = buffers_.step.address(),
                                              .rows = buffers_.attention_step.address(),
                                              .tiles = buffers_.tiles,
                                              .q = buffers_.q.address(),
                                              .k_cache = buffers_.k.address(),
                                              .v_cache = buffers_.v.address(),
                                              .destination = buffers_.attention.address(),
                                              .num_heads = heads,
                                              .num_kv_heads = heads,
                                              .scale = scale},
                                     .head_dim = head_dim,
                                     .block_tokens = kVisionBlockTokens,
                                     .max_rows = config_.num_patches(),
                                     .max_pictures = 1}));
  }
  return Run(AttentionLaunch(tuning_,
                             {.step = buffers_.step.address(),
                              .q = buffers_.q.address(),
                              .k_cache = buffers_.k.address(),
                              .v_cache = buffers_.v.address(),
                              .destination = buffers_.attention.address(),
                              .num_heads = heads,
                              .num_kv_heads = heads,
                              .block_tokens = kVisionBlockTokens,
                              .scale = scale},
                             head_dim, DType::kF16, buffers_.k.bytes(), config_.num_patches(),
                             config_.num_patches()));
}

absl::Status VisionRecorder::Activate(uint32_t layer_idx) {
  const auto stride = static_cast<uint32_t>(PackedColumns(config_.ffn_dim));
  const uint64_t bias = Vector(kUpBias, layer_idx);
  const uint64_t x = buffers_.normed.address(), to = buffers_.activated.address();
  if (on_units()) {
    Product up = PatchProduct(kUpWeight, layer_idx, x, to, stride);
    up.args.output = MatrixOutput::kBiasGeluF16;
    up.args.bias = bias;
    return Multiply({up});
  }
  TANDEM_RETURN_IF_ERROR(
      Multiply({PatchProduct(kUpWeight, layer_idx, x, buffers_.wide.address(), config_.ffn_dim)}));
  return Run(BiasGeluLaunch(tuning_, {.source = buffers_.wide.address(),
                                      .bias = bias,
                                      .destination = to,
                                      .cols = config_.ffn_dim,
                                      .stride = stride,
                                      .rows = config_.num_patches(),
                                      .format = context_.format}));
}

absl::Status VisionRecorder::Layer(uint32_t layer_idx) {
  const uint64_t residual = buffers_.residual.address();
  TANDEM_RETURN_IF_ERROR(Attend(layer_idx));
  Product out = PatchProduct(kOutWeight, layer_idx, buffers_.attention.address(),
                             buffers_.sums.address(), config_.hidden_dim);
  out.input = ActivationFormat::kF16;  // whatever the other activations are
  TANDEM_RETURN_IF_ERROR(Multiply({out}));
  TANDEM_RETURN_IF_ERROR(AddNorm(residual, kOutBias, layer_idx, layer_idx));
  TANDEM_RETURN_IF_ERROR(Activate(layer_idx));
  Product down = PatchProduct(kDownWeight, layer_idx, buffers_.activated.address(),
                              buffers_.sums.address(), config_.hidden_dim);
  down.args.x_scale = kGegluHalfScale;  // of float16 alone
  TANDEM_RETURN_IF_ERROR(Multiply({down}));
  return AddNorm(residual, kDownBias, layer_idx, layer_idx + 1);
}

absl::Status VisionRecorder::Finish(uint32_t lane, uint32_t picture) {
  const ExchangeArea& area = context_.exchange->layout().soft_tokens;
  TANDEM_RETURN_IF_ERROR(Run(PoolPatchesLaunch(tuning_, {.source = buffers_.wide.address(),
                                                         .weight = Vector(kProjectionNorm),
                                                         .destination = buffers_.pooled.address(),
                                                         .side = config_.patches_per_side(),
                                                         .pool = config_.pool_size(),
                                                         .cols = config_.hidden_dim,
                                                         .epsilon = config_.layer_norm_eps,
                                                         .format = context_.format})));
  return Multiply(
      {{.weights = &buffers_.projection,
        .input = context_.format,
        .args = {.count = buffers_.num_tokens(),
                 .x = buffers_.pooled.address(),
                 .destination = context_.exchange->Address(lane, area) +
                                uint64_t{picture} * config_.tokens_per_image * area.row_bytes,
                 .out_stride = config_.text_hidden_dim,
                 .max_rows = config_.tokens_per_image}}});
}

}  // namespace tandem::gpu
