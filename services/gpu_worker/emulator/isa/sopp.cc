// SOPP: branches, barriers, the end of a wave; and waits, hints and messages, which have no effect
// here, since memory is used in the order of the code.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

template <class Condition>
void BranchHandler(Wave& wave, const Instruction& i) {
  if (Condition{}(wave)) wave.next_pc += static_cast<uint64_t>(int64_t{i.offset} * 4);
}
template <class Condition>
constexpr Entry Branch(int op, const char* name, Condition) {
  return Special(op, name, &BranchHandler<Condition>, 0, Kind::kBranch);
}

void End(Wave& wave, const Instruction&) { wave.state = WaveState::kEnded; }
void Barrier(Wave& wave, const Instruction&) { wave.state = WaveState::kAtBarrier; }
void Yield(Wave& wave, const Instruction&) { wave.yields = true; }
void Nothing(Wave&, const Instruction&) {}

// Bits 3:0 of the constant become MODE's rounding, or its denormals.
template <int kShift>
void ChangeMode(Wave& wave, const Instruction& i) {
  const uint32_t mask = 15u << kShift;
  wave.SetMode((wave.mode_bits & ~mask) | (static_cast<uint32_t>(i.offset) << kShift & mask));
}

void Stop(Wave& wave, const Instruction& i) {
  wave.Fail(std::string(i.name) + " " + std::to_string(i.offset & 0xffff));
}

constexpr Entry Hint(int op, const char* name) {
  return Special(op, name, &Nothing, 0, Kind::kWait);
}

const Entry kSopp[] = {
    Hint(0, "s_nop"),
    Hint(1, "s_setkill"),
    Special(2, "s_sethalt", &Stop, 0, Kind::kScalar),
    Special(3, "s_sleep", &Yield, 0, Kind::kWait),
    Hint(4, "s_set_inst_prefetch_distance"),
    Hint(5, "s_clause"),
    Hint(7, "s_delay_alu"),
    Hint(8, "s_waitcnt_depctr"),
    Hint(9, "s_waitcnt"),
    Hint(10, "s_wait_idle"),
    Hint(11, "s_wait_event"),
    Special(16, "s_trap", &Stop, 0, Kind::kScalar),
    Special(17, "s_round_mode", &ChangeMode<0>, 0, Kind::kScalar),
    Special(18, "s_denorm_mode", &ChangeMode<4>, 0, Kind::kScalar),
    Hint(19, "s_singleuse_vdst"),
    Special(31, "s_code_end", &Stop, 0, Kind::kScalar),
    Branch(32, "s_branch", [](const Wave&) { return true; }),
    Branch(33, "s_cbranch_scc0", [](const Wave& wave) { return !wave.scc; }),
    Branch(34, "s_cbranch_scc1", [](const Wave& wave) { return wave.scc; }),
    Branch(35, "s_cbranch_vccz", [](const Wave& wave) { return wave.MaskAt(kVccLo) == 0; }),
    Branch(36, "s_cbranch_vccnz", [](const Wave& wave) { return wave.MaskAt(kVccLo) != 0; }),
    Branch(37, "s_cbranch_execz", [](const Wave& wave) { return wave.Exec() == 0; }),
    Branch(38, "s_cbranch_execnz", [](const Wave& wave) { return wave.Exec() != 0; }),
    // No debugger is there.
    Branch(39, "s_cbranch_cdbgsys", [](const Wave&) { return false; }),
    Branch(40, "s_cbranch_cdbguser", [](const Wave&) { return false; }),
    Branch(41, "s_cbranch_cdbgsys_or_user", [](const Wave&) { return false; }),
    Branch(42, "s_cbranch_cdbgsys_and_user", [](const Wave&) { return false; }),
    Special(48, "s_endpgm", &End, 0, Kind::kBranch),
    Special(49, "s_endpgm_saved", &End, 0, Kind::kBranch),
    Hint(52, "s_wakeup"),
    Hint(53, "s_setprio"),
    Hint(54, "s_sendmsg"),
    Hint(56, "s_incperflevel"),
    Hint(57, "s_decperflevel"),
    Hint(58, "s_ttracedata"),
    Hint(59, "s_ttracedata_imm"),
    Hint(60, "s_icache_inv"),
    Special(61, "s_barrier", &Barrier, 0, Kind::kBarrier),
};

}  // namespace

Table SoppTable() { return kSopp; }

}  // namespace tandem::rdna
