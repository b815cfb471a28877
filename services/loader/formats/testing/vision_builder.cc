#include "services/loader/formats/testing/vision_builder.h"

#include <span>
#include <string_view>
#include <utility>

#include "services/common/tensor/quant.h"
#include "services/loader/formats/ggml_types.h"

namespace tandem::loader::testing {
namespace {

constexpr uint32_t kGgmlF32 = 0;

// Row-major values in a format, [rows, cols].
std::string Values(DType dtype, uint64_t rows, uint64_t cols) {
  std::string bytes;
  for (uint64_t r = 0; r < rows; ++r) {
    std::vector<float> row;
    for (uint64_t c = 0; c < cols; ++c) row.push_back(SmallVisionValue(r * cols + c));
    std::string packed(RowBytes(dtype, cols), '\0');
    QuantizeFileRow(dtype, row, std::as_writable_bytes(std::span(packed)));
    bytes += packed;
  }
  return bytes;
}

// Names, and dimensions with the slowest first.
struct Named {
  std::string gguf;
  std::string safetensors;
  std::vector<uint64_t> shape;
};

std::vector<Named> AllTensors(const VisionConfig& c) {
  const uint64_t hidden = c.hidden_dim;
  const uint64_t ffn = c.ffn_dim;
  std::vector<Named> all = {
      {"v.patch_embd.weight",
       "embeddings.patch_embedding.weight",
       {hidden, 3, c.patch_size, c.patch_size}},
      {"v.patch_embd.bias", "embeddings.patch_embedding.bias", {hidden}},
      {"v.position_embd.weight", "embeddings.position_embedding.weight", {c.num_patches(), hidden}},
      {"v.post_ln.weight", "post_layernorm.weight", {hidden}},
      {"v.post_ln.bias", "post_layernorm.bias", {hidden}},
      {"mm.soft_emb_norm.weight", "mm_soft_emb_norm.weight", {hidden}},
      {"mm.input_projection.weight", "mm_input_projection_weight", {hidden, c.text_hidden_dim}}};
  for (uint32_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string gguf = "v.blk." + std::to_string(layer) + ".";
    const std::string safetensors = "encoder.layers." + std::to_string(layer) + ".";
    const auto add = [&](const char* a, const char* b, std::vector<uint64_t> shape) {
      all.push_back({gguf + a + ".weight", safetensors + b + ".weight", shape});
      all.push_back({gguf + a + ".bias", safetensors + b + ".bias", {shape[0]}});
    };
    add("ln1", "layer_norm1", {hidden});
    add("attn_q", "self_attn.q_proj", {hidden, hidden});
    add("attn_k", "self_attn.k_proj", {hidden, hidden});
    add("attn_v", "self_attn.v_proj", {hidden, hidden});
    add("attn_out", "self_attn.out_proj", {hidden, hidden});
    add("ln2", "layer_norm2", {hidden});
    add("ffn_up", "mlp.fc1", {ffn, hidden});
    add("ffn_down", "mlp.fc2", {hidden, ffn});
  }
  return all;
}

bool IsProjector(const Named& tensor) { return tensor.gguf.starts_with("mm."); }

}  // namespace

VisionConfig SmallVisionConfig() {
  VisionConfig config;
  config.image_size = 8;
  config.patch_size = 2;
  config.num_layers = 2;
  config.hidden_dim = 32;
  config.ffn_dim = 64;
  config.num_heads = 2;
  config.tokens_per_image = 4;
  config.text_hidden_dim = 8;
  return config;
}

float SmallVisionValue(uint64_t i) { return static_cast<float>(static_cast<int>(i % 7) - 3) / 4; }

GgufBuilder SmallMmproj(uint32_t matrix_type) { return Mmproj(SmallVisionConfig(), matrix_type); }

GgufBuilder Mmproj(const VisionConfig& config, uint32_t matrix_type) {
  GgufBuilder builder;
  builder.SetString("general.architecture", "clip");
  builder.SetBool("clip.has_vision_encoder", true);
  builder.SetString("clip.projector_type", "gemma3");
  builder.SetU32("clip.vision.image_size", config.image_size);
  builder.SetU32("clip.vision.patch_size", config.patch_size);
  builder.SetU32("clip.vision.embedding_length", config.hidden_dim);
  builder.SetU32("clip.vision.feed_forward_length", config.ffn_dim);
  builder.SetU32("clip.vision.block_count", config.num_layers);
  builder.SetU32("clip.vision.attention.head_count", config.num_heads);
  builder.SetU32("clip.vision.projection_dim", config.text_hidden_dim);
  builder.SetU32("clip.vision.projector.scale_factor", config.pool_size());
  builder.SetF32("clip.vision.attention.layer_norm_epsilon", 1e-6f);
  builder.SetF32s("clip.vision.image_mean", {0.5f, 0.5f, 0.5f});
  builder.SetF32s("clip.vision.image_std", {0.5f, 0.5f, 0.5f});
  builder.SetBool("clip.use_gelu", true);
  for (const Named& tensor : AllTensors(config)) {
    const bool matrix =
        tensor.shape.size() == 2 && !tensor.gguf.starts_with("v.position") && !IsProjector(tensor);
    const uint32_t type = matrix ? matrix_type : kGgmlF32;
    uint64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    builder.tensors.push_back({tensor.gguf,
                               {tensor.shape.rbegin(), tensor.shape.rend()},
                               type,
                               Values(*DTypeOfGgml(type), rows, tensor.shape.back()),
                               {}});
  }
  return builder;
}

void SwapFfnNames(GgufBuilder& builder) {
  for (GgufBuilder::Tensor& tensor : builder.tensors) {
    for (const auto& [from, to] : {std::pair{"ffn_up", "ffn_down"}, {"ffn_down", "ffn_up"}}) {
      const size_t at = tensor.name.find(from);
      if (at == std::string::npos) continue;
      tensor.name.replace(at, std::string_view(from).size(), to);
      break;
    }
  }
}

Release SmallVisionRelease() {
  Release release = SmallRelease();
  const std::string text = release.files["config.json"];
  release.files["config.json"] = R"({"model_type": "gemma3", "mm_tokens_per_image": 4,
    "text_config": )" + text + R"(, "vision_config": {"model_type": "siglip_vision_model",
    "image_size": 8, "patch_size": 2, "num_hidden_layers": 2, "hidden_size": 32,
    "intermediate_size": 64, "num_attention_heads": 2, "vision_use_head": false}})";
  release.files["preprocessor_config.json"] = R"({"do_resize": true, "resample": 2,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    "rescale_factor": 0.00392156862745098, "size": {"height": 8, "width": 8}})";
  release.Rename("language_model.model.");
  for (const Named& tensor : AllTensors(SmallVisionConfig())) {
    uint64_t rows = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    release.tensors.push_back(
        {(IsProjector(tensor) ? "multi_modal_projector." : "vision_tower.vision_model.") +
             tensor.safetensors,
         "BF16", tensor.shape, Values(DType::kBf16, rows, tensor.shape.back())});
  }
  return release;
}

}  // namespace tandem::loader::testing
