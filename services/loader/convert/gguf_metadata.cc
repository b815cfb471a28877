#include "services/loader/convert/gguf_metadata.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/tensor/format_table.h"

namespace tandem::loader {
namespace {

// enum llama_ftype, what most of a file's matrices are in.
uint32_t FileType(const WeightMix& mix) {
  const FormatRow& row = RowOf(mix.type);
  return mix.mixed ? row.mixed_file_type : row.file_type;
}

std::optional<uint32_t> FindPiece(const Vocabulary& vocabulary, std::string_view piece) {
  const auto found = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), piece);
  if (found == vocabulary.pieces.end()) return std::nullopt;
  return static_cast<uint32_t>(found - vocabulary.pieces.begin());
}

void AddConfig(const ModelConfig& config, GgufHeaderWriter& header) {
  header.AddU32("gemma3.context_length", config.context_len);
  header.AddU32("gemma3.embedding_length", config.hidden_dim);
  header.AddU32("gemma3.block_count", config.num_layers);
  header.AddU32("gemma3.feed_forward_length", config.ffn_dim);
  header.AddU32("gemma3.attention.head_count", config.num_heads);
  header.AddU32("gemma3.attention.head_count_kv", config.num_kv_heads);
  header.AddU32("gemma3.attention.key_length", config.head_dim);
  header.AddU32("gemma3.attention.value_length", config.head_dim);
  header.AddF32("gemma3.attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  header.AddF32("gemma3.attention.scale", config.attention_scale);
  header.AddU32("gemma3.attention.sliding_window", config.sliding_window);
  header.AddF32("gemma3.rope.freq_base", config.rope_theta_global);
  header.AddF32("gemma3.rope.freq_base_swa", config.rope_theta_local);
  if (config.rope_scale_global != 1.0f) {
    header.AddString("gemma3.rope.scaling.type", "linear");
    header.AddF32("gemma3.rope.scaling.factor", config.rope_scale_global);
  }
  // Readers take every sixth layer for a global one; the key says it where that is not so.
  if (config.layer_is_global != EverySixthGlobal(config.num_layers)) {
    std::vector<bool> slides = config.layer_is_global;
    slides.flip();
    header.AddBools("gemma3.attention.sliding_window_pattern", slides);
  }
}

// The end of sequence and, beside it, the end of turn.  Readers know <eos> and <end_of_turn> without
// a key, so another stop token takes the place of <end_of_turn>.
absl::Status AddStopTokens(const ModelSource& source, GgufHeaderWriter& header) {
  std::vector<int32_t> stops = source.config().stop_token_ids;
  const Vocabulary& vocabulary = source.vocabulary();
  const auto take = [&stops](std::optional<uint32_t> wanted) -> std::optional<uint32_t> {
    const auto found = wanted.has_value()
                           ? std::find(stops.begin(), stops.end(), static_cast<int32_t>(*wanted))
                           : stops.end();
    if (found == stops.end()) return std::nullopt;
    stops.erase(found);
    return wanted;
  };
  const auto first = [&stops]() -> std::optional<uint32_t> {
    if (stops.empty()) return std::nullopt;
    return static_cast<uint32_t>(stops.front());
  };
  std::optional<uint32_t> eot = take(FindPiece(vocabulary, "<end_of_turn>"));
  std::optional<uint32_t> eos = take(FindPiece(vocabulary, "<eos>"));
  if (!eos.has_value()) eos = take(first());
  if (!eot.has_value() || !stops.empty()) eot = take(first());
  if (!stops.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("stop tokens %s: a GGUF file holds <eos>, <end_of_turn> and another",
                        absl::StrJoin(source.config().stop_token_ids, ", ")));
  }
  if (eos.has_value()) header.AddU32("tokenizer.ggml.eos_token_id", *eos);
  if (eot.has_value()) header.AddU32("tokenizer.ggml.eot_token_id", *eot);
  return absl::OkStatus();
}

absl::Status AddTokenizer(const ModelSource& source, GgufHeaderWriter& header) {
  const Vocabulary& vocabulary = source.vocabulary();
  header.AddString("tokenizer.ggml.model", "llama");
  header.AddString("tokenizer.ggml.pre", "default");
  header.AddStrings("tokenizer.ggml.tokens", vocabulary.pieces);
  header.AddF32s("tokenizer.ggml.scores", vocabulary.scores);
  std::vector<int32_t> types;
  for (const TokenType type : vocabulary.types) types.push_back(static_cast<int32_t>(type));
  header.AddI32s("tokenizer.ggml.token_type", types);
  if (source.config().bos_token_id >= 0) {
    header.AddU32("tokenizer.ggml.bos_token_id",
                  static_cast<uint32_t>(source.config().bos_token_id));
  }
  if (const auto pad = FindPiece(vocabulary, "<pad>")) {
    header.AddU32("tokenizer.ggml.padding_token_id", *pad);
  }
  if (const auto unknown = FindPiece(vocabulary, "<unk>")) {
    header.AddU32("tokenizer.ggml.unknown_token_id", *unknown);
  }
  header.AddBool("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  header.AddBool("tokenizer.ggml.add_eos_token", false);
  header.AddBool("tokenizer.ggml.add_space_prefix", false);
  if (!source.chat_template().empty()) {
    header.AddString("tokenizer.chat_template", source.chat_template());
  }
  return AddStopTokens(source, header);
}

}  // namespace

absl::Status AddGgufMetadata(const ModelSource& source, std::string_view name, const WeightMix& mix,
                             GgufHeaderWriter& header) {
  header.AddString("general.architecture", "gemma3");
  header.AddString("general.type", "model");
  header.AddString("general.name", name);
  header.AddU32("general.file_type", FileType(mix));
  header.AddU32("general.quantization_version", 2);
  const SamplingDefaults& sampling = source.sampling_defaults();
  if (sampling.top_k) header.AddU32("general.sampling.top_k", *sampling.top_k);
  if (sampling.top_p) header.AddF32("general.sampling.top_p", *sampling.top_p);
  if (sampling.temperature) header.AddF32("general.sampling.temp", *sampling.temperature);
  AddConfig(source.config(), header);
  return AddTokenizer(source, header);
}

}  // namespace tandem::loader
