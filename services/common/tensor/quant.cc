#include "services/common/tensor/quant.h"

#include <algorithm>
#include <cstring>

#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/tensor/block_codecs.h"
#include "services/common/tensor/packed_pieces.h"

namespace tandem {
namespace {

using codecs::Block;
using codecs::WithCodec;

bool IsBlockFormat(DType dtype) { return Traits(dtype).block_elements > 1; }

void DequantizePlain(DType dtype, const std::byte* row, std::span<float> out) {
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), row, out.size_bytes());
    return;
  }
  for (size_t e = 0; e < out.size(); ++e) {
    const auto bits = codecs::Load<uint16_t>(row + 2 * e);
    out[e] = dtype == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
  }
}

void QuantizePlain(DType dtype, std::span<const float> values, std::byte* row) {
  if (dtype == DType::kF32) {
    std::memcpy(row, values.data(), values.size_bytes());
    return;
  }
  for (size_t e = 0; e < values.size(); ++e) {
    codecs::Store(row + 2 * e,
                  dtype == DType::kF16 ? FloatToHalf(values[e]) : FloatToBf16(values[e]));
  }
}

void ZeroRow(DType dtype, size_t num_elements, const MutablePackedRow& row) {
  std::byte* const* plane = row.planes;
  for (const Piece& piece : PiecesOf(dtype)) {
    const size_t num_pieces = PiecesOfRow(piece, num_elements);
    for (size_t i = 0; i < num_pieces; ++i)
      std::memset(*plane + i * piece.stride(), 0, piece.bytes);
    ++plane;
  }
}

}  // namespace

void DequantizeFileRow(DType dtype, std::span<const std::byte> row, std::span<float> out) {
  TANDEM_CHECK(row.size() >= RowBytes(dtype, out.size()));
  if (!IsBlockFormat(dtype)) return DequantizePlain(dtype, row.data(), out);
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < out.size() / Codec::kElements; ++b) {
      Codec::LoadFile(row.data() + b * Codec::kBytes, block);
      Codec::Dequantize(block, out.data() + b * Codec::kElements);
    }
  });
}

void DequantizePackedRow(DType dtype, const PackedRow& row, std::span<float> out) {
  TANDEM_CHECK(out.size() % Traits(dtype).block_elements == 0);
  if (!IsBlockFormat(dtype)) {
    const Piece piece = PiecesOf(dtype)[0];
    for (size_t e = 0, i = 0; e < out.size(); e += piece.elements, ++i) {
      const size_t count = std::min<size_t>(piece.elements, out.size() - e);
      DequantizePlain(dtype, row.planes[0] + i * piece.stride(), out.subspan(e, count));
    }
    return;
  }
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < out.size() / Codec::kElements; ++b) {
      Codec::LoadPacked(row, b * Codec::kElements, block);
      Codec::Dequantize(block, out.data() + b * Codec::kElements);
    }
  });
}

void QuantizeFileRow(DType dtype, std::span<const float> values, std::span<std::byte> row) {
  TANDEM_CHECK(row.size() >= RowBytes(dtype, values.size()));
  if (!IsBlockFormat(dtype)) return QuantizePlain(dtype, values, row.data());
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < values.size() / Codec::kElements; ++b) {
      Codec::Quantize(values.data() + b * Codec::kElements, block);
      Codec::StoreFile(block, row.data() + b * Codec::kBytes);
    }
  });
}

void QuantizePackedRow(DType dtype, std::span<const float> values, const MutablePackedRow& row) {
  TANDEM_CHECK(values.size() % Traits(dtype).block_elements == 0);
  ZeroRow(dtype, values.size(), row);
  if (!IsBlockFormat(dtype)) {
    const Piece piece = PiecesOf(dtype)[0];
    for (size_t e = 0, i = 0; e < values.size(); e += piece.elements, ++i) {
      const size_t count = std::min<size_t>(piece.elements, values.size() - e);
      QuantizePlain(dtype, values.subspan(e, count), row.planes[0] + i * piece.stride());
    }
    return;
  }
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < values.size() / Codec::kElements; ++b) {
      Codec::Quantize(values.data() + b * Codec::kElements, block);
      Codec::StorePacked(block, row, b * Codec::kElements);
    }
  });
}

void RepackRowByElement(DType dtype, std::span<const std::byte> file_row, size_t num_elements,
                        const MutablePackedRow& row) {
  TANDEM_CHECK(file_row.size() >= RowBytes(dtype, num_elements));
  ZeroRow(dtype, num_elements, row);
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < num_elements / Codec::kElements; ++b) {
      Codec::LoadFile(file_row.data() + b * Codec::kBytes, block);
      Codec::StorePacked(block, row, b * Codec::kElements);
    }
  });
}

}  // namespace tandem
