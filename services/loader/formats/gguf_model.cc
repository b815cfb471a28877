#include "services/loader/formats/gguf_model.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/printable.h"
#include "services/loader/formats/vocabulary_builder.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

absl::Status MissingKey(std::string_view key) {
  return absl::InvalidArgumentError(absl::StrFormat("key %s is missing", std::string(key)));
}

absl::Status RequireUnsigned(const GgufHeader& header, std::string_view key, uint32_t& out) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<uint64_t> value, header.Unsigned(key, kMaxUint32));
  if (!value.has_value()) return MissingKey(key);
  out = static_cast<uint32_t>(*value);
  return absl::OkStatus();
}

absl::Status OptionalFloat(const GgufHeader& header, std::string_view key, float& out) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<float> value, header.Float(key));
  if (value.has_value()) out = *value;
  return absl::OkStatus();
}

// An array key of exactly this element type; nullptr when absent.
absl::StatusOr<const GgufValue*> FindArray(const GgufHeader& header, std::string_view key,
                                           std::initializer_list<GgufType> element_types) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return nullptr;
  if (value->type == GgufType::kArray) {
    for (const GgufType type : element_types) {
      if (value->element_type == type) return value;
    }
  }
  return FormatError(
      value->offset,
      absl::StrFormat("%s: expected an array of %s, file has %s of %s", std::string(key),
                      std::string(GgufTypeName(*element_types.begin())),
                      std::string(GgufTypeName(value->type)),
                      std::string(GgufTypeName(value->element_type))));
}

absl::Status CheckArchitecture(const GgufHeader& header) {
  TANDEM_ASSIGN_OR_RETURN(const auto architecture, header.String("general.architecture"));
  if (!architecture.has_value()) return MissingKey("general.architecture");
  if (*architecture != "gemma3") {
    return FormatError(header.Find("general.architecture")->offset,
                       absl::StrFormat("architecture %s is not supported; gemma3 is",
                                       architecture->substr(0, 40)));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto splits, header.Unsigned("split.count", kMaxUint32));
  if (splits.value_or(1) > 1) {
    return FormatError(header.Find("split.count")->offset,
                       absl::StrFormat("one of %d parts; merge them first (llama-gguf-split "
                                       "--merge)",
                                       *splits));
  }
  for (const std::string_view key :
       {"gemma3.attn_logit_softcapping", "gemma3.final_logit_softcapping"}) {
    TANDEM_ASSIGN_OR_RETURN(const auto cap, header.Float(key));
    if (cap.value_or(0) != 0) {
      return FormatError(
          header.Find(key)->offset,
          absl::StrFormat("%s is %g: soft capping is no part of Gemma 3", std::string(key), *cap));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadLayerPattern(const GgufHeader& header, ModelConfig& config) {
  constexpr std::string_view kKey = "gemma3.attention.sliding_window_pattern";
  const GgufValue* value = header.Find(kKey);
  config.layer_is_global = EverySixthGlobal(config.num_layers);
  if (value == nullptr) return absl::OkStatus();
  if (value->type != GgufType::kArray) {
    TANDEM_ASSIGN_OR_RETURN(const auto pattern, header.Unsigned(kKey, kMaxUint32));
    config.layer_is_global = EverySixthGlobal(config.num_layers, static_cast<uint32_t>(*pattern));
    return absl::OkStatus();
  }
  // One bool a layer: whether it slides.
  TANDEM_RETURN_IF_ERROR(FindArray(header, kKey, {GgufType::kBool}).status());
  if (value->count != config.num_layers) {
    return FormatError(value->offset,
                       absl::StrFormat("%s has %d entries for %d layers", std::string(kKey),
                                       value->count, config.num_layers));
  }
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    config.layer_is_global[i] = value->Number(i) == 0;
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufHeader& header, ModelConfig& config) {
  TANDEM_RETURN_IF_ERROR(OptionalFloat(header, "gemma3.rope.freq_base", config.rope_theta_global));
  TANDEM_RETURN_IF_ERROR(
      OptionalFloat(header, "gemma3.rope.freq_base_swa", config.rope_theta_local));
  TANDEM_ASSIGN_OR_RETURN(const auto scaling, header.String("gemma3.rope.scaling.type"));
  const std::string kind = scaling.value_or("linear");
  if (kind == "none") return absl::OkStatus();
  if (kind != "linear") {
    return FormatError(header.Find("gemma3.rope.scaling.type")->offset,
                       absl::StrFormat("gemma3.rope.scaling.type %s is not supported; linear and "
                                       "none are",
                                       kind.substr(0, 40)));
  }
  return OptionalFloat(header, "gemma3.rope.scaling.factor", config.rope_scale_global);
}

absl::Status ReadConfig(const GgufHeader& header, ModelConfig& config) {
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "gemma3.block_count", config.num_layers));
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "gemma3.embedding_length", config.hidden_dim));
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "gemma3.feed_forward_length", config.ffn_dim));
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "gemma3.attention.head_count", config.num_heads));
  TANDEM_RETURN_IF_ERROR(
      RequireUnsigned(header, "gemma3.attention.head_count_kv", config.num_kv_heads));
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "gemma3.attention.key_length", config.head_dim));
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "gemma3.context_length", config.context_len));
  TANDEM_RETURN_IF_ERROR(
      RequireUnsigned(header, "gemma3.attention.sliding_window", config.sliding_window));
  TANDEM_ASSIGN_OR_RETURN(const auto value_length,
                          header.Unsigned("gemma3.attention.value_length", kMaxUint32));
  if (value_length.value_or(config.head_dim) != config.head_dim) {
    return FormatError(header.Find("gemma3.attention.value_length")->offset,
                       absl::StrFormat("gemma3.attention.value_length is %d, key_length %d; they "
                                       "must be equal",
                                       *value_length, config.head_dim));
  }
  TANDEM_RETURN_IF_ERROR(
      OptionalFloat(header, "gemma3.attention.layer_norm_rms_epsilon", config.rms_norm_eps));
  if (config.num_layers == 0 || config.num_layers > 1024 || config.num_heads == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d layers of %d heads", config.num_layers, config.num_heads));
  }
  TANDEM_RETURN_IF_ERROR(ReadLayerPattern(header, config));
  TANDEM_RETURN_IF_ERROR(ReadRope(header, config));
  const double scalar = config.num_layers == 62
                            ? static_cast<double>(config.hidden_dim) / config.num_heads
                            : config.head_dim;
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  TANDEM_RETURN_IF_ERROR(OptionalFloat(header, "gemma3.attention.scale", config.attention_scale));
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_dim));
  return absl::OkStatus();
}

absl::Status CheckTokenizerKind(const GgufHeader& header) {
  TANDEM_ASSIGN_OR_RETURN(const auto kind, header.String("tokenizer.ggml.model"));
  if (!kind.has_value()) return MissingKey("tokenizer.ggml.model");
  if (*kind != "llama") {
    return FormatError(header.Find("tokenizer.ggml.model")->offset,
                       absl::StrFormat("tokenizer %s is not supported; llama (SentencePiece) is",
                                       kind->substr(0, 40)));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto prefix, header.Bool("tokenizer.ggml.add_space_prefix"));
  if (prefix.value_or(false)) {
    return FormatError(header.Find("tokenizer.ggml.add_space_prefix")->offset,
                       "tokenizer.ggml.add_space_prefix is true; Gemma 3 has none");
  }
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const GgufHeader& header, OpenedModel& model) {
  TANDEM_RETURN_IF_ERROR(CheckTokenizerKind(header));
  TANDEM_ASSIGN_OR_RETURN(const GgufValue* tokens,
                          FindArray(header, "tokenizer.ggml.tokens", {GgufType::kString}));
  if (tokens == nullptr) return MissingKey("tokenizer.ggml.tokens");
  TANDEM_ASSIGN_OR_RETURN(const GgufValue* scores,
                          FindArray(header, "tokenizer.ggml.scores", {GgufType::kF32}));
  if (scores == nullptr) return MissingKey("tokenizer.ggml.scores");
  TANDEM_ASSIGN_OR_RETURN(const GgufValue* types, FindArray(header, "tokenizer.ggml.token_type",
                                                            {GgufType::kI32, GgufType::kU32}));
  if (types == nullptr) return MissingKey("tokenizer.ggml.token_type");
  for (const GgufValue* array : {scores, types}) {
    if (array->count != tokens->count) {
      return FormatError(array->offset, absl::StrFormat("%d values for the vocabulary's %d pieces",
                                                        array->count, tokens->count));
    }
  }
  VocabularyBuilder builder;
  for (uint64_t i = 0; i < tokens->count; ++i) {
    const absl::Status status =
        builder.Append(tokens->strings[i], static_cast<float>(scores->Number(i)),
                       static_cast<int64_t>(types->Number(i)));
    if (!status.ok())
      return InFile("tokenizer.ggml.tokens", FormatError(tokens->offset, MessageOf(status)));
  }
  TANDEM_ASSIGN_OR_RETURN(model.vocabulary, std::move(builder).Finish(tokens->count));
  TANDEM_ASSIGN_OR_RETURN(const auto add_bos, header.Bool("tokenizer.ggml.add_bos_token"));
  model.vocabulary.add_bos = add_bos.value_or(true);
  model.config.vocab_size = static_cast<uint32_t>(tokens->count);
  return absl::OkStatus();
}

absl::Status ReadSpecialTokens(const GgufHeader& header, OpenedModel& model) {
  const uint64_t vocab_size = model.config.vocab_size;
  const auto token = [&](std::string_view key) { return header.Unsigned(key, vocab_size - 1); };
  TANDEM_ASSIGN_OR_RETURN(const auto bos, token("tokenizer.ggml.bos_token_id"));
  if (bos.has_value()) {
    model.config.bos_token_id = static_cast<int32_t>(*bos);
  } else {
    model.config.bos_token_id = FindPiece(model.vocabulary, "<bos>").value_or(-1);
  }
  StopTokens stops;
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    TANDEM_ASSIGN_OR_RETURN(const auto id, token(key));
    if (id.has_value()) stops.Add(static_cast<int32_t>(*id));
  }
  stops.AddGemmas(model.vocabulary);
  model.config.stop_token_ids = stops.ids();
  return absl::OkStatus();
}

absl::Status ReadSampling(const GgufHeader& header, SamplingDefaults& sampling) {
  TANDEM_ASSIGN_OR_RETURN(const auto top_k, header.Unsigned("general.sampling.top_k", kMaxUint32));
  if (top_k.has_value()) sampling.top_k = static_cast<uint32_t>(*top_k);
  TANDEM_ASSIGN_OR_RETURN(sampling.top_p, header.Float("general.sampling.top_p"));
  TANDEM_ASSIGN_OR_RETURN(sampling.temperature, header.Float("general.sampling.temp"));
  return absl::OkStatus();
}

}  // namespace

std::vector<FileTensor> FileTensorsOf(const GgufHeader& header) {
  std::vector<FileTensor> file_tensors;
  for (const GgufTensor& tensor : header.tensors) {
    FileTensor file_tensor;
    file_tensor.name = tensor.name;
    file_tensor.dtype = tensor.dtype;
    file_tensor.dtype_name = std::string(Traits(tensor.dtype).name);
    file_tensor.shape.assign(tensor.dims.rbegin(), tensor.dims.rend());
    file_tensor.file_offset = tensor.file_offset;
    file_tensor.num_bytes = tensor.num_bytes;
    file_tensors.push_back(std::move(file_tensor));
  }
  return file_tensors;
}

absl::StatusOr<OpenedModel> InterpretGguf(const GgufHeader& header) {
  OpenedModel model;
  model.format = "gguf";
  TANDEM_RETURN_IF_ERROR(CheckArchitecture(header));
  TANDEM_RETURN_IF_ERROR(ReadConfig(header, model.config));
  TANDEM_RETURN_IF_ERROR(ReadVocabulary(header, model));
  TANDEM_RETURN_IF_ERROR(ReadSpecialTokens(header, model));
  TANDEM_RETURN_IF_ERROR(ReadSampling(header, model.sampling_defaults));
  TANDEM_RETURN_IF_ERROR(model.config.Validate());
  TANDEM_ASSIGN_OR_RETURN(const auto chat_template, header.String("tokenizer.chat_template"));
  model.chat_template = chat_template.value_or("");
  if (const auto bad = FindInvalidUtf8(model.chat_template)) {
    return FormatError(header.Find("tokenizer.chat_template")->offset + 8 + *bad,
                       "tokenizer.chat_template is not UTF-8");
  }

  TANDEM_ASSIGN_OR_RETURN(
      DecoderTensors decoder,
      SelectDecoderTensors(model.config, FileTensorsOf(header), NameStyle::kGguf, /*tied=*/false));
  model.tensors = std::move(decoder.tensors);
  model.skipped = std::move(decoder.skipped);
  for (const GgufKey& key : header.keys) {
    model.metadata.emplace_back(Printable(key.name, kMaxPrintedMetadata),
                                PrintGgufValue(key.value, kMaxPrintedMetadata));
  }
  return model;
}

absl::StatusOr<OpenedModel> OpenGguf(const std::string& path) {
  absl::StatusOr<FileSource> file = FileSource::Open(path);
  if (!file.ok()) return InFile(path, file.status());
  absl::StatusOr<GgufHeader> header = ParseGguf(*file);
  if (!header.ok()) return InFile(path, header.status());
  absl::StatusOr<OpenedModel> model = InterpretGguf(*header);
  if (!model.ok()) return InFile(path, model.status());
  ContentHash hash;
  const absl::Status hashed = hash.AddFile(*file, header->data_offset);
  if (!hashed.ok()) return InFile(path, hashed);
  model->content_id = hash.Finish();
  model->file_names.push_back(path);
  model->files.push_back(*std::move(file));
  return model;
}

}  // namespace tandem::loader
