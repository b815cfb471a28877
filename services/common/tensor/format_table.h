// The table of number formats: one row holds all that is data about a format.
// docs/guides/quantisation_format.md lists what a format has besides.
#pragma once

#include <cstdint>
#include <span>

#include "services/common/tensor/dtype.h"
#include "services/common/tensor/packed_row.h"

namespace tandem {

struct FormatRow {
  DType dtype;
  DTypeTraits traits;
  std::span<const Piece> pieces;  // of the packed layout's planes, in order
  uint32_t ggml_type;             // enum ggml_type: the tensor's type in a GGUF file
  uint32_t file_type;             // enum llama_ftype of a file whose matrices have the format
  uint32_t mixed_file_type = 0;   // the same for the mix with "_m" behind its name; 0: no mix

  // How to draw random blocks (loader/synthetic/): all bits but the scales may be random.
  float unit_deviation = 0;  // of a block's numbers whose f16 scale is 1; 0: plain numbers
  uint32_t scale_at = 0;     // byte of the f16 scale in a block
  float min_factor = 0;      // f16 min behind the scale, relative to the scale; 0: no min
};

const FormatRow& RowOf(DType dtype);

}  // namespace tandem
