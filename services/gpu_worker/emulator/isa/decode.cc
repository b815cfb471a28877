#include <initializer_list>

#include "services/gpu_worker/emulator/isa/decode_vector.h"
#include "services/gpu_worker/emulator/isa/instruction.h"
#include "services/gpu_worker/emulator/isa/lookup.h"
#include "services/gpu_worker/emulator/isa/scalar_operand.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// Takes the literal behind the instruction if a source is one.
void TakeScalarLiteral(Decoder& d, int num_sources) {
  for (int index = 0; index < num_sources; ++index) {
    if (d.out.src[index] == kLiteral) {
      d.out.literal = d.NextWord();
      return;
    }
  }
}

// Operations on floats by the scalar unit came with RDNA 3.5.
bool IsAvailable(Gfx gfx, const Entry& entry, Table of_rdna35) {
  if (gfx != Gfx::k1103) return true;
  for (const Entry& other : of_rdna35) {
    if (other.name == entry.name) return false;
  }
  return true;
}

void DecodeSop2(Decoder& d) {
  static const Lookup kLookup({Sop2Table(), SopFloatTable()});
  constexpr uint32_t kFmaak = 69, kFmamk = 70;
  const uint32_t op = d.Bits(0, 23, 7);
  const Entry* entry = kLookup.Find(op);
  if (entry != nullptr && !IsAvailable(d.gfx, *entry, SopFloatTable())) entry = nullptr;
  if (!d.Begin("SOP2", op, entry)) return;
  d.out.src = {d.Code(0, 0, 8), d.Code(0, 8, 8), 0};
  d.out.dst = d.Code(0, 16, 7);
  if (op == kFmaak || op == kFmamk) {
    d.out.literal = d.NextWord();
  } else {
    TakeScalarLiteral(d, 2);
  }
  d.CheckScalarSources(2);
}

void DecodeSop1(Decoder& d) {
  static const Lookup kLookup({Sop1Table(), SopFloatUnaryTable()});
  constexpr uint32_t kSendMessage = 77;
  const uint32_t op = d.Bits(0, 8, 8);
  const Entry* entry = kLookup.Find(op);
  if (entry != nullptr && !IsAvailable(d.gfx, *entry, SopFloatUnaryTable())) entry = nullptr;
  if (!d.Begin("SOP1", op, entry)) return;
  d.out.src[0] = d.Code(0, 0, 8);
  d.out.dst = d.Code(0, 16, 7);
  if (op == kSendMessage) return;  // the source is the message's number
  TakeScalarLiteral(d, 1);
  d.CheckScalarSources(1);
}

void DecodeSopc(Decoder& d) {
  static const Lookup kLookup({SopcTable()});
  constexpr uint32_t kFirstFloat = 64;
  const uint32_t op = d.Bits(0, 16, 7);
  const bool exists = op < kFirstFloat || d.gfx != Gfx::k1103;
  if (!d.Begin("SOPC", op, exists ? kLookup.Find(op) : nullptr)) return;
  d.out.src = {d.Code(0, 0, 8), d.Code(0, 8, 8), 0};
  TakeScalarLiteral(d, 2);
  d.CheckScalarSources(2);
}

void DecodeSopk(Decoder& d) {
  static const Lookup kLookup({SopkTable()});
  constexpr uint32_t kSetRegisterLiteral = 19;
  const uint32_t op = d.Bits(0, 23, 5);
  if (!d.Begin("SOPK", op, kLookup.Find(op))) return;
  d.out.dst = d.Code(0, 16, 7);
  d.out.offset = d.Signed(0, 0, 16);
  if (op == kSetRegisterLiteral) d.out.literal = d.NextWord();
}

void DecodeSopp(Decoder& d) {
  static const Lookup kLookup({SoppTable()});
  const uint32_t op = d.Bits(0, 16, 7);
  if (!d.Begin("SOPP", op, kLookup.Find(op))) return;
  d.out.offset = d.Signed(0, 0, 16);
}

void DecodeSmem(Decoder& d) {
  static const Lookup kLookup({ScalarLoadTable()});
  d.out.dwords = 2;
  const uint32_t op = d.Bits(0, 18, 8);
  if (!d.Begin("SMEM", op, kLookup.Find(op))) return;
  d.out.saddr = static_cast<uint8_t>(d.Bits(0, 0, 6) * 2);
  d.out.dst = d.Code(0, 6, 7);
  d.out.glc = d.Bits(0, 14, 1) != 0;
  d.out.offset = d.Signed(1, 0, 21);
  d.out.soffset = static_cast<uint8_t>(d.Bits(1, 25, 7));
}

void DecodeDs(Decoder& d) {
  static const Lookup kLookup({LdsTable(), LdsAtomicTable(), LdsLaneTable()});
  d.out.dwords = 2;
  const uint32_t op = d.Bits(0, 18, 8);
  const bool is_gds = d.Bits(0, 17, 1) != 0;
  if (!d.Begin(is_gds ? "GDS" : "DS", op, is_gds ? nullptr : kLookup.Find(op))) return;
  d.out.offset = static_cast<int32_t>(d.Bits(0, 0, 16));
  d.out.offset0 = static_cast<uint8_t>(d.Bits(0, 0, 8));
  d.out.offset1 = static_cast<uint8_t>(d.Bits(0, 8, 8));
  d.out.address = static_cast<uint8_t>(d.Bits(1, 0, 8));
  d.out.data = static_cast<uint8_t>(d.Bits(1, 8, 8));
  d.out.data1 = static_cast<uint8_t>(d.Bits(1, 16, 8));
  d.out.dst = d.Code(1, 24, 8);
}

// Names of FLAT's operations with their segment.
const char* SegmentName(uint32_t segment, const Entry& entry) {
  static const auto kNames = [] {
    std::array<std::array<std::string, 128>, 3> names;
    const char* const segments[] = {"flat_", "scratch_", "global_"};
    for (const Table table : {GlobalTable(), GlobalAtomicTable()}) {
      for (const Entry& one : table) {
        for (int index = 0; index < 3; ++index) {
          names[index][one.op] = std::string(segments[index]) + one.name;
        }
      }
    }
    return names;
  }();
  return kNames[segment][entry.op].c_str();
}

void DecodeFlat(Decoder& d) {
  static const Lookup kLookup({GlobalTable(), GlobalAtomicTable()});
  constexpr uint32_t kScratch = 1, kReserved = 3;
  d.out.dwords = 2;
  const uint32_t op = d.Bits(0, 18, 7), segment = d.Bits(0, 16, 2);
  const Entry* entry = kLookup.Find(op);
  const bool exists = entry != nullptr && segment != kReserved &&
                      !(segment == kScratch && entry->kind == Kind::kAtomic);
  if (!d.Begin("FLAT", op, exists ? entry : nullptr)) return;
  d.out.name = SegmentName(segment, *entry);
  d.out.segment = static_cast<uint8_t>(segment);
  d.out.offset = d.Signed(0, 0, 13);
  d.out.glc = d.Bits(0, 14, 1) != 0;
  d.out.address = static_cast<uint8_t>(d.Bits(1, 0, 8));
  d.out.data = static_cast<uint8_t>(d.Bits(1, 8, 8));
  d.out.saddr = static_cast<uint8_t>(d.Bits(1, 16, 7));
  d.out.scratch_vgpr = d.Bits(1, 23, 1) != 0;
  d.out.dst = d.Code(1, 24, 8);
}

void DecodeMubuf(Decoder& d) {
  static const Lookup kLookup({BufferTable()});
  d.out.dwords = 2;
  const uint32_t op = d.Bits(0, 18, 8);
  if (!d.Begin("MUBUF", op, kLookup.Find(op))) return;
  d.out.offset = static_cast<int32_t>(d.Bits(0, 0, 12));
  d.out.glc = d.Bits(0, 14, 1) != 0;
  d.out.address = static_cast<uint8_t>(d.Bits(1, 0, 8));
  d.out.data = static_cast<uint8_t>(d.Bits(1, 8, 8));
  d.out.saddr = static_cast<uint8_t>(d.Bits(1, 16, 5) * 4);
  d.out.offset_enabled = d.Bits(1, 22, 1) != 0;
  d.out.index_enabled = d.Bits(1, 23, 1) != 0;
  d.out.soffset = static_cast<uint8_t>(d.Bits(1, 24, 8));
  if (d.Bits(1, 21, 1) != 0) d.Refuse(std::string(d.out.name) + " with tfe");
}

void DecodeEncoding(Decoder& d) {
  const uint32_t word = d.Bits(0, 0, 32);
  switch (word >> 23) {
    case 0x17d:
      return DecodeSop1(d);
    case 0x17e:
      return DecodeSopc(d);
    case 0x17f:
      return DecodeSopp(d);
    default:
      break;
  }
  if (word >> 28 == 0xb) return DecodeSopk(d);
  if (word >> 30 == 2) return DecodeSop2(d);
  if (word >> 31 == 0) return DecodeShortVector(d);
  switch (word >> 26) {
    case 0x32:
      return DecodeDual(d);
    case 0x33:
      if (word >> 24 == 0xcc) return DecodePacked(d);
      return d.RefuseMissing("VINTERP", word >> 16 & 0x7f);
    case 0x35:
      return DecodeVop3(d);
    case 0x36:
      return DecodeDs(d);
    case 0x37:
      return DecodeFlat(d);
    case 0x38:
      return DecodeMubuf(d);
    case 0x3a:
      return d.RefuseMissing("MTBUF", word >> 15 & 15);
    case 0x3c:
      return d.RefuseMissing("MIMG", word >> 18 & 0xff);
    case 0x3d:
      return DecodeSmem(d);
    case 0x3e:
      return d.RefuseMissing("EXP", 0);
    default:
      return d.RefuseMissing("no", word >> 26);
  }
}

}  // namespace

uint32_t Decoder::Bits(size_t word, uint32_t first, uint32_t count) {
  if (word >= available) {
    Refuse("code ends inside an instruction");
    return 0;
  }
  const uint32_t mask = count == 32 ? ~0u : (1u << count) - 1;
  return words[word] >> first & mask;
}

int32_t Decoder::Signed(size_t word, uint32_t first, uint32_t count) {
  return SignExtend(Bits(word, first, count), count);
}

uint16_t Decoder::Code(size_t word, uint32_t first, uint32_t count) {
  return static_cast<uint16_t>(Bits(word, first, count));
}

uint32_t Decoder::NextWord() {
  const uint32_t word = Bits(out.dwords, 0, 32);
  ++out.dwords;
  return word;
}

bool Decoder::Begin(const char* encoding, uint32_t op, const Entry* entry) {
  out.op = static_cast<uint16_t>(op);
  if (entry == nullptr) {
    RefuseMissing(encoding, op);
    return false;
  }
  out.name = entry->name;
  out.handler = entry->handler;
  out.kind = entry->kind;
  return true;
}

void Decoder::Refuse(std::string why) {
  if (unknown.empty()) unknown = std::move(why);
}

void Decoder::RefuseMissing(const char* encoding, uint32_t op) {
  if (const char* name = NameOfMissing(encoding, op); name != nullptr) {
    Refuse(std::string(name) + " is not executed");
    return;
  }
  char text[96];
  std::snprintf(text, sizeof text, "unknown instruction %08x %08x, %s operation %u",
                available > 0 ? words[0] : 0u, available > 1 ? words[1] : 0u, encoding, op);
  Refuse(text);
}

void Decoder::CheckScalarSources(int num_sources) {
  for (int index = 0; index < num_sources; ++index) {
    if (IsKnownScalarSource(out.src[index])) continue;
    Refuse(std::string(out.name) + " with source operand " + std::to_string(out.src[index]));
  }
}

Instruction Decode(Gfx gfx, const uint32_t* words, size_t available, std::string& unknown) {
  Decoder decoder{.gfx = gfx, .words = words, .available = available};
  DecodeEncoding(decoder);
  unknown = std::move(decoder.unknown);
  if (!unknown.empty()) decoder.out.handler = nullptr;
  return decoder.out;
}

}  // namespace tandem::rdna
