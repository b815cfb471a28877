// Matmul of activations with a weight matrix, float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tandem::reference {

// Row-major [rows, cols].
struct Matrix {
  size_t rows = 0;
  size_t cols = 0;
  std::vector<float> values;

  std::span<const float> row(size_t r) const { return std::span(values).subspan(r * cols, cols); }
};

//   out[r, n] = sum over k of x[r, k] * weights[n, k]
//
// x [num_rows, weights.cols], out [num_rows, weights.rows].  A result's order of summation depends
// on weights.cols alone: the bits are the same whatever the other rows, threads and processor.
void MatMul(std::span<const float> x, size_t num_rows, const Matrix& weights, std::span<float> out,
            int num_threads = 1);

// Calls fn(begin, end) on `num_threads` threads, for equal parts of [0, n).
void ParallelFor(int num_threads, size_t n, const std::function<void(size_t, size_t)>& fn);

}  // namespace tandem::reference
