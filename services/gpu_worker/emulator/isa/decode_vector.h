// Decoding: the words of one instruction, and the vector encodings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "services/gpu_worker/emulator/isa/instruction.h"
#include "services/gpu_worker/emulator/isa/vector_alu.h"

namespace tandem::rdna {

struct Decoder {
  Gfx gfx = Gfx::k1103;
  const uint32_t* words = nullptr;
  size_t available = 0;  // words that can be read
  Instruction out = {};
  std::string unknown = {};  // empty: all is known

  uint32_t Bits(size_t word, uint32_t first, uint32_t count);
  int32_t Signed(size_t word, uint32_t first, uint32_t count);
  uint16_t Code(size_t word, uint32_t first, uint32_t count);
  // The next word behind what was taken so far: a literal or DPP's.
  uint32_t NextWord();
  // Takes name, handler and kind; false: there is no such operation.
  bool Begin(const char* encoding, uint32_t op, const Entry* entry);
  void Refuse(std::string why);
  void RefuseMissing(const char* encoding, uint32_t op);
  void CheckScalarSources(int num_sources);
};

void DecodeShortVector(Decoder& d);  // VOP1, VOP2, VOPC
void DecodeVop3(Decoder& d);
void DecodePacked(Decoder& d);  // VOP3P
void DecodeDual(Decoder& d);    // VOPD

}  // namespace tandem::rdna
