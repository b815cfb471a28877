// Random weights, made where they are asked for: any bytes of a tensor from its key alone.
//
// Quants are random bits.  Scales lie within an eighth of what gives the matrix the deviation
// asked for, and have random signs, so that a zero point off the middle of its range adds nothing
// that all rows share.  Plain formats hold numbers of random sign and mantissa and one exponent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/tensor/dtype.h"

namespace tandem::loader {

// Whether SyntheticTensor knows how to make blocks of a format.
bool CanSynthesize(DType dtype);

// Immutable, so thread-safe.
class SyntheticTensor {
 public:
  // A matrix of about this standard deviation.  REQUIRES CanSynthesize(dtype), and a deviation that
  // the format's scale can hold.
  static SyntheticTensor Matrix(DType dtype, uint64_t key, float deviation);
  // A vector of float32 within a quarter of `center`.
  static SyntheticTensor Vector(uint64_t key, float center);

  // Writes the bytes [offset, +out.size()) of the tensor, in the file layout (tensor/quant.h).
  // Several GB/s on one core.
  void Fill(uint64_t offset, std::span<std::byte> out) const;

 private:
  static constexpr size_t kNumScales = 16;

  explicit SyntheticTensor(uint64_t key) : key_(key) {}
  void FillBits(uint64_t offset, std::span<std::byte> out) const;
  void FillVector(uint64_t offset, std::span<std::byte> out) const;
  // Puts the scales of the block at `block` among the bytes made before.
  void PatchBlock(uint64_t index, int64_t block, std::span<std::byte> out) const;

  uint64_t key_ = 0;
  DType dtype_ = DType::kF32;
  bool is_vector_ = false;
  float center_ = 0.0f;
  // Plain formats: a word's bits are (random & keep_) | set_.
  uint64_t keep_ = ~uint64_t{0};
  uint64_t set_ = 0;
  std::array<uint16_t, kNumScales> scales_ = {};  // f16, to draw from
};

// Mixes two numbers into a key.
uint64_t MixKeys(uint64_t a, uint64_t b);

}  // namespace tandem::loader
