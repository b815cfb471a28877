// FLAT: loads and stores of global, flat and scratch memory.
#include "services/gpu_worker/emulator/isa/global_address.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

template <int kDwords>
void Load(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  if (!FindLanes(wave, i, kDwords * 4, bytes)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    for (int word = 0; word < kDwords; ++word) {
      std::memcpy(&wave.Vgpr(i.dst + static_cast<uint32_t>(word))[lane], bytes[lane] + 4 * word, 4);
    }
  });
}

template <int kDwords>
void Store(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  if (!FindLanes(wave, i, kDwords * 4, bytes)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    for (int word = 0; word < kDwords; ++word) {
      std::memcpy(bytes[lane] + 4 * word, &wave.Vgpr(i.data + static_cast<uint32_t>(word))[lane],
                  4);
    }
  });
}

enum class Half { kWhole, kLow, kHigh };

template <class Value, Half kHalf>
void LoadSmall(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  if (!FindLanes(wave, i, sizeof(Value), bytes)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    Value small = {};
    std::memcpy(&small, bytes[lane], sizeof(Value));
    const auto value = static_cast<uint32_t>(static_cast<int32_t>(small));
    uint32_t& out = wave.Vgpr(i.dst)[lane];
    if (kHalf == Half::kWhole) out = value;
    if (kHalf == Half::kLow) out = (out & 0xffff0000) | (value & 0xffff);
    if (kHalf == Half::kHigh) out = (out & 0xffff) | value << 16;
  });
}

template <class Value, Half kHalf>
void StoreSmall(Wave& wave, const Instruction& i) {
  LaneAddresses bytes;
  if (!FindLanes(wave, i, sizeof(Value), bytes)) return;
  ForEachLane(wave.Exec(), [&](int lane) {
    const auto value =
        static_cast<Value>(wave.Vgpr(i.data)[lane] >> (kHalf == Half::kHigh ? 16 : 0));
    std::memcpy(bytes[lane], &value, sizeof(Value));
  });
}

constexpr Entry Loads(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kLoad);
}
constexpr Entry Stores(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kStore);
}

const Entry kGlobal[] = {
    Loads(16, "load_u8", &LoadSmall<uint8_t, Half::kWhole>),
    Loads(17, "load_i8", &LoadSmall<int8_t, Half::kWhole>),
    Loads(18, "load_u16", &LoadSmall<uint16_t, Half::kWhole>),
    Loads(19, "load_i16", &LoadSmall<int16_t, Half::kWhole>),
    Loads(20, "load_b32", &Load<1>),
    Loads(21, "load_b64", &Load<2>),
    Loads(22, "load_b96", &Load<3>),
    Loads(23, "load_b128", &Load<4>),
    Stores(24, "store_b8", &StoreSmall<uint8_t, Half::kWhole>),
    Stores(25, "store_b16", &StoreSmall<uint16_t, Half::kWhole>),
    Stores(26, "store_b32", &Store<1>),
    Stores(27, "store_b64", &Store<2>),
    Stores(28, "store_b96", &Store<3>),
    Stores(29, "store_b128", &Store<4>),
    Loads(30, "load_d16_u8", &LoadSmall<uint8_t, Half::kLow>),
    Loads(31, "load_d16_i8", &LoadSmall<int8_t, Half::kLow>),
    Loads(32, "load_d16_b16", &LoadSmall<uint16_t, Half::kLow>),
    Loads(33, "load_d16_hi_u8", &LoadSmall<uint8_t, Half::kHigh>),
    Loads(34, "load_d16_hi_i8", &LoadSmall<int8_t, Half::kHigh>),
    Loads(35, "load_d16_hi_b16", &LoadSmall<uint16_t, Half::kHigh>),
    Stores(36, "store_d16_hi_b8", &StoreSmall<uint8_t, Half::kHigh>),
    Stores(37, "store_d16_hi_b16", &StoreSmall<uint16_t, Half::kHigh>),
};

}  // namespace

Table GlobalTable() { return kGlobal; }

}  // namespace tandem::rdna
