#include "services/gpu_worker/emulator/isa/decode_vector.h"

#include "services/gpu_worker/emulator/isa/lookup.h"
#include "services/gpu_worker/emulator/isa/scalar_operand.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// All operations by VOP3's numbers.
const Lookup& VectorLookup() {
  static const Lookup kLookup({CompareTable(), MoveTable(), FloatTable(), Vop2Table(),
                               Vop3IntegerTable(), Vop3ShortTable(), Vop3FloatTable(), CarryTable(),
                               LaneTable(), HalfDotTable()});
  return kLookup;
}

// Numbers of VOP3's encoding with a meaning for the decoder.
enum VectorOp : uint32_t {
  kFirstCmpx = 128,
  kFirstVop2 = 256,
  kCndmask = 257,
  kDot2acc = 258,
  kFmacDx9 = 262,
  kAddCoCi = 288,
  kSubrevCoCi = 290,
  kFmac32 = 299,
  kFmamk32 = 300,
  kFmaak32 = 301,
  kFmac16 = 310,
  kFmamk16 = 311,
  kFmaak16 = 312,
  kPkFmac16 = 316,
  kFirstVop1 = 384,
  kFirstVop3 = 512,
  kDivScale32 = 764,
  kSubrevCo = 770,
};

bool IsFmac(uint32_t op) {
  return op == kDot2acc || op == kFmacDx9 || op == kFmac32 || op == kFmac16 || op == kPkFmac16;
}
bool IsFmamk(uint32_t op) { return op == kFmamk32 || op == kFmamk16; }
bool IsFmaak(uint32_t op) { return op == kFmaak32 || op == kFmaak16; }
// A second, scalar destination takes the place of abs and op_sel.
bool HasScalarDestination(uint32_t op) {
  return (op >= kAddCoCi && op <= kSubrevCoCi) || (op >= kDivScale32 && op <= kSubrevCo);
}

// Source 0 stands for a DPP word or a literal; takes that word.
void TakeExtraWord(Decoder& d, int num_sources) {
  Instruction& out = d.out;
  const uint16_t form = out.src[0];
  if (num_sources > 0 && (form == kDpp8 || form == kDpp8FetchInactive)) {
    const uint32_t word = d.NextWord();
    out.swap = {.form = LaneSwap::Form::kOfEight,
                .bound_control = true,
                .fetch_inactive = form == kDpp8FetchInactive,
                .lanes = word >> 8};
    out.src[0] = static_cast<uint16_t>(kVgpr + (word & 0xff));
  } else if (num_sources > 0 && form == kDpp16) {
    const uint32_t word = d.NextWord();
    out.swap = {.form = LaneSwap::Form::kOfRow,
                .control = static_cast<uint16_t>(word >> 8 & 0x1ff),
                .row_mask = static_cast<uint8_t>(word >> 28),
                .bank_mask = static_cast<uint8_t>(word >> 24 & 15),
                .bound_control = (word >> 19 & 1) != 0,
                .fetch_inactive = (word >> 18 & 1) != 0};
    out.neg |= static_cast<uint8_t>((word >> 20 & 1) | (word >> 22 & 1) << 1);
    out.abs |= static_cast<uint8_t>((word >> 21 & 1) | (word >> 23 & 1) << 1);
    out.src[0] = static_cast<uint16_t>(kVgpr + (word & 0xff));
    const uint32_t group = out.swap.control & 0x1f0;
    const bool known = out.swap.control <= 0xff || (group >= 0x100 && group <= 0x120) ||
                       out.swap.control == 0x140 || out.swap.control == 0x141 || group == 0x150 ||
                       group == 0x160;
    if (!known) d.Refuse("DPP control " + std::to_string(out.swap.control));
  } else {
    for (int index = 0; index < num_sources; ++index) {
      if (out.src[index] != kLiteral) continue;
      out.literal = d.NextWord();
      break;
    }
  }
}

void CheckVectorSources(Decoder& d, int num_sources) {
  for (int index = 0; index < num_sources; ++index) {
    const uint16_t code = d.out.src[index];
    if (code >= kVgpr || IsKnownScalarSource(code)) continue;
    d.Refuse(std::string(d.out.name) + " with source operand " + std::to_string(code));
  }
}

// The short encodings name a half of 16 bits by the register's highest bit.
void SplitHalves(Instruction& out, const Entry& entry) {
  for (int index = 0; index < 2; ++index) {
    if ((entry.halves >> index & 1) == 0 || out.src[index] < kVgpr) continue;
    const uint32_t number = out.src[index] - kVgpr;
    out.src[index] = static_cast<uint16_t>(kVgpr + (number & 127));
    out.op_sel |= static_cast<uint8_t>((number >> 7) << index);
  }
  if ((entry.halves & 8) != 0) {
    out.op_sel |= static_cast<uint8_t>((out.dst >> 7) << 3);
    out.dst &= 127;
  }
}

// The destination is the third source.
void AccumulateDestination(Instruction& out, const Entry& entry) {
  out.src[2] = static_cast<uint16_t>(kVgpr + out.dst);
  if ((entry.halves & 8) != 0 && (out.op_sel & 8) != 0) out.op_sel |= 4;
}

}  // namespace

void DecodeShortVector(Decoder& d) {
  const uint32_t prefix = d.Bits(0, 25, 7);
  constexpr uint32_t kVop1 = 0x3f, kVopc = 0x3e;
  uint32_t op = 0;
  const char* encoding = "VOP2";
  uint32_t own_op = d.Bits(0, 25, 6);
  if (prefix == kVop1) {
    encoding = "VOP1";
    own_op = d.Bits(0, 9, 8);
    op = kFirstVop1 + own_op;
  } else if (prefix == kVopc) {
    encoding = "VOPC";
    op = own_op = d.Bits(0, 17, 8);
  } else {
    op = kFirstVop2 + own_op;
  }
  const Entry* entry = VectorLookup().Find(op);
  if (prefix == kVop1 && own_op >= kFirstVop3 - kFirstVop1) entry = nullptr;
  if (!d.Begin(encoding, own_op, entry)) return;
  Instruction& out = d.out;
  out.op = static_cast<uint16_t>(op);
  out.src[0] = d.Code(0, 0, 9);
  out.dst = d.Code(0, 17, 8);
  int num_sources = entry->num_sources;
  if (prefix != kVop1) out.src[1] = static_cast<uint16_t>(kVgpr + d.Bits(0, 9, 8));
  if (prefix == kVopc) {
    out.dst = 0;
    out.sdst = op >= kFirstCmpx ? kExecLo : kVccLo;
  }
  if (op == kCndmask || (op >= kAddCoCi && op <= kSubrevCoCi)) {
    out.src[2] = kVccLo;
    out.sdst = kVccLo;
  }
  TakeExtraWord(d, std::min(num_sources, prefix == kVop1 ? 1 : 2));
  SplitHalves(out, *entry);
  if (IsFmac(op)) AccumulateDestination(out, *entry);
  if (IsFmamk(op) || IsFmaak(op)) {
    if (out.src[0] != kLiteral) out.literal = d.NextWord();
    if (IsFmaak(op)) {
      out.src[2] = kLiteral;
    } else {
      // a * literal + b.
      out.src[2] = out.src[1];
      out.src[1] = kLiteral;
      out.op_sel = static_cast<uint8_t>((out.op_sel & 9) | (out.op_sel & 2) << 1);
    }
  }
  CheckVectorSources(d, num_sources);
}

void DecodeVop3(Decoder& d) {
  d.out.dwords = 2;
  const uint32_t op = d.Bits(0, 16, 10);
  const Entry* entry = VectorLookup().Find(op);
  if (IsFmamk(op) || IsFmaak(op)) entry = nullptr;
  if (!d.Begin("VOP3", op, entry)) return;
  Instruction& out = d.out;
  out.dst = d.Code(0, 0, 8);
  out.clamp = d.Bits(0, 15, 1) != 0;
  out.src = {d.Code(1, 0, 9), d.Code(1, 9, 9), d.Code(1, 18, 9)};
  out.omod = static_cast<uint8_t>(d.Bits(1, 27, 2));
  out.neg = static_cast<uint8_t>(d.Bits(1, 29, 3));
  if (HasScalarDestination(op)) {
    out.sdst = d.Code(0, 8, 7);
  } else {
    out.abs = static_cast<uint8_t>(d.Bits(0, 8, 3));
    out.op_sel = static_cast<uint8_t>(d.Bits(0, 11, 4));
  }
  if (op < kFirstVop2) {
    out.sdst = op >= kFirstCmpx ? static_cast<uint16_t>(kExecLo) : out.dst;
    out.dst = 0;
  }
  TakeExtraWord(d, entry->num_sources);
  if (IsFmac(op)) AccumulateDestination(out, *entry);
  CheckVectorSources(d, entry->num_sources);
}

void DecodePacked(Decoder& d) {
  static const Lookup kLookup({PackedTable(), MatrixTable()});
  d.out.dwords = 2;
  const uint32_t op = d.Bits(0, 16, 7);
  const Entry* entry = kLookup.Find(op);
  if (!d.Begin("VOP3P", op, entry)) return;
  Instruction& out = d.out;
  out.dst = d.Code(0, 0, 8);
  out.abs = static_cast<uint8_t>(d.Bits(0, 8, 3));
  out.op_sel = static_cast<uint8_t>(d.Bits(0, 11, 3));
  out.clamp = d.Bits(0, 15, 1) != 0;
  out.src = {d.Code(1, 0, 9), d.Code(1, 9, 9), d.Code(1, 18, 9)};
  out.op_sel_hi = static_cast<uint8_t>(d.Bits(1, 27, 2) | d.Bits(0, 14, 1) << 2);
  out.neg = static_cast<uint8_t>(d.Bits(1, 29, 3));
  TakeExtraWord(d, entry->num_sources);
  CheckVectorSources(d, entry->num_sources);
}

void DecodeDual(Decoder& d) {
  constexpr uint32_t kFmaak = 1, kFmamk = 2;
  d.out.dwords = 2;
  Instruction& out = d.out;
  const uint32_t op_x = d.Bits(0, 22, 4), op_y = d.Bits(0, 17, 5);
  const char *name_x = DualName(op_x, false), *name_y = DualName(op_y, true);
  if (name_x == nullptr || name_y == nullptr) {
    d.RefuseMissing("VOPD", name_x == nullptr ? op_x : op_y);
    return;
  }
  out.name = name_x;
  out.handler = &RunDual;
  out.kind = Kind::kVector;
  const auto dst_x = static_cast<uint8_t>(d.Bits(1, 24, 8));
  // One destination is even and the other odd.
  const auto dst_y = static_cast<uint8_t>(d.Bits(1, 17, 7) * 2 + (dst_x % 2 == 0 ? 1 : 0));
  out.dual[0] = {.op = static_cast<uint8_t>(op_x),
                 .dst = dst_x,
                 .src = {d.Code(0, 0, 9), static_cast<uint16_t>(kVgpr + d.Bits(0, 9, 8))}};
  out.dual[1] = {.op = static_cast<uint8_t>(op_y),
                 .dst = dst_y,
                 .src = {d.Code(1, 0, 9), static_cast<uint16_t>(kVgpr + d.Bits(1, 9, 8))}};
  bool has_literal = false;
  for (const DualHalf& half : out.dual) {
    has_literal = has_literal || half.op == kFmaak || half.op == kFmamk || half.src[0] == kLiteral;
    if (half.src[0] < kVgpr && !IsKnownScalarSource(half.src[0])) {
      d.Refuse(std::string(out.name) + " with source operand " + std::to_string(half.src[0]));
    }
  }
  if (has_literal) out.literal = d.NextWord();
}

}  // namespace tandem::rdna
