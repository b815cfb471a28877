// For tests: a model that exists in memory alone, with random weights in any mix of formats.
#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "services/common/tensor/quant.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

inline ModelConfig FakeConfig() {
  ModelConfig config;
  config.num_layers = 2;
  config.hidden_dim = 256;
  config.ffn_dim = 512;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.vocab_size = 307;  // a prime
  config.context_len = 512;
  config.sliding_window = 128;
  config.layer_is_global = EverySixthGlobal(2);
  config.attention_scale = 0.125f;
  config.embedding_scale = 16.0f;
  return config;
}

class FakeModelSource : public ModelSource {
 public:
  // `format_of` picks the format of each matrix; norms are f32 with offset 1.
  using FormatOf = std::function<DType(WeightRole, SourcePart)>;
  FakeModelSource(ModelConfig config, bool with_head, const FormatOf& format_of)
      : config_(std::move(config)) {
    const uint64_t hidden = config_.hidden_dim, ffn = config_.ffn_dim;
    Add(WeightRole::kEmbedding, 0, SourcePart::kWhole, config_.vocab_size, format_of);
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      for (const auto& [part, rows] :
           {std::pair{SourcePart::kV, config_.kv_dim()}, std::pair{SourcePart::kQ, config_.q_dim()},
            std::pair{SourcePart::kK, config_.kv_dim()}}) {
        Add(WeightRole::kQkv, layer, part, rows, format_of);
      }
      Add(WeightRole::kGateUp, layer, SourcePart::kUp, ffn, format_of);
      Add(WeightRole::kGateUp, layer, SourcePart::kGate, ffn, format_of);
      Add(WeightRole::kDown, layer, SourcePart::kWhole, hidden, format_of);
      Add(WeightRole::kOut, layer, SourcePart::kWhole, hidden, format_of);
      for (const WeightRole role :
           {WeightRole::kInputNorm, WeightRole::kQNorm, WeightRole::kKNorm,
            WeightRole::kPostAttentionNorm, WeightRole::kPreFfnNorm, WeightRole::kPostFfnNorm}) {
        Add(role, layer, SourcePart::kWhole, 1, format_of);
      }
    }
    Add(WeightRole::kFinalNorm, 0, SourcePart::kWhole, 1, format_of);
    if (with_head) Add(WeightRole::kHead, 0, SourcePart::kWhole, config_.vocab_size, format_of);
  }

  std::string_view format() const override { return "fake"; }
  const ModelConfig& config() const override { return config_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  const std::string& chat_template() const override { return empty_; }
  const SamplingDefaults& sampling_defaults() const override { return defaults_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  const std::vector<SkippedTensor>& skipped() const override { return skipped_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const override {
    return metadata_;
  }
  const std::string& content_id() const override { return empty_; }
  absl::Status Read(const SourceTensor& tensor, uint64_t offset,
                    std::span<std::byte> out) const override {
    if (!read_error.ok()) return read_error;
    const std::vector<std::byte>& bytes = data_[tensor.file_offset];
    if (offset > bytes.size() || out.size() > bytes.size() - offset) {
      return absl::OutOfRangeError(absl::StrFormat("%s: read past the end", tensor.name));
    }
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return absl::OkStatus();
  }

  // Changes the tensors or what Read answers.
  std::vector<SourceTensor>& mutable_tensors() { return tensors_; }
  std::vector<std::byte>& mutable_data(size_t tensor) { return data_[tensor]; }
  absl::Status read_error;

 private:
  void Add(WeightRole role, uint32_t layer, SourcePart part, uint64_t rows,
           const FormatOf& format_of) {
    const uint64_t cols = WeightShape(role, config_).cols;
    const bool norm = rows == 1;
    SourceTensor tensor;
    tensor.dtype = norm ? DType::kF32 : format_of(role, part);
    tensor.name = absl::StrFormat("fake.%d.%s.%d", layer, std::string(WeightRoleName(role)),
                                  static_cast<int>(part));
    tensor.shape = {rows, cols};
    tensor.num_bytes = rows * RowBytes(tensor.dtype, cols);
    tensor.file_offset = data_.size();
    tensor.role = role;
    tensor.layer_idx = layer;
    tensor.part = part;
    tensor.norm_offset = norm ? 1.0f : 0.0f;
    std::vector<std::byte> bytes(tensor.num_bytes);
    std::vector<float> numbers(cols);
    std::normal_distribution<float> distribution(0.0f, 0.02f);
    for (uint64_t row = 0; row < rows; ++row) {
      for (float& number : numbers) number = distribution(random_);
      QuantizeFileRow(tensor.dtype, numbers,
                      std::span(bytes).subspan(row * RowBytes(tensor.dtype, cols),
                                               RowBytes(tensor.dtype, cols)));
    }
    data_.push_back(std::move(bytes));
    tensors_.push_back(std::move(tensor));
  }

  ModelConfig config_;
  Vocabulary vocabulary_;
  std::string empty_;
  SamplingDefaults defaults_;
  std::vector<std::string> warnings_;
  std::vector<SourceTensor> tensors_;
  std::vector<SkippedTensor> skipped_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<std::vector<std::byte>> data_;
  std::mt19937 random_{7};
};

}  // namespace tandem::loader
