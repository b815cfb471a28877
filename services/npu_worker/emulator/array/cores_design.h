// What the designs of this folder share: cores that each do one thing at a time, and join their
// output.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <aie_api/aie.hpp>

#include "services/npu_worker/emulator/array/design.h"
#include "services/npu_worker/emulator/array/streams.h"

namespace tandem::npu::emulator {

// ArrayShape::generation of AIE2, npu1; above it: AIE2P.
inline constexpr uint32_t kAie2Generation = 3;

// The program of a core.  Thread-compatible.
class EmulatedCore {
 public:
  virtual ~EmulatedCore() = default;

  // Does one thing, in the core's own rounding mode.  False: it waits.
  bool Fire();
  // For what; empty: for its parameters.
  virtual std::string Waiting() const = 0;

 private:
  virtual bool FireInMode() = 0;

  aie::rounding_mode rounding_ = aie::rounding_mode::floor;
};

class CoresDesign : public Design {
 public:
  bool Advance() final;
  std::string Waiting() const final;

 protected:
  std::vector<Join> outputs_;  // of each column
  std::vector<std::unique_ptr<EmulatedCore>> cores_;
};

}  // namespace tandem::npu::emulator
