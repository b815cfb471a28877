#include "services/loader/synthetic/synthetic_model.h"

#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/synthetic/synthetic_spec.h"
#include "services/loader/synthetic/synthetic_weights.h"

namespace tandem::loader {
namespace {

// Part of every content id: raise it when the same name gives other weights.
constexpr int kGeneration = 1;

// Root mean squares: of the residual as it is embedded, of what a stage adds to it, of logits.
// Were the embedding not small beside 2 x layers additions, the head, which is the same matrix,
// would find the input's own token again and nothing else.
constexpr float kEmbedded = 0.1f;
constexpr float kAdded = 1.0f;
constexpr float kLogits = 3.0f;
constexpr float kProduct = 1.2f;  // of a product with a normalised row

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// A word for every id: two to four syllables after a space.
std::string MadeUpWord(uint32_t id) {
  static constexpr std::string_view kConsonants = "bdfgklmnprstvz";
  static constexpr std::string_view kVowels = "aeiou";
  std::string word(kSpace);
  for (uint32_t rest = id, i = 0; i < 2 || rest > 0; ++i) {
    word += kConsonants[rest % kConsonants.size()];
    rest /= kConsonants.size();
    word += kVowels[rest % kVowels.size()];
    rest /= kVowels.size();
  }
  return word;
}

Vocabulary MakeVocabulary(uint32_t size) {
  Vocabulary vocabulary;
  const auto add = [&vocabulary](std::string piece, TokenType type) {
    vocabulary.scores.push_back(-static_cast<float>(vocabulary.pieces.size()));
    vocabulary.pieces.push_back(std::move(piece));
    vocabulary.types.push_back(type);
  };
  for (const char* piece : {"<pad>", "<eos>", "<bos>"}) add(piece, TokenType::kControl);
  add("<unk>", TokenType::kUnknown);
  for (const char* piece : {"<start_of_turn>", "<end_of_turn>"}) add(piece, TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) add(absl::StrFormat("<0x%02X>", byte), TokenType::kByte);
  add(std::string(kSpace), TokenType::kNormal);
  while (vocabulary.pieces.size() < size) {
    add(MadeUpWord(static_cast<uint32_t>(vocabulary.pieces.size())), TokenType::kNormal);
  }
  return vocabulary;
}

class SyntheticModel : public ModelSource {
 public:
  explicit SyntheticModel(SyntheticSpec spec)
      : spec_(std::move(spec)), vocabulary_(MakeVocabulary(spec_.config.vocab_size)) {
    const std::string identity = absl::StrFormat("%d %s", kGeneration, spec_.name);
    const XXH128_hash_t hash = XXH3_128bits(identity.data(), identity.size());
    content_id_ = absl::StrFormat("%016x%016x", hash.high64, hash.low64);
    metadata_ = {{"name", spec_.name}};
    AddTensors();
  }

  std::string_view format() const override { return "synthetic"; }
  const ModelConfig& config() const override { return spec_.config; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  const std::string& chat_template() const override { return chat_template_; }
  const SamplingDefaults& sampling_defaults() const override { return sampling_defaults_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  const std::vector<SkippedTensor>& skipped() const override { return skipped_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return metadata_;
  }
  const std::string& content_id() const override { return content_id_; }

  absl::Status Read(const SourceTensor& tensor, uint64_t offset,
                    std::span<std::byte> out) const override {
    if (offset > tensor.num_bytes || out.size() > tensor.num_bytes - offset) {
      return absl::OutOfRangeError(absl::StrFormat("tensor %s: %d bytes at %d asked, it has %d",
                                                   tensor.name, out.size(), offset,
                                                   tensor.num_bytes));
    }
    ContentOf(tensor).Fill(offset, out);
    return absl::OkStatus();
  }

 private:
  void AddTensors() {
    const uint64_t ffn = spec_.config.ffn_dim;
    AddMatrix("token_embd", WeightRole::kEmbedding, 0, SourcePart::kWhole, spec_.config.vocab_size);
    AddVector("output_norm", WeightRole::kFinalNorm, 0);
    for (uint32_t layer = 0; layer < spec_.config.num_layers; ++layer) {
      AddVector("attn_norm", WeightRole::kInputNorm, layer);
      AddMatrix("attn_q", WeightRole::kQkv, layer, SourcePart::kQ, spec_.config.q_dim());
      AddMatrix("attn_k", WeightRole::kQkv, layer, SourcePart::kK, spec_.config.kv_dim());
      AddMatrix("attn_v", WeightRole::kQkv, layer, SourcePart::kV, spec_.config.kv_dim());
      AddVector("attn_q_norm", WeightRole::kQNorm, layer);
      AddVector("attn_k_norm", WeightRole::kKNorm, layer);
      AddMatrix("attn_output", WeightRole::kOut, layer, SourcePart::kWhole,
                spec_.config.hidden_dim);
      AddVector("post_attention_norm", WeightRole::kPostAttentionNorm, layer);
      AddVector("ffn_norm", WeightRole::kPreFfnNorm, layer);
      AddMatrix("ffn_gate", WeightRole::kGateUp, layer, SourcePart::kGate, ffn);
      AddMatrix("ffn_up", WeightRole::kGateUp, layer, SourcePart::kUp, ffn);
      AddMatrix("ffn_down", WeightRole::kDown, layer, SourcePart::kWhole, spec_.config.hidden_dim);
      AddVector("post_ffw_norm", WeightRole::kPostFfnNorm, layer);
    }
  }

  void AddMatrix(const char* name, WeightRole role, uint32_t layer, SourcePart part,
                 uint64_t rows) {
    const uint64_t cols = WeightShape(role, spec_.config).cols;
    Add(name, role, layer, part, {rows, cols},
        spec_.mix.FormatOf(role, part, layer, spec_.config.num_layers, cols));
  }

  void AddVector(const char* name, WeightRole role, uint32_t layer) {
    Add(name, role, layer, SourcePart::kWhole, WeightShape(role, spec_.config), DType::kF32);
  }

  // As a GGUF file would have it, without gaps.
  void Add(const char* name, WeightRole role, uint32_t layer, SourcePart part, Shape2D shape,
           DType dtype) {
    SourceTensor tensor;
    tensor.name = IsPerLayer(role) ? absl::StrFormat("blk.%d.%s.weight", layer, name)
                                   : absl::StrFormat("%s.weight", name);
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.file_offset = next_offset_;
    tensor.num_bytes = shape.rows * RowBytes(dtype, shape.cols);
    tensor.role = role;
    tensor.layer_idx = layer;
    tensor.part = part;
    next_offset_ += tensor.num_bytes;
    tensors_.push_back(std::move(tensor));
  }

  SyntheticTensor ContentOf(const SourceTensor& tensor) const {
    uint64_t key = MixKeys(spec_.seed, static_cast<uint64_t>(tensor.role));
    key = MixKeys(key, tensor.layer_idx);
    key = MixKeys(key, static_cast<uint64_t>(tensor.part));
    switch (tensor.role) {
      case WeightRole::kEmbedding:
        // Rows are multiplied by embedding_scale, the root of the columns.
        return SyntheticTensor::Matrix(tensor.dtype, key, PerColumn(kEmbedded, tensor));
      case WeightRole::kFinalNorm:
        return SyntheticTensor::Vector(key, kLogits / kEmbedded);
      case WeightRole::kPostAttentionNorm:
      case WeightRole::kPostFfnNorm:
        return SyntheticTensor::Vector(key, kAdded);
      default:
        break;
    }
    if (IsNorm(tensor.role)) return SyntheticTensor::Vector(key, 1.0f);
    return SyntheticTensor::Matrix(tensor.dtype, key, PerColumn(kProduct, tensor));
  }

  static float PerColumn(float value, const SourceTensor& tensor) {
    return value / std::sqrt(static_cast<float>(tensor.shape.cols));
  }

  const SyntheticSpec spec_;
  const Vocabulary vocabulary_;
  std::string content_id_;
  const std::string chat_template_;
  const SamplingDefaults sampling_defaults_;
  const std::vector<std::string> warnings_;
  std::vector<SourceTensor> tensors_;
  const std::vector<SkippedTensor> skipped_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  uint64_t next_offset_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSource>> OpenSynthetic(std::string_view name) {
  TANDEM_ASSIGN_OR_RETURN(SyntheticSpec spec, ParseSyntheticName(name));
  return std::make_unique<SyntheticModel>(std::move(spec));
}

}  // namespace tandem::loader
