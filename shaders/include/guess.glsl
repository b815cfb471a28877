// The token guessed from an output's candidates (DrawEntry, services/common/worker/step_batch.h):
// the Sampler's draw in float32, sums by a scan over the ranks.  One workgroup for one output.
#ifndef TANDEM_GUESS_GLSL
#define TANDEM_GUESS_GLSL
#include "top_candidates.glsl"

shared uint ranked_tokens[kMaxCandidates];
shared float ranked_logits[kMaxCandidates];
shared float draw_weights[kMaxCandidates];
shared float draw_sums[2][kMaxCandidates];
shared uint num_kept, num_passed;

// `draw`: address of the entry, 0 where the best candidate is the guess.  ranked_tokens and
// ranked_logits hold `count` candidates, just written.  Every invocation gets the token.
uint guess_token(uint64_t draw, uint count) {
  barrier();
  if (count == 0) return 0;
  if (draw == 0) return ranked_tokens[0];
  uint local = gl_LocalInvocationIndex, threads = gl_WorkGroupSize.x;
  float temperature = load_float(draw), top_p = load_float(draw + 8);
  float min_p = load_float(draw + 12), uniform_draw = load_float(draw + 16);
  count = min(count, load_uint(draw + 4));
  for (uint i = local; i < count; i += threads) {
    float weight = exp((ranked_logits[i] - ranked_logits[0]) / temperature);
    draw_weights[i] = draw_sums[0][i] = weight;
  }
  if (local == 0) num_kept = num_passed = 0;
  barrier();
  uint from = 0;
  for (uint offset = 1; offset < count; offset *= 2) {
    for (uint i = local; i < count; i += threads) {
      float before = i >= offset ? draw_sums[from][i - offset] : 0.0;
      draw_sums[1 - from][i] = draw_sums[from][i] + before;
    }
    from = 1 - from;
    barrier();
  }
  float wanted = top_p * draw_sums[from][count - 1];
  for (uint i = local; i < count; i += threads) {
    float before = i == 0 ? 0.0 : draw_sums[from][i - 1];
    if ((top_p >= 1.0 || before < wanted) && draw_weights[i] >= min_p) atomicAdd(num_kept, 1);
  }
  barrier();
  uint kept = max(num_kept, 1);
  float target = uniform_draw * draw_sums[from][kept - 1];
  for (uint i = local; i + 1 < kept; i += threads) {
    if (!(draw_sums[from][i] > target)) atomicAdd(num_passed, 1);
  }
  barrier();
  return ranked_tokens[min(num_passed, kept - 1)];
}
#endif
