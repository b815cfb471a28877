// A model whose weights are in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/common/model/vocabulary.h"
#include "services/loader/packing/packer.h"
#include "services/loader/source/model_source.h"
#include "services/loader/store/kept_weights.h"
#include "services/loader/store/weight_region.h"

namespace tandem::loader {

// Immutable.  Shared by the store, the leases on it, and calls that are reading from it.
struct ResidentModel {
  std::string model_id;
  std::string name;
  std::string path;
  std::string file_stamp;  // FileStamp of the catalog, taken before the files were read
  ModelConfig config;
  Vocabulary vocabulary;
  std::string chat_template;
  SamplingDefaults sampling_defaults;
  std::string quantization;  // "Q4_K_M"
  std::vector<PackedTensor> tensors;
  std::vector<SealedRegion> regions;
  uint64_t source_bytes = 0;
  uint64_t weight_bytes = 0;  // of the regions
  double load_seconds = 0.0;
  std::unique_ptr<KeptHold> hold;  // null: the service manager does not keep the regions
};

}  // namespace tandem::loader
