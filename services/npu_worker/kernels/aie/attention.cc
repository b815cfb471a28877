// Attention of a prompt's rows on a core of AIE2 or AIE2P: bfloat16, with a running softmax.
//
// The array design (README.md) calls, for each set of 16 queries of a head:
//   Begin; for each tile of 32 positions: Scores, Softmax, ZeroMissing, Accumulate; Finish
//
// Blocked tiles are blocks of 8 x 8 elements, rows of blocks first:
//   queries, sums   [2][head_dim / 8][8 queries][8]
//   keys, values    [4][head_dim / 8][8 positions][8]
//   scores          [2][4][8 queries][8 positions]
#include <aie_api/aie.hpp>

#include "services/npu_worker/kernels/aie/attention_tile.h"

#ifndef TANDEM_CORE_FUNCTION
#define TANDEM_CORE_FUNCTION extern "C"
#endif

namespace tandem::npu {
namespace {

constexpr unsigned kBlock = 8;
constexpr unsigned kBlockSize = kBlock * kBlock;
constexpr unsigned kQueryBlocks = kAttentionQueries / kBlock;
constexpr unsigned kKeyBlocks = kAttentionKeys / kBlock;
constexpr float kLowest = -1e30f;  // below every score

using Multiply = aie::mmul<8, 8, 8, bfloat16, bfloat16, accfloat>;
using Row = aie::vector<float, kAttentionKeys>;

alignas(64) const int32 kIndices[kAttentionKeys] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                    11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                    22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// Query `query`'s part of block `key_block` of scores or probabilities.
unsigned ScoreOffset(unsigned query, unsigned key_block) {
  return (query / kBlock * kKeyBlocks + key_block) * kBlockSize + query % kBlock * kBlock;
}

Row LoadScores(const float* scores, unsigned query) {
  static_assert(kKeyBlocks == 4);
  const auto low = aie::concat(aie::load_v<kBlock>(scores + ScoreOffset(query, 0)),
                               aie::load_v<kBlock>(scores + ScoreOffset(query, 1)));
  const auto high = aie::concat(aie::load_v<kBlock>(scores + ScoreOffset(query, 2)),
                                aie::load_v<kBlock>(scores + ScoreOffset(query, 3)));
  return aie::concat(low, high);
}

int Larger(int a, int b) { return a > b ? a : b; }
int Smaller(int a, int b) { return a < b ? a : b; }

// Values of two queries, each for 8 elements of its row.
aie::vector<float, 2 * kBlock> ForEachElement(const float* values) {
  return aie::concat(aie::broadcast<float, kBlock>(values[0]),
                     aie::broadcast<float, kBlock>(values[1]));
}

// Cores start with rounding towards minus infinity.
void Start() { aie::set_rounding(aie::rounding_mode::conv_even); }

template <unsigned kHeadDim>
void Begin(AttentionState& state, float* sums) {
  for (unsigned query = 0; query < kAttentionQueries; ++query) {
    state.maxima[query] = kLowest;
    state.sums[query] = 0;
  }
  const auto zeros = aie::zeros<float, 16>();
  for (unsigned i = 0; i < kAttentionQueries * kHeadDim; i += 16) aie::store_v(sums + i, zeros);
}

// scores = queries * keys^T
template <unsigned kHeadDim>
void Scores(const bfloat16* queries, const bfloat16* keys, float* scores) {
  constexpr unsigned kDimBlocks = kHeadDim / kBlock;
  static_assert(kQueryBlocks == 2);
  for (unsigned key_block = 0; key_block < kKeyBlocks; ++key_block) {
    Multiply sum0(aie::zeros<float, kBlockSize>());
    Multiply sum1(aie::zeros<float, kBlockSize>());
    for (unsigned dim = 0; dim < kDimBlocks; ++dim) {
      const auto key = aie::transpose(
          aie::load_v<kBlockSize>(keys + (key_block * kDimBlocks + dim) * kBlockSize), 8, 8);
      sum0.mac(aie::load_v<kBlockSize>(queries + dim * kBlockSize), key);
      sum1.mac(aie::load_v<kBlockSize>(queries + (kDimBlocks + dim) * kBlockSize), key);
    }
    aie::store_v(scores + key_block * kBlockSize, sum0.template to_vector<float>());
    aie::store_v(scores + (kKeyBlocks + key_block) * kBlockSize, sum1.template to_vector<float>());
  }
}

// From the scores of a tile whose first key has position `first_key`: probabilities relative to the
// running maxima, the running sums, and the corrections of what came before.
void Softmax(const AttentionParameters& parameters, int first_key, const float* scores,
             bfloat16* probabilities, AttentionState& state) {
  const auto indices = aie::load_v<kAttentionKeys>(kIndices);
  const Row scale = aie::broadcast<float, kAttentionKeys>(parameters.scale);
  float maxima[kAttentionQueries];
  float sums[kAttentionQueries];
  for (unsigned query = 0; query < kAttentionQueries; ++query) {
    const int position = parameters.first_position + static_cast<int>(query);
    const int last =
        Smaller(Larger(position, parameters.picture_last), parameters.num_keys - 1) - first_key;
    const int first_of_window =
        parameters.window == 0 ? 0 : Larger(0, position + 1 - parameters.window);
    const int first = Smaller(first_of_window, parameters.picture_first) - first_key;
    const auto outside = aie::lt(indices, aie::broadcast<int32, kAttentionKeys>(first)) |
                         aie::lt(aie::broadcast<int32, kAttentionKeys>(last), indices);
    const Row scaled = aie::select(aie::mul(LoadScores(scores, query), scale).to_vector<float>(),
                                   aie::broadcast<float, kAttentionKeys>(kLowest), outside);
    const float found = aie::reduce_max(scaled);
    maxima[query] = found > state.maxima[query] ? found : state.maxima[query];
    const auto all =
        aie::exp2<bfloat16>(aie::sub(scaled, aie::broadcast<float, kAttentionKeys>(maxima[query])));
    const auto seen = aie::select(all, aie::zeros<bfloat16, kAttentionKeys>(), outside);
    sums[query] = aie::reduce_add(aie::accum<accfloat, kAttentionKeys>(seen).to_vector<float>());
    for (unsigned block = 0; block < kKeyBlocks; ++block) {
      aie::store_v(probabilities + ScoreOffset(query, block), seen.extract<kBlock>(block));
    }
  }
  const auto corrections = aie::exp2<bfloat16>(aie::sub(
      aie::load_v<kAttentionQueries>(state.maxima), aie::load_v<kAttentionQueries>(maxima)));
  aie::store_v(state.corrections,
               aie::accum<accfloat, kAttentionQueries>(corrections).to_vector<float>());
  for (unsigned query = 0; query < kAttentionQueries; ++query) {
    state.maxima[query] = maxima[query];
    state.sums[query] = state.sums[query] * state.corrections[query] + sums[query];
  }
}

// Values of positions that do not exist may be anything: zeros take their place.
template <unsigned kHeadDim>
void ZeroMissing(int num_keys, bfloat16* values) {
  const auto zeros = aie::zeros<bfloat16, kBlock>();
  for (int key = Larger(num_keys, 0); key < static_cast<int>(kAttentionKeys); ++key) {
    bfloat16* row = values + key / 8 * (kHeadDim * kBlock) + key % 8 * kBlock;
    for (unsigned dim = 0; dim < kHeadDim / kBlock; ++dim) {
      aie::store_v(row + dim * kBlockSize, zeros);
    }
  }
}

// sums = corrections * sums + probabilities * values
template <unsigned kHeadDim>
void Accumulate(const bfloat16* probabilities, const bfloat16* values, const AttentionState& state,
                float* sums) {
  constexpr unsigned kDimBlocks = kHeadDim / kBlock;
  for (unsigned query_block = 0; query_block < kQueryBlocks; ++query_block) {
    for (unsigned dim = 0; dim < kDimBlocks; ++dim) {
      float* block = sums + (query_block * kDimBlocks + dim) * kBlockSize;
      for (unsigned pair = 0; pair < kBlock / 2; ++pair) {
        const auto factors = ForEachElement(state.corrections + query_block * kBlock + 2 * pair);
        const auto before = aie::load_v<2 * kBlock>(block + 2 * kBlock * pair);
        aie::store_v(block + 2 * kBlock * pair, aie::mul(before, factors).to_vector<float>());
      }
      Multiply sum(aie::load_v<kBlockSize>(block));
      for (unsigned key_block = 0; key_block < kKeyBlocks; ++key_block) {
        sum.mac(aie::load_v<kBlockSize>(probabilities +
                                        (query_block * kKeyBlocks + key_block) * kBlockSize),
                aie::load_v<kBlockSize>(values + (key_block * kDimBlocks + dim) * kBlockSize));
      }
      aie::store_v(block, sum.template to_vector<float>());
    }
  }
}

// output = sums / the softmax's sums, in blocks like the queries.
template <unsigned kHeadDim>
void Finish(const AttentionState& state, const float* sums, bfloat16* output) {
  constexpr unsigned kDimBlocks = kHeadDim / kBlock;
  for (unsigned query = 0; query < kAttentionQueries; query += 2) {
    const float factors[2] = {aie::inv(state.sums[query]), aie::inv(state.sums[query + 1])};
    const auto factor = ForEachElement(factors);
    for (unsigned dim = 0; dim < kDimBlocks; ++dim) {
      const unsigned offset =
          (query / kBlock * kDimBlocks + dim) * kBlockSize + query % kBlock * kBlock;
      aie::store_v(
          output + offset,
          aie::mul(aie::load_v<2 * kBlock>(sums + offset), factor).template to_vector<bfloat16>());
    }
  }
}

}  // namespace
}  // namespace tandem::npu

// An array is built for one head size.
#ifdef TANDEM_HEAD_DIM
using namespace tandem::npu;

TANDEM_CORE_FUNCTION void attention_begin(AttentionState* state, float* sums) {
  Start();
  Begin<TANDEM_HEAD_DIM>(*state, sums);
}
TANDEM_CORE_FUNCTION void attention_keys(const AttentionParameters* parameters, int32 first_key,
                                         const bfloat16* queries, const bfloat16* keys,
                                         float* scores, bfloat16* probabilities,
                                         AttentionState* state) {
  Scores<TANDEM_HEAD_DIM>(queries, keys, scores);
  Softmax(*parameters, first_key, scores, probabilities, *state);
}
TANDEM_CORE_FUNCTION void attention_values(const AttentionParameters* parameters, int32 first_key,
                                           const bfloat16* probabilities, bfloat16* values,
                                           const AttentionState* state, float* sums) {
  ZeroMissing<TANDEM_HEAD_DIM>(parameters->num_keys - first_key, values);
  Accumulate<TANDEM_HEAD_DIM>(probabilities, values, *state, sums);
}
TANDEM_CORE_FUNCTION void attention_end(const AttentionState* state, const float* sums,
                                        bfloat16* output) {
  Finish<TANDEM_HEAD_DIM>(*state, sums, output);
}
#endif
