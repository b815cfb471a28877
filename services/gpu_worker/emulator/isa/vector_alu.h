// Makes handlers of vector operations from functions of one lane.
//
//   Vector<Type::kF32, Type::kF32, Type::kF32>(259, "v_add_f32", [](float a, float b) { return a + b; })
//
// The first type is the result's.  A function gets and returns float for kF32 and kF16, double for
// kF64, uint64_t for kB64 and kI64, and uint32_t for the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "services/gpu_worker/emulator/isa/numbers.h"
#include "services/gpu_worker/emulator/isa/vector_operand.h"

namespace tandem::rdna {

// An operation by its number in VOP3's encoding, or in its own for the other encodings.
struct Entry {
  uint16_t op = 0;
  const char* name = "";
  Handler handler = nullptr;
  Kind kind = Kind::kVector;
  uint8_t num_sources = 0;
  // Bits for 16-bit operands, whose register has 7 bits and a bit for its high half in the
  // encodings VOP1, VOP2 and VOPC: a bit for each source, and bit 3 for the destination.
  uint8_t halves = 0;
};

using Table = std::span<const Entry>;

constexpr bool Is64(Type type) {
  return type == Type::kB64 || type == Type::kI64 || type == Type::kF64;
}
constexpr bool IsHalf(Type type) {
  return type == Type::kB16 || type == Type::kM16 || type == Type::kF16;
}

template <Type kType>
using Stored = std::conditional_t<Is64(kType), uint64_t, uint32_t>;

template <Type kType>
auto FromStored(Stored<kType> bits) {
  if constexpr (kType == Type::kF32) {
    return AsFloat(bits);
  } else if constexpr (kType == Type::kF16) {
    return HalfToFloat(bits);
  } else if constexpr (kType == Type::kF64) {
    return AsDouble(bits);
  } else {
    return bits;
  }
}

template <Type kType, class Value>
Stored<kType> ToStored(Value value) {
  if constexpr (kType == Type::kF32) {
    return AsBits(static_cast<float>(value));
  } else if constexpr (kType == Type::kF16) {
    if constexpr (std::is_same_v<Value, double>) {
      return DoubleToHalf(value);
    } else {
      return FloatToHalf(value);
    }
  } else if constexpr (kType == Type::kF64) {
    return AsBits64(value);
  } else {
    return static_cast<Stored<kType>>(value);
  }
}

template <Type kType>
const Stored<kType>* LoadSource(const Wave& wave, const Instruction& instruction, int index,
                                std::array<Stored<kType>, kMaxLanes>& temporary) {
  if constexpr (Is64(kType)) {
    return LoadLanes64(wave, instruction, index, kType, temporary);
  } else {
    return LoadLanes32(wave, instruction, index, kType, temporary);
  }
}

// The rounding that applies to results of this type.
inline uint32_t RoundOf(const Wave& wave, Type type) {
  if (type == Type::kF32) return wave.mode.round32;
  if (type == Type::kF16 || type == Type::kF64) return wave.mode.round16_64;
  return 0;
}

template <Type kType>
void StoreResult(Wave& wave, const Instruction& instruction,
                 std::array<Stored<kType>, kMaxLanes>& values) {
  if constexpr (Is64(kType)) {
    StoreLanes64(wave, instruction, kType, values.data());
  } else {
    StoreLanes32(wave, instruction, kType, values.data());
  }
}

template <class Function, Type kResult, Type... kSources, size_t... kIndexes>
void RunVector(Wave& wave, const Instruction& instruction, std::index_sequence<kIndexes...>) {
  std::tuple<std::array<Stored<kSources>, kMaxLanes>...> temporaries;
  const auto sources = std::make_tuple(LoadSource<kSources>(
      wave, instruction, static_cast<int>(kIndexes), std::get<kIndexes>(temporaries))...);
  std::array<Stored<kResult>, kMaxLanes> out;
  const uint32_t round = RoundOf(wave, kResult);
  for (int first = 0; first < wave.lanes; first += kLaneStep) {
    if (kResult == Type::kF16 && round != 0) {
      // Rounded once, from an exact or much longer result.
      for (int lane = first; lane < first + kLaneStep; ++lane) {
        const double value = static_cast<double>(
            Function{}(FromStored<kSources>(std::get<kIndexes>(sources)[lane])...));
        out[lane] = DoubleToHalf(value, static_cast<Round>(round));
      }
      continue;
    }
    for (int lane = first; lane < first + kLaneStep; ++lane) {
      out[lane] =
          ToStored<kResult>(Function{}(FromStored<kSources>(std::get<kIndexes>(sources)[lane])...));
    }
  }
  StoreResult<kResult>(wave, instruction, out);
}

template <class Function, Type kResult, Type... kSources>
void VectorHandler(Wave& wave, const Instruction& instruction) {
  const RoundingScope scope(RoundOf(wave, kResult));
  RunVector<Function, kResult, kSources...>(wave, instruction,
                                            std::index_sequence_for<decltype(kSources)...>{});
}

template <Type... kSources>
constexpr uint8_t HalvesOf() {
  uint8_t halves = 0;
  int index = 0;
  ((halves |= IsHalf(kSources) ? 1 << index : 0, ++index), ...);
  return halves;
}

template <Type kResult, Type... kSources, class Function>
constexpr Entry Vector(int op, const char* name, Function) {
  return {.op = static_cast<uint16_t>(op),
          .name = name,
          .handler = &VectorHandler<Function, kResult, kSources...>,
          .kind = Kind::kVector,
          .num_sources = sizeof...(kSources),
          .halves = static_cast<uint8_t>(HalvesOf<kSources...>() | (IsHalf(kResult) ? 8 : 0))};
}

template <class Wrapping, class Saturating, Type kResult, Type... kSources>
void SaturatingHandler(Wave& wave, const Instruction& instruction) {
  if (instruction.clamp) {
    RunVector<Saturating, kResult, kSources...>(wave, instruction,
                                                std::index_sequence_for<decltype(kSources)...>{});
  } else {
    RunVector<Wrapping, kResult, kSources...>(wave, instruction,
                                              std::index_sequence_for<decltype(kSources)...>{});
  }
}

// An integer operation: with clamp the second function.
template <Type kResult, Type... kSources, class Wrapping, class Saturating>
constexpr Entry Clampable(int op, const char* name, Wrapping, Saturating) {
  return {.op = static_cast<uint16_t>(op),
          .name = name,
          .handler = &SaturatingHandler<Wrapping, Saturating, kResult, kSources...>,
          .kind = Kind::kVector,
          .num_sources = sizeof...(kSources),
          .halves = static_cast<uint8_t>(HalvesOf<kSources...>() | (IsHalf(kResult) ? 8 : 0))};
}

// The handler writes everything itself.
constexpr Entry Special(int op, const char* name, Handler handler, int num_sources,
                        Kind kind = Kind::kVector, int halves = 0) {
  return {.op = static_cast<uint16_t>(op),
          .name = name,
          .handler = handler,
          .kind = kind,
          .num_sources = static_cast<uint8_t>(num_sources),
          .halves = static_cast<uint8_t>(halves)};
}

}  // namespace tandem::rdna
