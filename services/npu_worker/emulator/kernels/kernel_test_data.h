// Buffers for tests of the kernels by themselves, below XRT.
#pragma once

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "services/common/base/half.h"
#include "services/npu_worker/attention/kernel_abi.h"

namespace tandem::npu::emulator {

inline std::vector<uint16_t> RandomHalves(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(n);
  for (uint16_t& value : values) value = FloatToHalf(normal(random));
  return values;
}

// A step of one sequence whose rows start at `first_position`.
struct TestStep {
  StepDescriptor header;
  std::vector<SequenceDescriptor> sequences;
  std::vector<uint32_t> table;

  std::vector<std::byte> Bytes() const {
    const size_t sequence_bytes = sequences.size() * sizeof(SequenceDescriptor);
    std::vector<std::byte> bytes(sizeof(header) + sequence_bytes + table.size() * 4);
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), sequences.data(), sequence_bytes);
    std::memcpy(bytes.data() + sizeof(header) + sequence_bytes, table.data(), table.size() * 4);
    return bytes;
  }
};

inline std::span<std::byte> AsBytes(std::vector<uint16_t>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace tandem::npu::emulator
