#include "services/loader/synthetic/synthetic_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/tensor/format_table.h"

namespace tandem::loader {
namespace {

// Formats of numbers without blocks.
bool IsPlain(DType dtype) { return Traits(dtype).block_elements == 1; }

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): 64 random bits for every counter.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;  // SplitMix64's step

uint64_t Word(uint64_t key, uint64_t counter) { return Mix(key + counter * kGolden); }

// Copies `bytes` to `out` from position `at`, which may lie (partly) outside.
void Put(std::span<std::byte> out, int64_t at, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int64_t to = at + static_cast<int64_t>(i);
    if (to >= 0 && to < static_cast<int64_t>(out.size())) out[static_cast<size_t>(to)] = bytes[i];
  }
}

void PutHalf(std::span<std::byte> out, int64_t at, uint16_t half) {
  if (at >= 0 && at + 2 <= static_cast<int64_t>(out.size())) {
    std::memcpy(out.data() + at, &half, sizeof(half));
  } else {
    Put(out, at, std::as_bytes(std::span(&half, 1)));
  }
}

// q6_k: sixteen sub-scales of random sign, 8 to 15 in magnitude.
constexpr uint32_t kSubScalesAt = 192;
void PutSubScales(std::span<std::byte> out, int64_t at, uint64_t first, uint64_t second) {
  std::byte scales[16];
  for (uint32_t i = 0; i < 16; ++i) {
    const auto bits = static_cast<int32_t>((i < 8 ? first : second) >> (8 * (i % 8)));
    const int32_t magnitude = 8 + (bits & 7);
    scales[i] = static_cast<std::byte>((bits & 8) != 0 ? -magnitude : magnitude);
  }
  Put(out, at, scales);
}

}  // namespace

bool CanSynthesize(DType dtype) { return IsPlain(dtype) || RowOf(dtype).unit_deviation != 0; }

uint64_t MixKeys(uint64_t a, uint64_t b) { return Mix(Mix(a + kGolden) ^ (b + 1) * kGolden); }

SyntheticTensor SyntheticTensor::Matrix(DType dtype, uint64_t key, float deviation) {
  TANDEM_CHECK(CanSynthesize(dtype));
  SyntheticTensor tensor(key);
  tensor.dtype_ = dtype;
  if (IsPlain(dtype)) {
    // Mantissas in [1, 2) have a root mean square of 1.5275.
    const int exponent = static_cast<int>(std::lround(std::log2(deviation / 1.5275f)));
    if (dtype == DType::kF32) {
      tensor.keep_ = 0x807FFFFF807FFFFFull;
      tensor.set_ = 0x0000000100000001ull * (static_cast<uint64_t>(exponent + 127) << 23);
    } else {
      const bool half = dtype == DType::kF16;
      const uint64_t bits = half ? static_cast<uint64_t>(std::max(exponent + 15, 1)) << 10
                                 : static_cast<uint64_t>(exponent + 127) << 7;
      tensor.keep_ = (half ? 0x83FFull : 0x807Full) * 0x0001000100010001ull;
      tensor.set_ = bits * 0x0001000100010001ull;
    }
    return tensor;
  }
  const float scale = deviation / RowOf(dtype).unit_deviation;
  for (size_t i = 0; i < kNumScales; ++i) {
    const size_t pair = i / 2, last_pair = kNumScales / 2 - 1;
    const float band = 0.875f + 0.25f * static_cast<float>(pair) / static_cast<float>(last_pair);
    tensor.scales_[i] = FloatToHalf(i % 2 == 0 ? scale * band : -scale * band);
  }
  return tensor;
}

SyntheticTensor SyntheticTensor::Vector(uint64_t key, float center) {
  SyntheticTensor tensor(key);
  tensor.is_vector_ = true;
  tensor.center_ = center;
  return tensor;
}

void SyntheticTensor::Fill(uint64_t offset, std::span<std::byte> out) const {
  if (is_vector_) return FillVector(offset, out);
  FillBits(offset, out);
  if (IsPlain(dtype_) || out.empty()) return;
  const uint64_t block_bytes = Traits(dtype_).block_bytes;
  const uint64_t last = (offset + out.size() - 1) / block_bytes;
  for (uint64_t block = offset / block_bytes; block <= last; ++block) {
    PatchBlock(block, static_cast<int64_t>(block * block_bytes) - static_cast<int64_t>(offset),
               out);
  }
}

void SyntheticTensor::FillBits(uint64_t offset, std::span<std::byte> out) const {
  const auto word = [this](uint64_t index) { return (Word(key_, index) & keep_) | set_; };
  std::byte* to = out.data();
  size_t left = out.size();
  uint64_t index = offset / 8;
  if (const size_t skip = offset % 8; skip != 0) {
    const uint64_t first = word(index++);
    const size_t bytes = std::min(left, 8 - skip);
    std::memcpy(to, reinterpret_cast<const std::byte*>(&first) + skip, bytes);
    to += bytes;
    left -= bytes;
  }
  for (; left >= 8; left -= 8, to += 8) {
    const uint64_t next = word(index++);
    std::memcpy(to, &next, 8);
  }
  const uint64_t last = word(index);
  std::memcpy(to, &last, left);
}

void SyntheticTensor::FillVector(uint64_t offset, std::span<std::byte> out) const {
  const uint64_t last = out.empty() ? 0 : (offset + out.size() - 1) / sizeof(float);
  for (uint64_t i = offset / sizeof(float); !out.empty() && i <= last; ++i) {
    const float unit = static_cast<float>(Word(key_, i) >> 40) * 0x1p-24f;  // [0, 1)
    const float value = center_ * (0.75f + 0.5f * unit);
    Put(out, static_cast<int64_t>(i * sizeof(float)) - static_cast<int64_t>(offset),
        std::as_bytes(std::span(&value, 1)));
  }
}

void SyntheticTensor::PatchBlock(uint64_t index, int64_t block, std::span<std::byte> out) const {
  const FormatRow& format = RowOf(dtype_);
  const uint64_t bits = Word(~key_, index);
  const uint16_t scale = scales_[bits % kNumScales];
  PutHalf(out, block + format.scale_at, scale);
  if (format.min_factor != 0) {
    const uint16_t min = FloatToHalf(HalfToFloat(scale) * format.min_factor);
    PutHalf(out, block + format.scale_at + 2, min);
  }
  if (dtype_ == DType::kQ6_K) PutSubScales(out, block + kSubScalesAt, Mix(bits), Mix(~bits));
}

}  // namespace tandem::loader
