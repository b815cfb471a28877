// Stages, the tensors between them, and segments: the vocabulary of placement.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// One unit of placement.  A decoder of L layers is, in order: Embed, then for each layer
// Qkv, Attend, Out, Ffn, then Head.
//
//   Embed      residual = embedding[token] * embedding_scale
//   Qkv(i)     q, k, v = split(Wqkv * rmsnorm(residual)); q, k normed per head and rotated
//   Attend(i)  KV append, attention = softmax(q k^T * scale) v
//   Out(i)     projection = Wo * attention
//   Ffn(i)     residual += rmsnorm(projection)
//              gate, up = Wgu * rmsnorm(residual)
//              residual += rmsnorm(Wdown * (gelu_tanh(gate) * up))
//   Head       logits = Wembed * rmsnorm(residual), top candidates and log-sum-exp
//
// A model that reads pictures has one more stage, which no decoder's plan holds: it is the only
// stage of a plan of its own.
//
//   Vision     soft tokens = projector(encoder(pixels)), of whole pictures
enum class StageKind : uint8_t { kEmbed, kQkv, kAttend, kOut, kFfn, kHead, kVision };
inline constexpr int kNumDecoderStageKinds = 6;
inline constexpr int kNumStageKinds = 7;

// "Qkv".
std::string_view StageKindName(StageKind kind);
// Whether every layer of the decoder has one.
inline bool IsOfLayer(StageKind kind) { return kind >= StageKind::kQkv && kind <= StageKind::kFfn; }

struct Stage {
  StageKind kind = StageKind::kEmbed;
  uint32_t layer_idx = 0;  // 0 for kEmbed, kHead and kVision
  friend bool operator==(const Stage&, const Stage&) = default;
};

// "Qkv(3)", "Head".
std::string StageName(Stage stage);

// Stages of a decoder.
inline uint32_t NumStages(uint32_t num_layers) { return 4 * num_layers + 2; }
// The ordinal of Vision, after those of the decoder.
inline uint32_t VisionOrdinal(uint32_t num_layers) { return NumStages(num_layers); }
// Position of a stage in the order above, and back.  REQUIRES ordinal <= VisionOrdinal(num_layers).
uint32_t StageOrdinal(Stage stage, uint32_t num_layers);
Stage StageAt(uint32_t ordinal, uint32_t num_layers);

// The activations that can cross from one worker to another, as bits of a mask.  Shapes per row;
// "16 bits": float16 or bfloat16, one of them for all ports of a plan (Plan::port_dtype).
enum class Port : uint32_t {
  kResidual = 1u << 0,    // float32 [hidden_dim]
  kQ = 1u << 1,           // 16 bits [num_heads, head_dim]
  kK = 1u << 2,           // 16 bits [num_kv_heads, head_dim]
  kV = 1u << 3,           // 16 bits [num_kv_heads, head_dim]
  kAttention = 1u << 4,   // 16 bits [num_heads, head_dim]
  kProjection = 1u << 5,  // float32 [hidden_dim]
};
inline constexpr int kNumPorts = 6;
using PortMask = uint32_t;
inline constexpr PortMask operator|(Port a, Port b) {
  return static_cast<PortMask>(a) | static_cast<PortMask>(b);
}
inline constexpr PortMask operator|(PortMask a, Port b) { return a | static_cast<PortMask>(b); }
inline constexpr bool Has(PortMask mask, Port port) {
  return (mask & static_cast<PortMask>(port)) != 0;
}

// The tensors a stage reads and writes, when none of its neighbours is on its worker.
PortMask InputsOf(StageKind kind);
PortMask OutputsOf(StageKind kind);

// A maximal run of consecutive stages on one worker; one segment is one call.
struct Segment {
  uint32_t index = 0;          // position in the plan
  uint32_t worker = 0;         // index into the plan's workers
  uint32_t first_ordinal = 0;  // stages [first_ordinal, last_ordinal], inclusive
  uint32_t last_ordinal = 0;
  PortMask inputs = 0;   // read from the exchange region before the first stage
  PortMask outputs = 0;  // written to the exchange region by the segment's end
};

}  // namespace tandem
