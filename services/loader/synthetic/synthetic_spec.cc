#include "services/loader/synthetic/synthetic_spec.h"

#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/common/base/status_macros.h"

namespace tandem::loader {
namespace {

constexpr std::string_view kPrefix = "synthetic:";
constexpr uint32_t kKernelBlock = 32;  // columns that every device's kernels take at a time

// The releases' text decoders (config.json of google/gemma-3-*).
struct NamedShape {
  std::string_view name;
  uint32_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab, context, window;
  float rope_scale_global;
  bool scale_by_hidden;  // attention scale (hidden / heads)^-0.5 instead of head_dim^-0.5
};
constexpr NamedShape kShapes[] = {
    {"gemma3-270m", 18, 640, 2048, 4, 1, 256, 262144, 32768, 512, 1.0f, false},
    {"gemma3-1b", 26, 1152, 6912, 4, 1, 256, 262144, 32768, 512, 1.0f, false},
    {"gemma3-4b", 34, 2560, 10240, 8, 4, 256, 262208, 131072, 1024, 8.0f, false},
    {"gemma3-12b", 48, 3840, 15360, 16, 8, 256, 262208, 131072, 1024, 8.0f, false},
    {"gemma3-27b", 62, 5376, 21504, 32, 16, 128, 262208, 131072, 1024, 8.0f, true},
};

// A number of the shape that may be replaced.
struct Override {
  std::string_view name;
  uint32_t NamedShape::*field;
};
constexpr Override kOverrides[] = {
    {"layers", &NamedShape::layers},     {"hidden", &NamedShape::hidden},
    {"ffn", &NamedShape::ffn},           {"heads", &NamedShape::heads},
    {"kv_heads", &NamedShape::kv_heads}, {"head_dim", &NamedShape::head_dim},
    {"vocab", &NamedShape::vocab},       {"context", &NamedShape::context},
    {"window", &NamedShape::window},
};

absl::Status Refuse(std::string_view name, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrFormat("model '%s': %s", std::string(name.substr(0, 200)), why));
}

std::string ShapeNames() {
  return absl::StrJoin(kShapes, ", ",
                       [](std::string* out, const NamedShape& shape) { out->append(shape.name); });
}

absl::StatusOr<NamedShape> FindShape(std::string_view name, const std::string& text) {
  for (const NamedShape& shape : kShapes) {
    if (shape.name == text) return shape;
  }
  return Refuse(name, absl::StrFormat("there is no shape '%s'; use one of %s", text.substr(0, 40),
                                      ShapeNames()));
}

// One NAME=VALUE.
struct Option {
  std::string name, value;
};

absl::StatusOr<std::vector<Option>> SplitOptions(std::string_view name, std::string_view text) {
  std::vector<Option> options;
  std::set<std::string> seen;
  const absl::string_view view(text.data(), text.size());
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(view, '&'))) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return Refuse(name, absl::StrFormat("'%s' is not NAME=VALUE", part.substr(0, 40)));
    }
    options.push_back({part.substr(0, equals), part.substr(equals + 1)});
    if (!seen.insert(options.back().name).second) {
      return Refuse(name, absl::StrFormat("%s is given twice", options.back().name.substr(0, 40)));
    }
  }
  return options;
}

ModelConfig ConfigOf(const NamedShape& shape) {
  ModelConfig config;
  config.num_layers = shape.layers;
  config.hidden_dim = shape.hidden;
  config.ffn_dim = shape.ffn;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.vocab_size = shape.vocab;
  config.context_len = shape.context;
  config.sliding_window = shape.window;
  config.layer_is_global = EverySixthGlobal(shape.layers);
  config.rope_scale_global = shape.rope_scale_global;
  const float scalar = shape.scale_by_hidden
                           ? static_cast<float>(shape.hidden) / static_cast<float>(shape.heads)
                           : static_cast<float>(shape.head_dim);
  config.attention_scale = 1.0f / std::sqrt(scalar);
  config.embedding_scale = std::sqrt(static_cast<float>(shape.hidden));
  config.bos_token_id = 2;
  config.stop_token_ids = {1, 5};  // <eos>, <end_of_turn> of the synthetic vocabulary
  return config;
}

absl::Status CheckShape(std::string_view name, const NamedShape& shape) {
  const std::pair<const char*, uint64_t> columns[] = {
      {"hidden", shape.hidden},
      {"ffn", shape.ffn},
      {"heads x head_dim", uint64_t{shape.heads} * shape.head_dim}};
  for (const auto& [what, value] : columns) {
    if (value % kKernelBlock == 0) continue;
    return Refuse(name,
                  absl::StrFormat("%s is %d, must be a multiple of %d", what, value, kKernelBlock));
  }
  if (shape.vocab < kMinSyntheticVocabulary) {
    return Refuse(name,
                  absl::StrFormat("vocab is %d, must be %d at least: control tokens and bytes",
                                  shape.vocab, kMinSyntheticVocabulary));
  }
  const absl::Status valid = ConfigOf(shape).Validate();
  return valid.ok() ? valid : Refuse(name, std::string(valid.message()));
}

absl::Status Apply(std::string_view name, const Option& option, NamedShape& shape,
                   SyntheticSpec& spec, std::optional<DType>& embedding) {
  if (option.name == "type") {
    const absl::StatusOr<WeightMix> mix = ParseWeightMix(option.value);
    if (!mix.ok()) return Refuse(name, std::string(mix.status().message()));
    spec.mix = *mix;
    return absl::OkStatus();
  }
  if (option.name == "embedding") {
    const absl::StatusOr<DType> dtype = ParseDType(option.value);
    if (!dtype.ok()) return Refuse(name, std::string(dtype.status().message()));
    embedding = *dtype;
    return absl::OkStatus();
  }
  const auto not_a_number = [&] {
    return Refuse(name, absl::StrFormat("%s=%s: a whole number is expected", option.name,
                                        option.value.substr(0, 40)));
  };
  if (option.name == "seed") {
    return absl::SimpleAtoi(option.value, &spec.seed) ? absl::OkStatus() : not_a_number();
  }
  for (const Override& candidate : kOverrides) {
    if (candidate.name != option.name) continue;
    if (!absl::SimpleAtoi(option.value, &(shape.*candidate.field))) return not_a_number();
    return absl::OkStatus();
  }
  return Refuse(
      name, absl::StrFormat(
                "there is no option '%s'; use type, embedding, seed, %s", option.name.substr(0, 40),
                absl::StrJoin(kOverrides, ", ",
                              [](std::string* out, const Override& o) { out->append(o.name); })));
}

// What tells the model from its shape's own: every override that changes something.
std::string FullName(const NamedShape& base, const NamedShape& shape, const SyntheticSpec& spec) {
  std::string name = absl::StrFormat("%s%s?type=%s&embedding=%s&seed=%d", std::string(kPrefix),
                                     std::string(shape.name), spec.mix.Name(),
                                     std::string(Traits(spec.mix.embedding).name), spec.seed);
  for (const Override& candidate : kOverrides) {
    if (shape.*candidate.field == base.*candidate.field) continue;
    absl::StrAppendFormat(&name, "&%s=%d", std::string(candidate.name), shape.*candidate.field);
  }
  return name;
}

}  // namespace

bool IsSyntheticName(std::string_view name) { return name.starts_with(kPrefix); }

absl::StatusOr<SyntheticSpec> ParseSyntheticName(std::string_view name) {
  if (!IsSyntheticName(name)) return Refuse(name, "it does not begin with 'synthetic:'");
  const std::string_view rest = name.substr(kPrefix.size());
  const size_t question = rest.find('?');
  TANDEM_ASSIGN_OR_RETURN(const NamedShape base,
                          FindShape(name, std::string(rest.substr(0, question))));
  SyntheticSpec spec;
  NamedShape shape = base;
  std::optional<DType> embedding;
  if (question != std::string_view::npos) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Option> options,
                            SplitOptions(name, rest.substr(question + 1)));
    for (const Option& option : options) {
      TANDEM_RETURN_IF_ERROR(Apply(name, option, shape, spec, embedding));
    }
  }
  if (embedding.has_value()) spec.mix.embedding = *embedding;
  TANDEM_RETURN_IF_ERROR(CheckShape(name, shape));
  spec.config = ConfigOf(shape);
  spec.name = FullName(base, shape, spec);
  return spec;
}

}  // namespace tandem::loader
