// Random weights in sealed regions, as the loader would hand them out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "services/common/model/model_config.h"
#include "services/common/tensor/dtype.h"
#include "services/common/weights/packed_tensor.h"
#include "services/common/weights/weight_set.h"

namespace tandem::testing {

struct RandomWeightOptions {
  DType dtype = DType::kBf16;               // of every matrix ...
  std::map<WeightRole, DType> role_dtypes;  // ... but these
  std::optional<DType> v_dtype;             // of V's rows in kQkv
  bool separate_head = false;               // a kHead beside the embedding
  uint32_t seed = 1;
  // Matrices larger than this are cut into shards, between tiles.  A multiple of the page size, and
  // enough for one tile.
  uint64_t max_region_bytes = uint64_t{64} << 20;
  bool memory_files_are_dmabufs = false;  // each region's memory file stands for its dmabuf
};

// Gaussian matrices of standard deviation 1.2 / sqrt(cols), norms about 1 and biases about 0 with
// deviation 0.25, of the decoder and of config.vision:
// every stage then hands on numbers of order one.  Regions are read-only, size-sealed memfds.
// REQUIRES the columns of each matrix are a multiple of its format's block.
std::shared_ptr<const WeightSet> RandomWeightSet(const ModelConfig& config,
                                                 const RandomWeightOptions& options = {});

}  // namespace tandem::testing
