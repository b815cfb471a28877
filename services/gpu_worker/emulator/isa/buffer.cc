// MUBUF: memory by a descriptor of four scalar registers, with bounds.  Reads outside them give 0,
// writes are dropped.
#include "services/gpu_worker/emulator/isa/memory_atomic.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// How a descriptor's bounds are checked: bits 29:28 of its last word.
enum class Bounds : uint8_t { kStructured, kIndex, kNone, kRaw };

struct Descriptor {
  uint64_t base = 0;
  uint32_t stride = 0, records = 0;
  bool swizzled = false, adds_lane = false;
  Bounds bounds = Bounds::kRaw;
};

Descriptor ReadDescriptor(const Wave& wave, uint32_t sgpr) {
  const uint64_t low = wave.Scalar64(sgpr);
  const uint32_t last = wave.Sgpr(sgpr + 3);
  return {.base = low & 0xffffffffffff,
          .stride = static_cast<uint32_t>(low >> 48 & 0x3fff),
          .records = wave.Sgpr(sgpr + 2),
          .swizzled = (low >> 62 & 3) != 0,
          .adds_lane = (last >> 23 & 1) != 0,
          .bounds = static_cast<Bounds>(last >> 28 & 3)};
}

bool IsOutside(const Descriptor& d, uint64_t index, uint64_t offset, uint32_t bytes) {
  switch (d.bounds) {
    case Bounds::kStructured:
      return index >= d.records || offset + bytes > d.stride;
    case Bounds::kIndex:
      return index >= d.records;
    case Bounds::kNone:
      return d.records == 0;
    case Bounds::kRaw:
      break;
  }
  return index * d.stride + offset + bytes > d.records;
}

// The memory of lanes that are active and inside the bounds; `inside` says which.
bool FindBuffer(Wave& wave, const Instruction& i, uint32_t bytes, LaneAddresses& out,
                uint64_t& inside) {
  const Descriptor d = ReadDescriptor(wave, i.saddr);
  if (d.swizzled) {
    wave.Fail(std::string(i.name) + " of a swizzled buffer");
    return false;
  }
  const uint32_t scalar = ReadScalar32(wave, i, i.soffset);
  std::array<uint64_t, kMaxLanes> addresses = {};
  inside = 0;
  ForEachLane(wave.Exec(), [&](int lane) {
    uint64_t index = d.adds_lane ? static_cast<uint64_t>(lane) : 0;
    uint64_t offset = static_cast<uint64_t>(i.offset);
    uint32_t vgpr = i.address;
    if (i.index_enabled) index += wave.Vgpr(vgpr++)[lane];
    if (i.offset_enabled) offset += wave.Vgpr(vgpr)[lane];
    if (IsOutside(d, index, offset, bytes)) return;
    inside |= uint64_t{1} << lane;
    addresses[lane] = d.base + scalar + index * d.stride + offset;
  });
  return out.Find(wave, i, addresses.data(), inside, bytes);
}

enum class Half { kWhole, kLow, kHigh };

template <int kDwords>
void LoadBuffer(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  uint64_t inside = 0;
  if (!FindBuffer(wave, i, kDwords * 4, bytes, inside)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    for (int word = 0; word < kDwords; ++word) {
      uint32_t value = 0;
      if ((inside >> lane & 1) != 0) std::memcpy(&value, bytes[lane] + 4 * word, 4);
      wave.Vgpr(i.data + static_cast<uint32_t>(word))[lane] = value;
    }
  });
}

template <int kDwords>
void StoreBuffer(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  uint64_t inside = 0;
  if (!FindBuffer(wave, i, kDwords * 4, bytes, inside)) return;
  ForEachLane(inside, [&](int lane) {
    for (int word = 0; word < kDwords; ++word) {
      std::memcpy(bytes[lane] + 4 * word, &wave.Vgpr(i.data + static_cast<uint32_t>(word))[lane],
                  4);
    }
  });
}

template <class Value, Half kHalf>
void LoadSmallBuffer(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  uint64_t inside = 0;
  if (!FindBuffer(wave, i, sizeof(Value), bytes, inside)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    Value small = {};
    if ((inside >> lane & 1) != 0) std::memcpy(&small, bytes[lane], sizeof(Value));
    const auto value = static_cast<uint32_t>(static_cast<int32_t>(small));
    uint32_t& out = wave.Vgpr(i.data)[lane];
    if (kHalf == Half::kWhole) out = value;
    if (kHalf == Half::kLow) out = (out & 0xffff0000) | (value & 0xffff);
    if (kHalf == Half::kHigh) out = (out & 0xffff) | value << 16;
  });
}

template <class Value, Half kHalf>
void StoreSmallBuffer(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  uint64_t inside = 0;
  if (!FindBuffer(wave, i, sizeof(Value), bytes, inside)) return;
  ForEachLane(inside, [&](int lane) {
    const auto value =
        static_cast<Value>(wave.Vgpr(i.data)[lane] >> (kHalf == Half::kHigh ? 16 : 0));
    std::memcpy(bytes[lane], &value, sizeof(Value));
  });
}

template <class Word, class Operation>
void BufferAtomic(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  uint64_t inside = 0;
  if (!FindBuffer(wave, i, sizeof(Word), bytes, inside)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    Word old = 0;
    if ((inside >> lane & 1) != 0) {
      if (reinterpret_cast<uintptr_t>(bytes[lane]) % sizeof(Word) != 0) {
        wave.Fail(std::string(i.name) + " of an address that is not aligned");
        return;
      }
      old = LaneAtomic<Word, Operation>::Run(wave, i.data, lane, bytes[lane]);
    }
    if (i.glc) WriteAtomicResult(wave, i.data, lane, old);
  });
}

void Nothing(Wave&, const Instruction&) {}

constexpr Entry Loads(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kLoad);
}
constexpr Entry Stores(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kStore);
}

#define MAKE_BUFFER(OP, NAME, WORD, OPERATION) \
  Special(OP, "buffer_" NAME, &BufferAtomic<WORD, OPERATION>, 0, Kind::kAtomic)

const Entry kBuffer[] = {
    Loads(16, "buffer_load_u8", &LoadSmallBuffer<uint8_t, Half::kWhole>),
    Loads(17, "buffer_load_i8", &LoadSmallBuffer<int8_t, Half::kWhole>),
    Loads(18, "buffer_load_u16", &LoadSmallBuffer<uint16_t, Half::kWhole>),
    Loads(19, "buffer_load_i16", &LoadSmallBuffer<int16_t, Half::kWhole>),
    Loads(20, "buffer_load_b32", &LoadBuffer<1>),
    Loads(21, "buffer_load_b64", &LoadBuffer<2>),
    Loads(22, "buffer_load_b96", &LoadBuffer<3>),
    Loads(23, "buffer_load_b128", &LoadBuffer<4>),
    Stores(24, "buffer_store_b8", &StoreSmallBuffer<uint8_t, Half::kWhole>),
    Stores(25, "buffer_store_b16", &StoreSmallBuffer<uint16_t, Half::kWhole>),
    Stores(26, "buffer_store_b32", &StoreBuffer<1>),
    Stores(27, "buffer_store_b64", &StoreBuffer<2>),
    Stores(28, "buffer_store_b96", &StoreBuffer<3>),
    Stores(29, "buffer_store_b128", &StoreBuffer<4>),
    Loads(30, "buffer_load_d16_u8", &LoadSmallBuffer<uint8_t, Half::kLow>),
    Loads(31, "buffer_load_d16_i8", &LoadSmallBuffer<int8_t, Half::kLow>),
    Loads(32, "buffer_load_d16_b16", &LoadSmallBuffer<uint16_t, Half::kLow>),
    Loads(33, "buffer_load_d16_hi_u8", &LoadSmallBuffer<uint8_t, Half::kHigh>),
    Loads(34, "buffer_load_d16_hi_i8", &LoadSmallBuffer<int8_t, Half::kHigh>),
    Loads(35, "buffer_load_d16_hi_b16", &LoadSmallBuffer<uint16_t, Half::kHigh>),
    Stores(36, "buffer_store_d16_hi_b8", &StoreSmallBuffer<uint8_t, Half::kHigh>),
    Stores(37, "buffer_store_d16_hi_b16", &StoreSmallBuffer<uint16_t, Half::kHigh>),
    Special(43, "buffer_gl0_inv", &Nothing, 0, Kind::kWait),
    Special(44, "buffer_gl1_inv", &Nothing, 0, Kind::kWait),
    MEMORY_ATOMICS(MAKE_BUFFER),
};

#undef MAKE_BUFFER

}  // namespace

Table BufferTable() { return kBuffer; }

}  // namespace tandem::rdna
