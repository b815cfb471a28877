// A random matrix in a packed format on the device, in shards, with its numbers as float32.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/reference/matmul.h"
#include "services/common/weights/dequantize.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"
#include "services/gpu_worker/kernels/launches.h"

namespace tandem::gpu {

struct PackedMatrix {
  // `shard_rows`: rows of each shard, the last takes the rest.
  PackedMatrix(const vulkan::Device& device, DType dtype, uint64_t rows, uint64_t cols,
               uint32_t seed, std::vector<uint64_t> shard_rows = {}) {
    tensor = {dtype, rows, cols, {}};
    values = {rows, cols, RandomFloats(rows * cols, seed)};
    uint64_t first = 0;
    while (first < rows) {
      uint64_t n = rows - first;
      if (tensor.shards.size() < shard_rows.size()) n = shard_rows[tensor.shards.size()];
      std::vector<std::byte> bytes(ShardBytes(dtype, n, cols));
      for (uint64_t r = 0; r < n; ++r) {
        const std::span<float> row = std::span(values.values).subspan((first + r) * cols, cols);
        QuantizePackedRow(dtype, row, RowInShard(dtype, n, cols, bytes.data(), r));
        DequantizePackedRow(
            dtype, RowInShard(dtype, n, cols, static_cast<const std::byte*>(bytes.data()), r), row);
      }
      arrays.emplace_back(device, bytes);
      DeviceShard& shard = tensor.shards.emplace_back();
      shard.first_row = first;
      shard.num_rows = n;
      const auto planes = PlanesOf(dtype, n, cols);
      for (size_t p = 0; p < planes.size(); ++p) {
        shard.plane[p] = arrays.back().address() + planes[p].offset;
      }
      first += n;
    }
  }

  DeviceTensor tensor;
  reference::Matrix values;  // as the kernels read them
  std::vector<DeviceArray> arrays;
};

}  // namespace tandem::gpu
