// DS: loads and stores of LDS.
#include "services/gpu_worker/emulator/isa/lds_access.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

uint32_t AddressOf(const Wave& wave, const Instruction& i, int lane) {
  return wave.Vgpr(i.address)[lane] + static_cast<uint32_t>(i.offset);
}

template <int kDwords>
void Load(Wave& wave, const Instruction& i) {
  // The address register may be overwritten by the result.
  const Lanes32 addresses = [&] {
    Lanes32 copy;
    ForEachLane(wave.Exec(), [&](int lane) { copy[lane] = AddressOf(wave, i, lane); });
    return copy;
  }();
  const std::byte* lds = wave.group->lds.data();
  std::array<uint32_t*, kDwords> out;
  for (uint32_t word = 0; word < kDwords; ++word) out[word] = wave.Vgpr(i.dst + word);
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t address = addresses[lane];
    if (wave.group->races == nullptr && IsInLds(wave, address, 4 * kDwords)) {
      for (uint32_t word = 0; word < kDwords; ++word) {
        std::memcpy(&out[word][lane], lds + address + 4 * word, 4);
      }
      return;
    }
    for (uint32_t word = 0; word < kDwords; ++word) {
      out[word][lane] = ReadLds<uint32_t>(wave, address + 4 * word);
    }
  });
}

template <int kDwords>
void Store(Wave& wave, const Instruction& i) {
  ForEachLane(wave.Exec(), [&](int lane) {
    for (uint32_t word = 0; word < kDwords; ++word) {
      WriteLds(wave, AddressOf(wave, i, lane) + 4 * word, wave.Vgpr(i.data + word)[lane]);
    }
  });
}

enum class Half { kWhole, kLow, kHigh };

// Bytes and 16-bit numbers.
template <class Value, Half kHalf>
void LoadSmall(Wave& wave, const Instruction& i) {
  ForEachLane(wave.Exec(), [&](int lane) {
    const auto value =
        static_cast<uint32_t>(static_cast<int32_t>(ReadLds<Value>(wave, AddressOf(wave, i, lane))));
    uint32_t& out = wave.Vgpr(i.dst)[lane];
    if (kHalf == Half::kWhole) out = value;
    if (kHalf == Half::kLow) out = (out & 0xffff0000) | (value & 0xffff);
    if (kHalf == Half::kHigh) out = (out & 0xffff) | value << 16;
  });
}

template <class Value, Half kHalf>
void StoreSmall(Wave& wave, const Instruction& i) {
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t value = wave.Vgpr(i.data)[lane] >> (kHalf == Half::kHigh ? 16 : 0);
    WriteLds(wave, AddressOf(wave, i, lane), static_cast<Value>(value));
  });
}

// Two addresses: their offsets count elements, or 64 of them.
template <int kDwords, int kStride>
void LoadTwo(Wave& wave, const Instruction& i) {
  constexpr uint32_t kStep = 4 * kDwords * kStride;
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t base = wave.Vgpr(i.address)[lane];
    const uint32_t at[2] = {base + i.offset0 * kStep, base + i.offset1 * kStep};
    for (uint32_t word = 0; word < 2 * kDwords; ++word) {
      wave.Vgpr(i.dst + word)[lane] =
          ReadLds<uint32_t>(wave, at[word / kDwords] + 4 * (word % kDwords));
    }
  });
}

template <int kDwords, int kStride>
void StoreTwo(Wave& wave, const Instruction& i) {
  constexpr uint32_t kStep = 4 * kDwords * kStride;
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t base = wave.Vgpr(i.address)[lane];
    for (uint32_t word = 0; word < kDwords; ++word) {
      WriteLds(wave, base + i.offset0 * kStep + 4 * word, wave.Vgpr(i.data + word)[lane]);
      WriteLds(wave, base + i.offset1 * kStep + 4 * word, wave.Vgpr(i.data1 + word)[lane]);
    }
  });
}

// The address is M0 plus 4 for each lane.
void LoadByLane(Wave& wave, const Instruction& i) {
  const uint32_t base = (wave.Sgpr(kM0) & 0xffff) + static_cast<uint32_t>(i.offset);
  ForEachLane(wave.Exec(), [&](int lane) {
    wave.Vgpr(i.dst)[lane] = ReadLds<uint32_t>(wave, base + 4 * static_cast<uint32_t>(lane));
  });
}
void StoreByLane(Wave& wave, const Instruction& i) {
  const uint32_t base = (wave.Sgpr(kM0) & 0xffff) + static_cast<uint32_t>(i.offset);
  ForEachLane(wave.Exec(), [&](int lane) {
    WriteLds(wave, base + 4 * static_cast<uint32_t>(lane), wave.Vgpr(i.data)[lane]);
  });
}

void Nothing(Wave&, const Instruction&) {}

constexpr Entry Lds(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kLds);
}

const Entry kLds[] = {
    Lds(20, "ds_nop", &Nothing),
    Lds(13, "ds_store_b32", &Store<1>),
    Lds(77, "ds_store_b64", &Store<2>),
    Lds(222, "ds_store_b96", &Store<3>),
    Lds(223, "ds_store_b128", &Store<4>),
    Lds(30, "ds_store_b8", &StoreSmall<uint8_t, Half::kWhole>),
    Lds(31, "ds_store_b16", &StoreSmall<uint16_t, Half::kWhole>),
    Lds(160, "ds_store_b8_d16_hi", &StoreSmall<uint8_t, Half::kHigh>),
    Lds(161, "ds_store_b16_d16_hi", &StoreSmall<uint16_t, Half::kHigh>),
    Lds(14, "ds_store_2addr_b32", &StoreTwo<1, 1>),
    Lds(15, "ds_store_2addr_stride64_b32", &StoreTwo<1, 64>),
    Lds(78, "ds_store_2addr_b64", &StoreTwo<2, 1>),
    Lds(79, "ds_store_2addr_stride64_b64", &StoreTwo<2, 64>),
    Lds(176, "ds_store_addtid_b32", &StoreByLane),
    Lds(54, "ds_load_b32", &Load<1>),
    Lds(118, "ds_load_b64", &Load<2>),
    Lds(254, "ds_load_b96", &Load<3>),
    Lds(255, "ds_load_b128", &Load<4>),
    Lds(57, "ds_load_i8", &LoadSmall<int8_t, Half::kWhole>),
    Lds(58, "ds_load_u8", &LoadSmall<uint8_t, Half::kWhole>),
    Lds(59, "ds_load_i16", &LoadSmall<int16_t, Half::kWhole>),
    Lds(60, "ds_load_u16", &LoadSmall<uint16_t, Half::kWhole>),
    Lds(162, "ds_load_u8_d16", &LoadSmall<uint8_t, Half::kLow>),
    Lds(163, "ds_load_u8_d16_hi", &LoadSmall<uint8_t, Half::kHigh>),
    Lds(164, "ds_load_i8_d16", &LoadSmall<int8_t, Half::kLow>),
    Lds(165, "ds_load_i8_d16_hi", &LoadSmall<int8_t, Half::kHigh>),
    Lds(166, "ds_load_u16_d16", &LoadSmall<uint16_t, Half::kLow>),
    Lds(167, "ds_load_u16_d16_hi", &LoadSmall<uint16_t, Half::kHigh>),
    Lds(55, "ds_load_2addr_b32", &LoadTwo<1, 1>),
    Lds(56, "ds_load_2addr_stride64_b32", &LoadTwo<1, 64>),
    Lds(119, "ds_load_2addr_b64", &LoadTwo<2, 1>),
    Lds(120, "ds_load_2addr_stride64_b64", &LoadTwo<2, 64>),
    Lds(177, "ds_load_addtid_b32", &LoadByLane),
};

}  // namespace

Table LdsTable() { return kLds; }

}  // namespace tandem::rdna
