// Packets of the command processor (PM4, type 3) and the registers that compute uses, as Mesa's
// sid.h and AMD's register headers name them.
//
//   header: 31:30 = 3, 29:16 words of the body less one, 15:8 opcode, 1 compute, 0 predicated
#pragma once

#include <cstdint>
#include <optional>

namespace tandem::rdna::pm4 {

enum Opcode : uint8_t {
  kNop = 0x10,
  kSetBase = 0x11,
  kClearState = 0x12,
  kDispatchDirect = 0x15,
  kDispatchIndirect = 0x16,
  kSetPredication = 0x20,
  kCondExec = 0x22,
  kContextControl = 0x28,
  kWriteData = 0x37,
  kWaitRegMem = 0x3c,
  kIndirectBuffer = 0x3f,
  kCopyData = 0x40,
  kPfpSyncMe = 0x42,
  kEventWrite = 0x46,
  kReleaseMem = 0x49,
  kDmaData = 0x50,
  kAcquireMem = 0x58,
  kLoadShRegIndex = 0x63,
  kSetConfigReg = 0x68,
  kSetContextReg = 0x69,
  kSetShReg = 0x76,
  kSetUconfigReg = 0x79,
  kSetUconfigRegIndex = 0x7a,
  kSetShRegIndex = 0x9b,
  kSetContextRegPairsPacked = 0xb9,
  kSetShRegPairs = 0xba,
  kSetShRegPairsPacked = 0xbb,
  kSetShRegPairsPackedN = 0xbd,
};

struct PacketFacts {
  const char* name;
  uint32_t min_words;  // of the body
};

// Empty: a packet that is not emulated.
std::optional<PacketFacts> FindPacket(uint8_t opcode);
// The name of any packet that is known, emulated or not; nullptr: none.
const char* PacketName(uint8_t opcode);

inline constexpr uint32_t kType2Nop = uint32_t{2} << 30;
// A NOP without a body.
inline constexpr uint32_t kHeaderOnlyCount = 0x3fff;

// Of two words of a packet.
constexpr uint64_t Wide(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

constexpr uint32_t Header(Opcode opcode, uint32_t words) {
  return uint32_t{3} << 30 | (words - 1) << 16 | uint32_t{opcode} << 8;
}

// Shader registers, as indexes of words from 0xB000.
inline constexpr uint32_t kShRegisters = 0x400;
constexpr uint32_t ShIndex(uint32_t address) { return (address - 0xb000) / 4; }
inline constexpr uint32_t kStartX = ShIndex(0xb810);
inline constexpr uint32_t kNumThreadX = ShIndex(0xb81c);
inline constexpr uint32_t kPgmLo = ShIndex(0xb830);
inline constexpr uint32_t kScratchBaseLo = ShIndex(0xb840);
inline constexpr uint32_t kPgmRsrc1 = ShIndex(0xb848);
inline constexpr uint32_t kPgmRsrc2 = ShIndex(0xb84c);
inline constexpr uint32_t kTmpringSize = ShIndex(0xb860);
inline constexpr uint32_t kPgmRsrc3 = ShIndex(0xb8a0);
inline constexpr uint32_t kUserData0 = ShIndex(0xb900);
inline constexpr uint32_t kUserDataWords = 16;

// COMPUTE_DISPATCH_INITIATOR.
inline constexpr uint32_t kPartialGroups = 1 << 1;
inline constexpr uint32_t kForceStartAtZero = 1 << 2;
inline constexpr uint32_t kUseThreadDimensions = 1 << 5;
inline constexpr uint32_t kWave32 = 1 << 15;

// Events (VGT_EVENT_TYPE).
enum Event : uint32_t {
  kCsPartialFlush = 7,
  kVsPartialFlush = 15,
  kPsPartialFlush = 16,
  kPipelineStatStart = 25,
  kPipelineStatStop = 26,
  kVgtFlush = 36,
  kSqNonEvent = 38,
  kBottomOfPipeTs = 40,
  kFlushAndInvDbMeta = 44,
  kFlushAndInvCbMeta = 46,
  kCsDone = 47,
  kPixelPipeStatControl = 56,
};

}  // namespace tandem::rdna::pm4
