// An array as a design of ../../kernels/array describes it: buffers, locks and chains of descriptors of each tile,
// streams between them, and the cores' programs compiled for the host.  Tests run control code over it that the
// other designs of this folder run by their own wiring.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/npu_worker/emulator/array/emulated_array.h"

namespace tandem::npu::emulator {

// `path`: what ../../kernels/array/make.py writes, which has checked it.  INVALID_ARGUMENT: no such file, or
// not for an array of this shape; a program that does not exist.
absl::StatusOr<EmulatedArray::DesignFactory> ReadRecordedDesign(const std::string& path,
                                                                const ArrayShape& shape);

}  // namespace tandem::npu::emulator
