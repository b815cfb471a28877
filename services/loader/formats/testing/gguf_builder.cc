#include "services/loader/formats/testing/gguf_builder.h"

#include <algorithm>

#include "services/common/base/check.h"

namespace tandem::loader::testing {
namespace {

constexpr uint32_t kGgmlF32 = 0;
constexpr uint32_t kGgmlF16 = 1;

std::string Counting(size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}

void AddNorm(GgufBuilder& builder, const std::string& name, uint64_t size) {
  builder.tensors.push_back({name, {size}, kGgmlF32, Counting(size * 4), {}});
}

void AddMatrix(GgufBuilder& builder, const std::string& name, uint64_t rows, uint64_t cols) {
  builder.tensors.push_back({name, {cols, rows}, kGgmlF16, Counting(rows * cols * 2), {}});
}

}  // namespace

std::string PackedString(std::string_view text) {
  return Packed(uint64_t{text.size()}) + std::string(text);
}

void GgufBuilder::Set(const std::string& name, GgufType type, std::string value) {
  for (Key& key : keys) {
    if (key.name != name) continue;
    key = {name, static_cast<uint32_t>(type), std::move(value)};
    return;
  }
  keys.push_back({name, static_cast<uint32_t>(type), std::move(value)});
}

void GgufBuilder::SetString(const std::string& name, std::string_view value) {
  Set(name, GgufType::kString, PackedString(value));
}
void GgufBuilder::SetU32(const std::string& name, uint32_t value) {
  Set(name, GgufType::kU32, Packed(value));
}
void GgufBuilder::SetF32(const std::string& name, float value) {
  Set(name, GgufType::kF32, Packed(value));
}
void GgufBuilder::SetBool(const std::string& name, bool value) {
  Set(name, GgufType::kBool, Packed(uint8_t{value}));
}
void GgufBuilder::SetStrings(const std::string& name, const std::vector<std::string>& values) {
  std::string bytes =
      Packed(static_cast<uint32_t>(GgufType::kString)) + Packed(uint64_t{values.size()});
  for (const std::string& value : values) bytes += PackedString(value);
  Set(name, GgufType::kArray, std::move(bytes));
}
void GgufBuilder::SetF32s(const std::string& name, const std::vector<float>& values) {
  Set(name, GgufType::kArray, PackedArray(GgufType::kF32, values));
}
void GgufBuilder::SetI32s(const std::string& name, const std::vector<int32_t>& values) {
  Set(name, GgufType::kArray, PackedArray(GgufType::kI32, values));
}

void GgufBuilder::RemoveKey(const std::string& name) {
  std::erase_if(keys, [&](const Key& key) { return key.name == name; });
}
void GgufBuilder::RemoveTensor(const std::string& name) {
  std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
}

GgufBuilder::Tensor& GgufBuilder::FindTensor(const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  TANDEM_CHECK(found != tensors.end());
  return *found;
}

std::string GgufBuilder::Build() const {
  std::string file = "GGUF" + Packed(version) +
                     Packed(claimed_num_tensors.value_or(tensors.size())) +
                     Packed(claimed_num_keys.value_or(keys.size()));
  for (const Key& key : keys) file += PackedString(key.name) + Packed(key.type) + key.value;
  std::string data;
  for (const Tensor& tensor : tensors) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    file += PackedString(tensor.name) + Packed(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) file += Packed(dim);
    file += Packed(tensor.type) + Packed(tensor.claimed_offset.value_or(data.size()));
    data += tensor.data;
  }
  file.resize((file.size() + alignment - 1) / alignment * alignment);
  return file + data;
}

std::vector<SmallPiece> SmallPieces() {
  return {{"<pad>", 0, 3},
          {"<eos>", 0, 3},
          {"<bos>", 0, 3},
          {"<unk>", 0, 2},
          {"<start_of_turn>", 0, 4},
          {"<end_of_turn>", 0, 4},
          {"<0x0A>", 0, 6},
          {"a", -1, 1},
          {"b", -2, 1},
          {"ab", -0.5f, 1}};
}

GgufBuilder SmallGguf() {
  GgufBuilder builder;
  builder.SetString("general.architecture", "gemma3");
  builder.SetString("general.name", "small");
  builder.SetU32("gemma3.block_count", 1);
  builder.SetU32("gemma3.context_length", 64);
  builder.SetU32("gemma3.embedding_length", 8);
  builder.SetU32("gemma3.feed_forward_length", 8);
  builder.SetU32("gemma3.attention.head_count", 2);
  builder.SetU32("gemma3.attention.head_count_kv", 1);
  builder.SetU32("gemma3.attention.key_length", 8);
  builder.SetU32("gemma3.attention.value_length", 8);
  builder.SetU32("gemma3.attention.sliding_window", 16);
  builder.SetF32("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
  builder.SetF32("gemma3.rope.freq_base", 1e6f);
  builder.SetString("tokenizer.ggml.model", "llama");
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (const SmallPiece& piece : SmallPieces()) {
    tokens.push_back(piece.piece);
    scores.push_back(piece.score);
    types.push_back(piece.type);
  }
  builder.SetStrings("tokenizer.ggml.tokens", tokens);
  builder.SetF32s("tokenizer.ggml.scores", scores);
  builder.SetI32s("tokenizer.ggml.token_type", types);
  builder.SetU32("tokenizer.ggml.bos_token_id", 2);
  builder.SetU32("tokenizer.ggml.eos_token_id", 1);
  builder.SetBool("tokenizer.ggml.add_bos_token", true);
  builder.SetString("tokenizer.chat_template", "{{ bos_token }}");

  AddMatrix(builder, "token_embd.weight", tokens.size(), 8);
  AddNorm(builder, "output_norm.weight", 8);
  for (const char* name : {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"}) {
    AddNorm(builder, std::string("blk.0.") + name + ".weight", 8);
  }
  AddNorm(builder, "blk.0.attn_q_norm.weight", 8);
  AddNorm(builder, "blk.0.attn_k_norm.weight", 8);
  for (const char* name : {"attn_k", "attn_v", "ffn_gate", "ffn_up", "ffn_down"}) {
    AddMatrix(builder, std::string("blk.0.") + name + ".weight", 8, 8);
  }
  AddMatrix(builder, "blk.0.attn_q.weight", 16, 8);
  AddMatrix(builder, "blk.0.attn_output.weight", 8, 16);
  return builder;
}

}  // namespace tandem::loader::testing
