// One step's rows, as they lie in the exchange region.
//
// The gateway writes the *step area* of a lane, and workers read it.  They do not trust it:
// ParseStep copies the step and checks every count and index before a row is used.
//
//   StepHeader | RowEntry[num_rows] | SequenceEntry[num_sequences] | OutputEntry[num_outputs]
//              | uint32 block_table[table_len] | DrawEntry[num_draws] | uint32 pooled[num_pooled]
//              | PictureEntry[num_pictures]
//
// All parts follow one another without gaps, little-endian, 16-byte aligned up to the table.
// Rows of one sequence are consecutive and their positions increase by one.
//
// KV cache paging: positions are stored in blocks of `block_tokens`.  There are two *groups* of
// layers, each with its own pool of blocks and its own table per sequence: kGlobalGroup for
// layers that attend to all positions, kWindowGroup for sliding-window layers.  Position p of
// a sequence lies in block table[p / block_tokens] at slot p % block_tokens, in every layer of the
// group.  A window table's entries before the window of every row in the step may be kNoBlock:
// they are freed.  Block ids are below KvSpec::num_blocks of the group.  Sequences may
// share blocks that no row of the step lies in.
//
// Feeding: a step may be queued while the step before it runs and its tokens are not decided yet.
// For every output the device chooses a speculative token: the best candidate, or the one that the
// output's DrawEntry draws.  A row with `feed` takes the speculative token of an output of the step
// before.  The worker reports all of them (area guesses of the exchange layout).  If the sampler
// rejects one, the gateway drops the row's result and computes the row again.
//
// Masks: an output may have a mask, a bit for each token of the vocabulary (area masks of the
// exchange layout; bit t % 32 of word t / 32).  The head then takes candidates, log-sum-exp and the
// speculative token from the tokens whose bit is set.  want_logits still reports every logit.
//
// Pooling: for each of `pooled`, an index of a sequence, the head sums the final-normed hidden
// states of that sequence's rows in the step (area pooled of the exchange layout).  This needs no
// logits: for a step that pools and has no outputs the head computes only the final norm.
//
// Pictures: a picture is picture_rows (StepLimits) consecutive positions of a sequence.  If row r of
// the step is a picture's, Embed takes it from row r of area soft_tokens (exchange layout) instead
// of the vocabulary, as it is.  Attend lets the rows of a picture see each other in both directions,
// whatever the layer's window, and earlier positions as other rows do.  A step ends behind the last
// row of a picture or before the first.  It may begin within the picture if the KV cache has the
// earlier rows, of a step that computed all of them.  Then it has the last rows, as the first rows
// of their sequence, and its window table has the blocks from the picture's first position on.
//
// Vision: a step of a vision plan has pictures alone, and no rows, sequences or outputs.  The pixels
// of picture p are row p of area pixels; its soft tokens go to rows [p * picture_rows, +picture_rows)
// of area soft_tokens, which its PictureEntry names.  The limits of such a plan have max_rows 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"

namespace tandem {

inline constexpr uint32_t kStepMagic = 0x53444E54;  // "TNDS"
inline constexpr uint32_t kNoBlock = 0xFFFFFFFFu;
inline constexpr uint32_t kNoToken = 0xFFFFFFFFu;
inline constexpr uint32_t kNoDraw = 0xFFFFFFFFu;
inline constexpr uint32_t kNoMask = 0xFFFFFFFFu;
inline constexpr int kNumKvGroups = 2;
enum KvGroup : uint32_t { kGlobalGroup = 0, kWindowGroup = 1 };
// Most candidates the head reports for a row.  A sampler that needs more asks for the logits.
inline constexpr uint32_t kMaxCandidates = 128;

struct StepHeader {
  uint32_t magic = kStepMagic;
  uint32_t num_rows = 0;
  uint32_t num_sequences = 0;
  uint32_t num_outputs = 0;
  uint64_t step_id = 0;
  uint32_t num_candidates = 0;  // 1..kMaxCandidates, for every output
  uint32_t want_logits = 0;     // 1: the head also writes every logit of every output
  uint32_t table_len = 0;
  uint32_t num_draws = 0;
  uint64_t after_step = 0;  // the step whose guesses rows take; 0: no row does
  uint32_t num_pooled = 0;
  uint32_t num_masks = 0;
  uint32_t num_pictures = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(StepHeader) == 64);

struct RowEntry {
  uint32_t token = 0;  // ignored if the row is fed
  uint32_t position = 0;
  uint32_t sequence = 0;  // index into the sequences of this step
  uint32_t feed = 0;  // o + 1: the token is the guess of output o of after_step; 0: it is `token`
};
static_assert(sizeof(RowEntry) == 16);

struct SequenceEntry {
  uint32_t first_row = 0;
  uint32_t num_rows = 0;
  uint32_t table_offset[kNumKvGroups] = {};  // into block_table, one per KvGroup
  // Each table has ceil((position of the last row + 1) / block_tokens) entries.
};
static_assert(sizeof(SequenceEntry) == 16);

// The last rows of a picture: all of them, unless first_row is the first row of its sequence.
struct PictureEntry {
  uint32_t first_row = 0;
  uint32_t num_rows = 0;  // 1..StepLimits::picture_rows; of a vision plan picture_rows
};
static_assert(sizeof(PictureEntry) == 8);

// A row whose logits are wanted.
struct OutputEntry {
  uint32_t row = 0;
  uint32_t target = kNoToken;  // a token whose logit is reported whatever its rank
  uint32_t draw = kNoDraw;     // index of the DrawEntry that guesses; kNoDraw: the best candidate
  uint32_t mask = kNoMask;  // index of its mask; kNoMask: every token is allowed.  No target then
};
static_assert(sizeof(OutputEntry) == 16);

// How the device guesses a token from an output's candidates.  A candidate's weight is
// exp((logit - best) / temperature).
//   1. Keep the first top_k candidates.
//   2. Of these keep the fewest whose weights add up to top_p of the sum.
//   3. Of these keep the ones that weigh at least min_p.
//   4. Take the first at which the running sum exceeds uniform times the sum of those kept.
// The gateway's Sampler does the same in float64.
struct DrawEntry {
  float temperature = 1.0f;  // above 0
  uint32_t top_k = 1;        // 1..kMaxCandidates
  float top_p = 1.0f;        // in (0, 1]; 1 keeps all
  float min_p = 0.0f;
  float uniform = 0.0f;  // in [0, 1]
};
static_assert(sizeof(DrawEntry) == 20);

// What the head writes for output o of the step (area kCandidates of the exchange layout, stride
// sizeof(OutputResult)).
struct Candidate {
  uint32_t token = 0;
  float logit = 0.0f;
};
struct OutputResult {
  float log_sum_exp = 0.0f;  // over the allowed tokens: logprob = logit - log_sum_exp
  float target_logit = 0.0f;
  uint32_t num_candidates = 0;
  // Logits that were NaN or infinite, whether allowed or not; a healthy model has none.
  uint32_t num_nonfinite = 0;
  Candidate candidates[kMaxCandidates];  // logits descending; ties by lower token id
};
static_assert(sizeof(OutputResult) == 16 + 8 * kMaxCandidates);

// Limits a step is checked against.
struct StepLimits {
  uint32_t max_rows = 0;
  uint32_t max_sequences = 0;  // so many can also be pooled, and so many masks there can be
  uint32_t max_outputs = 0;
  uint32_t max_logit_outputs = 0;  // outputs in a step with want_logits
  uint32_t max_table_len = 0;
  uint32_t vocab_size = 0;
  uint32_t context_len = 0;
  uint32_t block_tokens = 0;
  uint32_t sliding_window = 0;
  uint32_t num_blocks[kNumKvGroups] = {};
  DType kv_dtype = DType::kF16;
  uint32_t max_pictures = 0;  // 0: steps have none
  uint32_t picture_rows = 0;  // of a whole picture: soft tokens that the encoder makes of it
  // The exchange region's area for copies of KV blocks (kv_copy.h); 0: the plan makes no copies.
  uint64_t kv_area_bytes = 0;

  // Of a vision plan, whose steps have pictures alone.
  bool vision() const { return max_rows == 0; }
};

// Limits of a vision plan.
StepLimits VisionLimits(uint32_t max_pictures, uint32_t picture_rows);

// 32-bit words of a mask.
inline uint32_t MaskWords(uint32_t vocab_size) { return (vocab_size + 31) / 32; }

// First entry of a window table that rows from `first_position` on can see.  Earlier entries may be
// kNoBlock, unless `first_position` lies within a picture, whose rows also see its first position.
inline uint32_t FirstWindowBlock(uint32_t first_position, uint32_t sliding_window,
                                 uint32_t block_tokens) {
  const uint64_t seen = uint64_t{first_position} + 1;
  return seen > sliding_window ? static_cast<uint32_t>((seen - sliding_window) / block_tokens) : 0;
}

// A step's parts; the spans are borrowed from the memory that holds the step.
struct StepBatch {
  StepHeader header;
  std::span<const RowEntry> rows;
  std::span<const SequenceEntry> sequences;
  std::span<const OutputEntry> outputs;
  std::span<const uint32_t> block_table;
  std::span<const DrawEntry> draws;
  std::span<const uint32_t> pooled;             // indices of sequences, ascending
  std::span<const PictureEntry> pictures = {};  // ascending
};

// Position of a picture's first row, which may lie before the sequence's first row in the step.
// REQUIRES a picture that ParseStep let pass, not of a vision plan.
inline uint32_t FirstPosition(const PictureEntry& picture, std::span<const RowEntry> rows,
                              uint32_t picture_rows) {
  return rows[picture.first_row + picture.num_rows - 1].position + 1 - picture_rows;
}

// Bytes of a step area that holds any step within `limits`.
size_t StepAreaBytes(const StepLimits& limits);
// Bytes of one particular step, StepHeader included.
size_t StepBytes(const StepHeader& header);
// From the step's start to its block_table.
size_t BlockTableOffset(const StepHeader& header);

// Copies the step at the start of `area` into `storage` (resized as needed, reused between calls)
// and checks the copy, so that later writes to the area have no effect.
// INVALID_ARGUMENT names the entry, its value and the limit.
absl::StatusOr<StepBatch> ParseStep(std::span<const std::byte> area, const StepLimits& limits,
                                    std::vector<std::byte>& storage);

// Writes `batch` to the start of `area`.  REQUIRES: it fits.  Returns the bytes written.
size_t WriteStep(const StepBatch& batch, std::span<std::byte> area);

}  // namespace tandem
