// What an array is configured to do: which cores run what, and which streams connect them.
//
// On a device an xclbin configures the array.  Here the xclbin's configuration holds the name of a
// class of this folder (configuration.h), which wires the cores' own functions, compiled for the
// host.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/emulator/array/shim_dma.h"

namespace tandem::npu::emulator {

// Where control code leaves a core's runtime parameters.
struct ParameterBox {
  std::array<uint32_t, kMaxParameters> words{};
  bool is_full = false;  // the lock
};

inline constexpr uint32_t kNumCoreRows = 4;

// The tiles that control code reaches.
struct Fabric {
  std::vector<ShimDma> shims;                                      // of each column
  std::vector<std::array<ParameterBox, kNumCoreRows>> parameters;  // [column][core row]
};

// Thread-compatible.
class Design {
 public:
  virtual ~Design() = default;
  // Moves and computes what it can.  False: nothing moves until control code does more.
  virtual bool Advance() = 0;
  // Why nothing moves, or empty if all cores wait for parameters.
  virtual std::string Waiting() const = 0;
};

}  // namespace tandem::npu::emulator
