#include "services/npu_worker/emulator/array/cores_design.h"

#include <utility>

namespace tandem::npu::emulator {

bool EmulatedCore::Fire() {
  const aie::rounding_mode other = std::exchange(aie::host_rounding, rounding_);
  const bool fired = FireInMode();
  rounding_ = std::exchange(aie::host_rounding, other);
  return fired;
}

bool CoresDesign::Advance() {
  bool moved = false;
  for (const auto& core : cores_) moved |= core->Fire();
  for (Join& output : outputs_) moved |= output.Flush();
  return moved;
}

std::string CoresDesign::Waiting() const {
  for (const auto& core : cores_) {
    if (std::string waiting = core->Waiting(); !waiting.empty()) return waiting;
  }
  return "";
}

}  // namespace tandem::npu::emulator
