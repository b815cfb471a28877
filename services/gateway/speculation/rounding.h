// How far the logits of a row may move when it is computed in a step with another number of rows.
//
// On some devices the number of rows of a step chooses the kernels (docs/gpu.md, "Bits").  Kernels
// round different factors: to float16, or the inputs of products to int8 in blocks of 32.
//
//   float16  at most u = 2^-11 of the number
//   int8     at most 1/254 of the block's largest number, which is about 2.5 times their root mean
//            square: u = 2.5 / 254
//
// Such an error is uniform, so its root mean square is u / sqrt(3).  A layer has 13 roundings to
// float16: weights, inputs and outputs of four products and of attention.  Where int8 is possible,
// four of them are to int8.  With q^2 the sum of their squares, the residual after l layers is the
// sum of l updates of about one size; each has its own roundings and hands on the error e of its
// input:
//
//   e_l^2 = e_{l-1}^2 + q^2 / l        so  e_L = q sqrt(1 + 1/2 + ... + 1/L)
//
// A logit has the error e times the root mean square of the row's logits, and rarely four times
// that.  The highest of 10^4 logits or more is at least about four times their root mean square.
// So one logit moves by at most e times the highest.  Between two results the difference of two
// logits has four such errors, which are independent: twice that.
#pragma once

#include <cstdint>

namespace tandem::gateway {

// By which part of the highest logit the difference of two logits may change.  `int8`: whether
// products may round their inputs to int8, as they may with weights in blocks.
double LogitRounding(uint32_t num_layers, bool int8);

}  // namespace tandem::gateway
