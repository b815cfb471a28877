// The token guessed from an output's candidates (DrawEntry, services/common/step/step_batch.h): the
// Sampler's draw in float32.  One workgroup for one output; one invocation adds up, rank by rank as
// the Sampler does, so that no barrier depends on the draw.
#ifndef TANDEM_GUESS_GLSL
#define TANDEM_GUESS_GLSL
#include "top_candidates.glsl"

shared uint ranked_tokens[kMaxCandidates];
shared float ranked_logits[kMaxCandidates];
shared float draw_weights[kMaxCandidates];

// The rank drawn from the first `count` weights; there is at least one.
uint draw_rank(uint64_t draw, uint count) {
  float top_p = load_float(draw + kTopPOffset), min_p = load_float(draw + kMinPOffset);
  float sum = 0.0, kept = 0.0, passed = 0.0;
  for (uint i = 0; i < count; ++i) sum += draw_weights[i];
  float wanted = top_p * sum;
  uint num_kept = 0;
  for (uint i = 0; i < count; ++i) {
    if ((top_p < 1.0 && kept >= wanted) || draw_weights[i] < min_p) break;
    kept += draw_weights[i];
    ++num_kept;
  }
  float target = load_float(draw + kUniformOffset) * kept;
  for (uint i = 0; i + 1 < num_kept; ++i) {
    passed += draw_weights[i];
    if (passed > target) return i;
  }
  return max(num_kept, 1) - 1;
}

// `draw`: address of the entry, 0 where the best candidate is the guess.  ranked_tokens and
// ranked_logits hold `count` candidates, just written.  The first invocation gets the token.
uint guess_token(uint64_t draw, uint count) {
  uint local = gl_LocalInvocationIndex;
  barrier();
  if (draw != 0) {
    float temperature = load_float(draw);
    for (uint i = local; i < count; i += gl_WorkGroupSize.x) {
      draw_weights[i] = exp((ranked_logits[i] - ranked_logits[0]) / temperature);
    }
  }
  barrier();
  if (local != 0 || count == 0) return 0;
  return ranked_tokens[draw == 0 ? 0 : draw_rank(draw, min(count, load_uint(draw + kTopKOffset)))];
}
#endif
