// A decoded instruction.  All vector encodings become the fields of VOP3, so that an operation is
// written once: VOP1, VOP2, VOPC and DPP are VOP3 with fewer fields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "services/gpu_worker/emulator/isa/dispatch.h"

namespace tandem::rdna {

struct Wave;
struct Instruction;
using Handler = void (*)(Wave&, const Instruction&);

// Codes of scalar operands and of sources.
enum OperandCode : uint16_t {
  kVccLo = 106,
  kNull = 124,
  kM0 = 125,
  kExecLo = 126,
  kZero = 128,  // to 192: 0 to 64; 193 to 208: -1 to -16
  kDpp8 = 233,
  kDpp8FetchInactive = 234,
  kFloatConstants = 240,  // to 248
  kDpp16 = 250,
  kVccZero = 251,
  kExecZero = 252,
  kScc = 253,
  kLiteral = 255,
  kVgpr = 256,  // to 511
};

// What Counters counts.
enum class Kind : uint8_t {
  kScalar,
  kScalarLoad,
  kVector,
  kDot,
  kMatrix,
  kLds,
  kLoad,
  kStore,
  kAtomic,
  kWait,
  kBranch,
  kBarrier,
  kNumKinds,
};

// Which lane a vector operation takes its first source from.
struct LaneSwap {
  enum class Form : uint8_t { kNone, kOfEight, kOfRow };  // DPP8, DPP16
  Form form = Form::kNone;
  uint16_t control = 0;        // DPP16's, 9 bits
  uint8_t row_mask = 0xf;      // rows of 16 lanes that are written
  uint8_t bank_mask = 0xf;     // groups of 4 lanes in each row
  bool bound_control = false;  // lanes without a source read 0; false: they are not written
  bool fetch_inactive = false;
  uint32_t lanes = 0;  // DPP8's, 3 bits for each of 8 lanes
};

// Half of a VOPD: both halves read before either writes.
struct DualHalf {
  uint8_t op = 0;
  uint8_t dst = 0;
  std::array<uint16_t, 2> src = {};
};

struct Instruction {
  Handler handler = nullptr;
  const char* name = "";
  Kind kind = Kind::kScalar;
  uint8_t dwords = 1;
  uint16_t op = 0;    // in its encoding
  uint16_t dst = 0;   // of a VGPR without 256, of a scalar its code
  uint16_t sdst = 0;  // the second, scalar destination
  std::array<uint16_t, 3> src = {};
  uint8_t abs = 0, neg = 0;  // a bit for each source; of VOP3P: neg_hi and neg_lo
  uint8_t op_sel = 0;        // a bit for each source, and bit 3: the destination's high half
  uint8_t op_sel_hi = 0;     // of VOP3P
  uint8_t omod = 0;          // 1: times 2, 2: times 4, 3: divided by 2
  bool clamp = false;
  bool glc = false;  // atomics return the old value
  uint32_t literal = 0;
  LaneSwap swap;
  std::array<DualHalf, 2> dual;
  // Of memory: byte offset; DS has two of 8 bits in offset and offset1 for 2-address forms.
  int32_t offset = 0;
  uint8_t offset0 = 0, offset1 = 0;
  uint8_t address = 0;          // VGPR
  uint8_t data = 0, data1 = 0;  // VGPRs
  uint8_t saddr = kNull;        // SGPR; of MUBUF: the descriptor's first
  uint8_t soffset = kNull;
  uint8_t segment = 0;                                 // of FLAT: 0 flat, 1 scratch, 2 global
  bool index_enabled = false, offset_enabled = false;  // of MUBUF
  bool scratch_vgpr = false;                           // the lane's offset in scratch is in a VGPR
};

// Decodes the instruction at `words`; `available` of them can be read.  An instruction that is not
// known, or has an operand that is not, gets no handler, and `unknown` says what it is.
Instruction Decode(Gfx gfx, const uint32_t* words, size_t available, std::string& unknown);

}  // namespace tandem::rdna
