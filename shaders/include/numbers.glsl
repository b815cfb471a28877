// Numbers that C++ has too, under its own names.  GpuShaderInterfaceTest compares every one of them:
// a number that both sides know stands here and there.
#ifndef TANDEM_NUMBERS_GLSL
#define TANDEM_NUMBERS_GLSL

// The step in memory: services/common/step/step_batch.h.  Offsets and sizes in bytes.
const uint kNoToken = 0xFFFFFFFFu;
const uint kNoDraw = 0xFFFFFFFFu;
const uint kNoMask = 0xFFFFFFFFu;
const uint kHeaderBytes = 64;  // StepHeader
const uint kNumRowsOffset = 4;
const uint kNumSequencesOffset = 8;
const uint kNumOutputsOffset = 12;
const uint kNumCandidatesOffset = 24;
const uint kTableLenOffset = 32;
const uint kNumDrawsOffset = 36;
const uint kNumPooledOffset = 48;
const uint kNumPicturesOffset = 56;
const uint kEntryBytes = 16;  // RowEntry, SequenceEntry and OutputEntry
const uint kRowPositionOffset = 4;
const uint kRowSequenceOffset = 8;
const uint kRowFeedOffset = 12;
const uint kTablesOffset = 8;  // of a SequenceEntry, by KvGroup
const uint kTargetOffset = 4;  // of an OutputEntry
const uint kDrawOffset = 8;
const uint kMaskOffset = 12;
const uint kDrawBytes = 20;  // DrawEntry: temperature first
const uint kTopKOffset = 4;
const uint kTopPOffset = 8;
const uint kMinPOffset = 12;
const uint kUniformOffset = 16;
const uint kPictureBytes = 8;  // PictureEntry: first_row, num_rows
const uint kMaxCandidates = 128;
const uint kCandidatesOffset = 16;  // of an OutputResult
const uint kResultBytes = kCandidatesOffset + 8 * kMaxCandidates;

// services/gpu_worker/kernels/attention_step.h.
const uint kAttentionEntryBytes = 16;  // AttentionRow and AttentionTile

// services/gpu_worker/kernels/activation_format.h, see activation.glsl.
const uint kActivationF32 = 0, kActivationF16 = 1, kActivationInt8 = 2, kActivationFragments = 3;
const uint kActivationBf16 = 4;
const uint kFragmentElements = 128;
const uint kUnitElements = 256;
const uint kUnitBytes = 288;
const float kGegluHalfScale = 64.0;

// Formats of the KV cache, see kv_cache.glsl: KvFormat in services/gpu_worker/kernels/attention_launches.h.
const uint kKvF16 = 0, kKvQ8_0 = 1;

// NormRows in services/gpu_worker/kernels/launches.h.
const uint kStepRows = 0, kGatheredRows = 1, kOutputRows = 2;

// MatrixOutput in services/gpu_worker/kernels/matrix_launches.h.
const uint kOutputF32 = 0;       // products
const uint kOutputGegluF32 = 1;  // gelu_tanh(gate) * up
const uint kOutputGegluF16 = 2;  // the same divided by kGegluHalfScale
// Of the vision encoder: float16 of products and their column's bias.
const uint kOutputBiasGeluF16 = 3;  // gelu_tanh of it, divided by kGegluHalfScale
const uint kOutputHeadsF16 = 4;     // in pages of heads (kv_cache.glsl)

// services/gpu_worker/kernels/phases.h, see phase.glsl.
const uint kDependencyCounterBytes = 64;  // DependencyCounter
const uint kWaits = 1;        // for the phase before
const uint kCounts = 2;       // what ends

const uint kTileRows = 32;         // of packed weights: services/common/tensor/packed_row.h
const uint kCopyPiece = 2048;      // columns of a workgroup of copy_rows.comp
const uint kPageTurns = 4;         // units of an invocation of copy_pages.comp
const uint kMaxHeadSlice = 16384;  // tokens of a slice of head_slice.comp
const uint kMaxPoolThreads = 256;  // of a workgroup of pool.comp
const uint kMaxElements = 16;      // of a lane in the probes: kMaxFragmentElements
#endif
