#include "services/loader/formats/testing/release_builder.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "services/common/base/check.h"

namespace tandem::loader::testing {
namespace {

constexpr const char* kConfig = R"({
  "model_type": "gemma3_text", "vocab_size": 10, "hidden_size": 8, "intermediate_size": 8,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
  "sliding_window": 16, "query_pre_attn_scalar": 4, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-06, "eos_token_id": 1, "bos_token_id": 2, "rope_theta": 1000000,
  "rope_local_base_freq": 10000, "rope_scaling": null})";

StoredTensor Bf16Tensor(const std::string& name, std::vector<uint64_t> shape) {
  const uint64_t num_elements =
      std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
  std::string data(num_elements * 2, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i);
  return {name, "BF16", std::move(shape), std::move(data)};
}

}  // namespace

std::string TemporaryFolder::Write(const std::string& name, std::string_view bytes) const {
  const std::filesystem::path file = std::filesystem::path(path()) / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
  return file.string();
}

std::string SafetensorsFile(std::string header, std::string_view data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return Packed(uint64_t{header.size()}) + header + std::string(data);
}

std::string SafetensorsFile(const std::vector<StoredTensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const StoredTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data += tensor.data;
  }
  return SafetensorsFile(header.dump(), data);
}

std::string WireVarint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string WireField(uint32_t number, uint64_t value) {
  return WireVarint(uint64_t{number} << 3) + WireVarint(value);
}
std::string WireField(uint32_t number, float value) {
  return WireVarint(uint64_t{number} << 3 | 5) + Packed(value);
}
std::string WireField(uint32_t number, std::string_view bytes) {
  return WireVarint(uint64_t{number} << 3 | 2) + WireVarint(bytes.size()) + std::string(bytes);
}
std::string WirePiece(const SmallPiece& piece) {
  return WireField(1, WireField(1, piece.piece) + WireField(2, piece.score) +
                          WireField(3, static_cast<uint64_t>(int64_t{piece.type})));
}
std::string WireSettings() {
  return WireField(2, WireField(3, uint64_t{2}) + WireField(35, uint64_t{1}) +
                          WireField(40, uint64_t{3}) + WireField(41, uint64_t{2}) +
                          WireField(42, uint64_t{1})) +
         WireField(3, WireField(1, "identity") + WireField(3, uint64_t{0}));
}
std::string TokenizerModelFile(const std::vector<SmallPiece>& pieces) {
  std::string bytes;
  for (const SmallPiece& piece : pieces) bytes += WirePiece(piece);
  return bytes + WireSettings();
}

StoredTensor& Release::FindTensor(const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const StoredTensor& tensor) { return tensor.name == name; });
  TANDEM_CHECK(found != tensors.end());
  return *found;
}

void Release::Rename(const std::string& prefix) {
  for (StoredTensor& tensor : tensors) {
    if (tensor.name.starts_with("model.")) tensor.name = prefix + tensor.name.substr(6);
  }
}

void Release::Write(const TemporaryFolder& folder) const {
  for (const auto& [name, content] : files) folder.Write(name, content);
  folder.Write("model.safetensors", SafetensorsFile(tensors));
}

void Release::WriteSharded(const TemporaryFolder& folder, size_t num_shards) const {
  for (const auto& [name, content] : files) folder.Write(name, content);
  nlohmann::json weight_map;
  std::vector<std::vector<StoredTensor>> shards(num_shards);
  const auto name_of = [&](size_t shard) {
    return absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, num_shards);
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    shards[i % num_shards].push_back(tensors[i]);
    weight_map[tensors[i].name] = name_of(i % num_shards);
  }
  for (size_t i = 0; i < num_shards; ++i) folder.Write(name_of(i), SafetensorsFile(shards[i]));
  const nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}};
  folder.Write("model.safetensors.index.json", index.dump());
}

Release SmallRelease() {
  Release release;
  release.files["config.json"] = kConfig;
  release.files["generation_config.json"] =
      R"({"eos_token_id": [1, 5], "top_k": 64, "top_p": 0.95, "temperature": 0.7})";
  release.files["tokenizer.model"] = TokenizerModelFile(SmallPieces());
  release.files["tokenizer_config.json"] =
      R"({"add_bos_token": true, "chat_template": "{{ bos_token }}"})";
  release.tensors.push_back(Bf16Tensor("model.embed_tokens.weight", {10, 8}));
  release.tensors.push_back(Bf16Tensor("model.norm.weight", {8}));
  const std::string layer = "model.layers.0.";
  for (const char* name : {"input_layernorm", "post_attention_layernorm",
                           "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    release.tensors.push_back(Bf16Tensor(layer + name + ".weight", {8}));
  }
  for (const char* name : {"q_norm", "k_norm"}) {
    release.tensors.push_back(Bf16Tensor(layer + "self_attn." + name + ".weight", {8}));
  }
  for (const char* name :
       {"self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    release.tensors.push_back(Bf16Tensor(layer + name + ".weight", {8, 8}));
  }
  release.tensors.push_back(Bf16Tensor(layer + "self_attn.q_proj.weight", {16, 8}));
  release.tensors.push_back(Bf16Tensor(layer + "self_attn.o_proj.weight", {8, 16}));
  return release;
}

}  // namespace tandem::loader::testing
