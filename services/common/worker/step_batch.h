// One step's rows, as they lie in the exchange region.
//
// The gateway writes the *step area* of a lane; workers read it, and take nothing in it on
// trust: ParseStep copies the counts out, checks every index, and only then is a row used.
//
//   StepHeader | RowEntry[num_rows] | SequenceEntry[num_sequences] | OutputEntry[num_outputs]
//              | uint32 block_table[table_len] | DrawEntry[num_draws] | uint32 pools[num_pools]
//
// All parts follow one another without gaps, little-endian, 16-byte aligned up to the table.
// Rows of one sequence are consecutive and their positions increase by one.
//
// KV cache paging: positions are stored in blocks of `block_tokens`.  There are two *groups* of
// layers, each with its own pool of blocks and its own table per sequence: kGlobalGroup for
// layers that attend to everything, kWindowGroup for layers with a sliding window.  Position p of
// a sequence lies in block table[p / block_tokens] at slot p % block_tokens, in every layer of the
// group.  A window table's entries before the window of every row in the step may be kNoBlock:
// they have been given back.  Block ids are below KvSpec::num_blocks of the group.  Sequences may
// share blocks that no row of the step lies in.
//
// Feeding: a step may be queued while the one before it runs, before anybody has decided that
// one's tokens.  Every output has the device *guess* the token it leads to: the best candidate,
// or the one that the output's DrawEntry draws.  A row with `feed` takes the guess of an output of
// the step before for its token.  Guesses are reported (area guesses of the exchange layout); who
// decides otherwise throws the row's result away and computes it anew.
//
// Pooling: for each of `pools`, an index of a sequence, the head sums the final-normed hidden
// states of that sequence's rows in the step (area pooled of the exchange layout).  No logits are
// made for it: a step that pools and has no outputs needs the final norm alone.
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
  uint32_t num_pools = 0;
  uint32_t reserved[3] = {};
};
static_assert(sizeof(StepHeader) == 64);

struct RowEntry {
  uint32_t token = 0;  // means nothing where the row is fed
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

// A row whose logits are wanted.
struct OutputEntry {
  uint32_t row = 0;
  uint32_t target = kNoToken;  // a token whose logit is reported whatever its rank
  uint32_t draw = kNoDraw;     // index of the DrawEntry that guesses; kNoDraw: the best candidate
  uint32_t reserved = 0;
};
static_assert(sizeof(OutputEntry) == 16);

// How a token is guessed from an output's candidates: of the first top_k, those up to and with the
// one at which their weights exp((logit - best) / temperature) add up to top_p of the whole, of
// those the ones that weigh at least min_p; and of these the first at which the sum of weights
// exceeds uniform times the whole.  The gateway's Sampler does the same in float64.
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
  float log_sum_exp = 0.0f;  // over the whole vocabulary: logprob = logit - log_sum_exp
  float target_logit = 0.0f;
  uint32_t num_candidates = 0;
  uint32_t num_nonfinite = 0;  // logits that were NaN or infinite; a healthy model has none
  Candidate candidates[kMaxCandidates];  // logits descending; ties by lower token id
};
static_assert(sizeof(OutputResult) == 16 + 8 * kMaxCandidates);

// Limits a step is checked against.
struct StepLimits {
  uint32_t max_rows = 0;
  uint32_t max_sequences = 0;  // and pools
  uint32_t max_outputs = 0;
  uint32_t max_logit_outputs = 0;  // outputs in a step with want_logits
  uint32_t max_table_len = 0;
  uint32_t vocab_size = 0;
  uint32_t context_len = 0;
  uint32_t block_tokens = 0;
  uint32_t sliding_window = 0;
  uint32_t num_blocks[kNumKvGroups] = {};
  DType kv_dtype = DType::kF16;
};

// First entry of a window table that rows from `first_position` on can see: what lies before it may
// be kNoBlock.
inline uint32_t FirstWindowBlock(uint32_t first_position, uint32_t sliding_window,
                                 uint32_t block_tokens) {
  const uint64_t seen = uint64_t{first_position} + 1;
  return seen > sliding_window ? static_cast<uint32_t>((seen - sliding_window) / block_tokens) : 0;
}

// A step's parts; spans point into whatever holds the bytes.
struct StepBatch {
  StepHeader header;
  std::span<const RowEntry> rows;
  std::span<const SequenceEntry> sequences;
  std::span<const OutputEntry> outputs;
  std::span<const uint32_t> block_table;
  std::span<const DrawEntry> draws;
  std::span<const uint32_t> pools;  // indices of sequences, ascending
};

// Bytes of a step area that holds any step within `limits`.
size_t StepAreaBytes(const StepLimits& limits);
// Bytes of one particular step, StepHeader included.
size_t StepBytes(const StepHeader& header);
// From the step's start to its block_table.
size_t BlockTableOffset(const StepHeader& header);

// Copies the step at the start of `area` into `storage` (resized as needed, reused between calls)
// and checks it there, so that a writer who changes the area afterwards changes nothing.
// INVALID_ARGUMENT names the entry, its value and the limit.
absl::StatusOr<StepBatch> ParseStep(std::span<const std::byte> area, const StepLimits& limits,
                                    std::vector<std::byte>& storage);

// Lays `batch` out at the start of `area`.  REQUIRES it fits.  Returns the bytes written.
size_t WriteStep(const StepBatch& batch, std::span<std::byte> area);

}  // namespace tandem
