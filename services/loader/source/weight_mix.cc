#include "services/loader/source/weight_mix.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/tensor/format_table.h"

namespace tandem::loader {
namespace {

bool HasMix(DType dtype) { return RowOf(dtype).mixed_file_type != 0; }

std::string DTypeNames() {
  return absl::StrJoin(AllDTypes(), ", ",
                       [](std::string* out, DType dtype) { out->append(Traits(dtype).name); });
}

DType EmbeddingFor(DType type) {
  const DTypeTraits& traits = Traits(type);
  const double bits = 8.0 * traits.block_bytes / traits.block_elements;
  return bits < 6.0 ? DType::kQ6_K : type;
}

}  // namespace

std::string WeightMix::Name() const { return std::string(Traits(type).name) + (mixed ? "_m" : ""); }

DType WeightMix::FormatOf(WeightRole role, SourcePart part, uint32_t layer_idx, uint32_t num_layers,
                          uint64_t cols) const {
  DType wanted = type;
  if (role == WeightRole::kEmbedding || role == WeightRole::kHead) {
    wanted = embedding;
  } else if (mixed && (part == SourcePart::kV || role == WeightRole::kDown) &&
             GetsMoreBits(layer_idx, num_layers)) {
    wanted = DType::kQ6_K;
  }
  return FormatForColumns(wanted, cols);
}

absl::StatusOr<DType> ParseDType(std::string_view name) {
  for (const DType dtype : AllDTypes()) {
    if (Traits(dtype).name == name) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrFormat("there is no format '%s'; use one of %s",
                                                    std::string(name.substr(0, 40)), DTypeNames()));
}

absl::StatusOr<WeightMix> ParseWeightMix(std::string_view name) {
  for (const DType dtype : AllDTypes()) {
    for (const bool mixed : {false, true}) {
      const WeightMix mix{.type = dtype, .mixed = mixed, .embedding = EmbeddingFor(dtype)};
      if (mix.Name() == name && (!mixed || HasMix(dtype))) return mix;
    }
  }
  return absl::InvalidArgumentError(absl::StrFormat("there is no format '%s'; use one of %s",
                                                    std::string(name.substr(0, 40)),
                                                    absl::StrJoin(WeightMixNames(), ", ")));
}

std::vector<std::string> WeightMixNames() {
  std::vector<std::string> names;
  for (const DType dtype : AllDTypes()) {
    names.push_back(WeightMix{.type = dtype}.Name());
    if (HasMix(dtype)) names.push_back(WeightMix{.type = dtype, .mixed = true}.Name());
  }
  return names;
}

DType FormatForColumns(DType wanted, uint64_t cols) {
  if (cols % Traits(wanted).block_elements == 0) return wanted;
  return wanted == DType::kQ4_K ? DType::kQ5_0 : DType::kQ8_0;
}

bool GetsMoreBits(uint32_t layer_idx, uint32_t num_layers) {
  const uint32_t eighth = num_layers / 8;
  return layer_idx < eighth || layer_idx >= 7 * num_layers / 8 || (layer_idx - eighth) % 3 == 2;
}

}  // namespace tandem::loader
