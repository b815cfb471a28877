// Reads and writes of LDS by one lane.  Beyond the workgroup's LDS reads give 0 and writes are
// dropped, as the hardware does.
#pragma once

#include <cstring>

#include "services/gpu_worker/emulator/isa/wave.h"

namespace tandem::rdna {

inline bool IsInLds(const Wave& wave, uint32_t address, uint32_t bytes) {
  return uint64_t{address} + bytes <= wave.group->lds.size();
}

inline void ReportLdsRace(Wave& wave, uint32_t address, std::optional<std::string> race) {
  if (race) wave.Fail(*std::move(race), address);
}

template <class Value>
Value ReadLds(Wave& wave, uint32_t address) {
  Value value = {};
  if (!IsInLds(wave, address, sizeof(Value))) return value;
  if (LdsRaceCheck* races = wave.group->races; races != nullptr) {
    ReportLdsRace(wave, address, races->Read<sizeof(Value)>(wave.index, address));
  }
  std::memcpy(&value, wave.group->lds.data() + address, sizeof(Value));
  return value;
}

template <class Value>
void WriteLds(Wave& wave, uint32_t address, Value value) {
  if (!IsInLds(wave, address, sizeof(Value))) return;
  std::byte* bytes = wave.group->lds.data() + address;
  if (LdsRaceCheck* races = wave.group->races; races != nullptr) {
    const auto* after = reinterpret_cast<const std::byte*>(&value);
    ReportLdsRace(wave, address, races->Write(wave.index, address, sizeof(Value), bytes, after));
  }
  std::memcpy(bytes, &value, sizeof(Value));
}

// Replaces the value by function(old) and returns the old one.
template <class Value, class Function>
Value ChangeLds(Wave& wave, uint32_t address, Function function) {
  Value old = {};
  if (!IsInLds(wave, address, sizeof(Value))) return old;
  if (LdsRaceCheck* races = wave.group->races; races != nullptr) {
    ReportLdsRace(wave, address, races->Change<sizeof(Value)>(wave.index, address));
  }
  std::memcpy(&old, wave.group->lds.data() + address, sizeof(Value));
  const Value changed = function(old);
  std::memcpy(wave.group->lds.data() + address, &changed, sizeof(Value));
  return old;
}

}  // namespace tandem::rdna
