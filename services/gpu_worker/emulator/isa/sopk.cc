// SOPK: a scalar register and a constant of 16 bits, which the decoder puts, sign-extended, into
// `offset`; and hardware registers.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// Hardware registers that can be read; bits 5:0 of the constant.
enum HardwareRegister : uint32_t { kMode = 1, kStatus = 2, kShaderCycles = 29 };

struct RegisterField {
  uint32_t id, offset, width;
};

RegisterField FieldOf(const Instruction& i) {
  const auto bits = static_cast<uint32_t>(i.offset);
  return {.id = bits & 63, .offset = bits >> 6 & 31, .width = (bits >> 11 & 31) + 1};
}

void GetRegister(Wave& wave, const Instruction& i) {
  const RegisterField field = FieldOf(i);
  uint32_t value = 0;
  switch (field.id) {
    case kMode:
      value = wave.mode_bits;
      break;
    case kStatus:
      value = (wave.scc ? 1u : 0u) | (wave.Exec() == 0 ? 1u << 9 : 0u) |
              (wave.MaskAt(kVccLo) == 0 ? 1u << 10 : 0u);
      break;
    case kShaderCycles:
      value = static_cast<uint32_t>(wave.executed) & 0xfffff;
      break;
    default:
      wave.Fail("s_getreg_b32 of hardware register " + std::to_string(field.id));
      return;
  }
  wave.SetSgpr(i.dst,
               value >> field.offset & static_cast<uint32_t>((uint64_t{1} << field.width) - 1));
}

void SetRegister(Wave& wave, const Instruction& i, uint32_t value) {
  const RegisterField field = FieldOf(i);
  if (field.id != kMode) {
    wave.Fail("s_setreg of hardware register " + std::to_string(field.id));
    return;
  }
  const auto mask = static_cast<uint32_t>((uint64_t{1} << field.width) - 1) << field.offset;
  wave.SetMode((wave.mode_bits & ~mask) | (value << field.offset & mask));
}

template <class Function>
void CompareConstant(Wave& wave, const Instruction& i) {
  wave.scc = Function{}(wave.Sgpr(i.dst), i.offset);
}
template <class Function>
constexpr Entry Compare(int op, const char* name, Function) {
  return Special(op, name, &CompareConstant<Function>, 0, Kind::kScalar);
}

int32_t Number(uint32_t a) { return static_cast<int32_t>(a); }
// Unsigned compares take the constant without its sign.
uint32_t Plain(int32_t b) { return static_cast<uint32_t>(b) & 0xffff; }

void Move(Wave& wave, const Instruction& i) {
  wave.SetSgpr(i.dst, static_cast<uint32_t>(i.offset));
}
void MoveIfScc(Wave& wave, const Instruction& i) {
  if (wave.scc) Move(wave, i);
}
void Add(Wave& wave, const Instruction& i) {
  const int64_t sum = int64_t{Number(wave.Sgpr(i.dst))} + i.offset;
  wave.scc = sum != static_cast<int32_t>(sum);
  wave.SetSgpr(i.dst, static_cast<uint32_t>(sum));
}
void Multiply(Wave& wave, const Instruction& i) {
  wave.SetSgpr(i.dst, wave.Sgpr(i.dst) * static_cast<uint32_t>(i.offset));
}
void Call(Wave& wave, const Instruction& i) {
  wave.SetScalar64(i.dst, wave.next_pc);
  wave.next_pc += static_cast<uint64_t>(int64_t{i.offset} * 4);
}
void Ignored(Wave&, const Instruction&) {}

constexpr Entry Constant(int op, const char* name, Handler handler, Kind kind = Kind::kScalar) {
  return Special(op, name, handler, 0, kind);
}

const Entry kSopk[] = {
    Constant(0, "s_movk_i32", &Move),
    Constant(1, "s_version", &Ignored, Kind::kWait),
    Constant(2, "s_cmovk_i32", &MoveIfScc),
    Compare(3, "s_cmpk_eq_i32", [](uint32_t a, int32_t b) { return Number(a) == b; }),
    Compare(4, "s_cmpk_lg_i32", [](uint32_t a, int32_t b) { return Number(a) != b; }),
    Compare(5, "s_cmpk_gt_i32", [](uint32_t a, int32_t b) { return Number(a) > b; }),
    Compare(6, "s_cmpk_ge_i32", [](uint32_t a, int32_t b) { return Number(a) >= b; }),
    Compare(7, "s_cmpk_lt_i32", [](uint32_t a, int32_t b) { return Number(a) < b; }),
    Compare(8, "s_cmpk_le_i32", [](uint32_t a, int32_t b) { return Number(a) <= b; }),
    Compare(9, "s_cmpk_eq_u32", [](uint32_t a, int32_t b) { return a == Plain(b); }),
    Compare(10, "s_cmpk_lg_u32", [](uint32_t a, int32_t b) { return a != Plain(b); }),
    Compare(11, "s_cmpk_gt_u32", [](uint32_t a, int32_t b) { return a > Plain(b); }),
    Compare(12, "s_cmpk_ge_u32", [](uint32_t a, int32_t b) { return a >= Plain(b); }),
    Compare(13, "s_cmpk_lt_u32", [](uint32_t a, int32_t b) { return a < Plain(b); }),
    Compare(14, "s_cmpk_le_u32", [](uint32_t a, int32_t b) { return a <= Plain(b); }),
    Constant(15, "s_addk_i32", &Add),
    Constant(16, "s_mulk_i32", &Multiply),
    Constant(17, "s_getreg_b32", &GetRegister),
    Constant(18, "s_setreg_b32",
             [](Wave& wave, const Instruction& i) { SetRegister(wave, i, wave.Sgpr(i.dst)); }),
    Constant(19, "s_setreg_imm32_b32",
             [](Wave& wave, const Instruction& i) { SetRegister(wave, i, i.literal); }),
    Constant(20, "s_call_b64", &Call, Kind::kBranch),
    Constant(24, "s_waitcnt_vscnt", &Ignored, Kind::kWait),
    Constant(25, "s_waitcnt_vmcnt", &Ignored, Kind::kWait),
    Constant(26, "s_waitcnt_expcnt", &Ignored, Kind::kWait),
    Constant(27, "s_waitcnt_lgkmcnt", &Ignored, Kind::kWait),
};

}  // namespace

Table SopkTable() { return kSopk; }

}  // namespace tandem::rdna
