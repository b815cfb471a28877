// SMEM: scalar loads, by address or by buffer descriptor.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

uint64_t OffsetOf(const Wave& wave, const Instruction& i) {
  return static_cast<uint64_t>(int64_t{i.offset}) + wave.Sgpr(i.soffset);
}

template <int kDwords>
void Load(Wave& wave, const Instruction& i) {
  const uint64_t address =
      (wave.Scalar64(i.saddr) + OffsetOf(wave, i)) & ~uint64_t{3} & 0xffffffffffff;
  const std::byte* bytes = wave.group->memory->Find(address, kDwords * 4);
  if (bytes == nullptr) {
    wave.Fail(std::string(i.name) + " of memory that is not mapped", address);
    return;
  }
  for (int word = 0; word < kDwords; ++word) {
    uint32_t value = 0;
    std::memcpy(&value, bytes + 4 * word, 4);
    wave.SetSgpr(i.dst + static_cast<uint32_t>(word), value);
  }
}

// Words behind the descriptor's size read as 0.
template <int kDwords>
void LoadBuffer(Wave& wave, const Instruction& i) {
  const uint64_t low = wave.Scalar64(i.saddr);
  const uint64_t base = low & 0xffffffffffff;
  const uint32_t stride = low >> 48 & 0x3fff, records = wave.Sgpr(i.saddr + 2u);
  const uint64_t size = stride == 0 ? records : uint64_t{stride} * records;
  const uint64_t offset = OffsetOf(wave, i) & 0xffffffff & ~uint64_t{3};
  for (int word = 0; word < kDwords; ++word) {
    const uint64_t at = offset + 4 * static_cast<uint64_t>(word);
    uint32_t value = 0;
    if (at + 4 <= size) {
      const std::byte* bytes = wave.group->memory->Find(base + at, 4);
      if (bytes == nullptr) {
        wave.Fail(std::string(i.name) + " of memory that is not mapped", base + at);
        return;
      }
      std::memcpy(&value, bytes, 4);
    }
    wave.SetSgpr(i.dst + static_cast<uint32_t>(word), value);
  }
}

void Nothing(Wave&, const Instruction&) {}

constexpr Entry ScalarLoad(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kScalarLoad);
}

const Entry kLoads[] = {
    ScalarLoad(0, "s_load_b32", &Load<1>),
    ScalarLoad(1, "s_load_b64", &Load<2>),
    ScalarLoad(2, "s_load_b128", &Load<4>),
    ScalarLoad(3, "s_load_b256", &Load<8>),
    ScalarLoad(4, "s_load_b512", &Load<16>),
    ScalarLoad(8, "s_buffer_load_b32", &LoadBuffer<1>),
    ScalarLoad(9, "s_buffer_load_b64", &LoadBuffer<2>),
    ScalarLoad(10, "s_buffer_load_b128", &LoadBuffer<4>),
    ScalarLoad(11, "s_buffer_load_b256", &LoadBuffer<8>),
    ScalarLoad(12, "s_buffer_load_b512", &LoadBuffer<16>),
    Special(32, "s_gl1_inv", &Nothing, 0, Kind::kWait),
    Special(33, "s_dcache_inv", &Nothing, 0, Kind::kWait),
};

}  // namespace

Table ScalarLoadTable() { return kLoads; }

}  // namespace tandem::rdna
