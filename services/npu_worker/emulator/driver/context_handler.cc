#include "services/npu_worker/emulator/driver/context_handler.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/emulator/array/emulated_array.h"
#include "services/npu_worker/emulator/kernels/kernel_dispatch.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint64_t kRunOpcode = 3;  // mlir-aie's: run an instruction sequence

absl::Status RunControlCode(EmulatedArray& array, const Invocation& invocation,
                            const AddressSpace::View& view) {
  if (invocation.opcode != kRunOpcode) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run: opcode %d, must be %d", invocation.opcode, kRunOpcode));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto buffer, view.Buffer(invocation.instruction_address));
  TANDEM_ASSIGN_OR_RETURN(
      const auto code,
      Within(buffer, 0, uint64_t{invocation.num_instruction_words} * 4, "instructions"));
  if (reinterpret_cast<uintptr_t>(code.data()) % alignof(uint32_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run: instructions at address %#x", invocation.instruction_address));
  }
  std::optional<std::span<const uint64_t>> buffers;
  if (!invocation.has_addresses) {
    buffers = std::span(invocation.buffers).first(invocation.num_buffers);
  }
  return array.Run({reinterpret_cast<const uint32_t*>(code.data()), code.size() / 4}, buffers,
                   view);
}

// What executes the commands of one CU.
struct Configured {
  absl::StatusOr<EmulatedArray::DesignFactory> design = absl::UnknownError("");  // error: unknown
  std::shared_ptr<KernelDispatcher> kernels;  // in place of a design
};

Configured ReadConfiguration(std::span<const std::byte> configuration, const ArrayShape& shape,
                             Faults faults) {
  const std::optional<std::string> name = DesignOf(configuration);
  if (!name.has_value()) return {.kernels = std::make_shared<KernelDispatcher>(faults)};
  return {.design = FindDesign(*name, shape)};
}

// What one context has on its columns.  Thread-compatible.
class ContextArray {
 public:
  ContextArray(Configurations configurations, const ArrayShape& shape, Faults faults,
               std::function<void()> on_load)
      : shape_(shape), faults_(faults), on_load_(std::move(on_load)) {
    for (const auto& configuration : configurations) {
      configured_.push_back(ReadConfiguration(configuration, shape, faults));
    }
  }

  absl::Status Run(const Invocation& invocation, const AddressSpace::View& view) {
    if (invocation.cu >= configured_.size()) {
      return absl::NotFoundError(absl::StrFormat("a command of CU %d, the context has %d",
                                                 invocation.cu, configured_.size()));
    }
    const Configured& configured = configured_[invocation.cu];
    TANDEM_RETURN_IF_ERROR(Load(invocation.cu, configured));
    if (configured.kernels != nullptr) return configured.kernels->Run(invocation, view);
    return RunControlCode(*array_, invocation, view);
  }

 private:
  absl::Status Load(uint32_t cu, const Configured& configured) {
    if (loaded_ == cu) return absl::OkStatus();
    if (configured.kernels == nullptr) {
      if (!configured.design.ok()) return configured.design.status();
      if (array_ == nullptr) {
        array_ = std::make_unique<EmulatedArray>(shape_, *configured.design, faults_);
      } else {
        array_->Configure(*configured.design);
      }
    }
    loaded_ = cu;
    on_load_();
    return absl::OkStatus();
  }

  const ArrayShape shape_;
  const Faults faults_;
  const std::function<void()> on_load_;
  std::vector<Configured> configured_;  // of each CU
  std::optional<uint32_t> loaded_;
  std::unique_ptr<EmulatedArray> array_;  // once a CU with a design was loaded
};

}  // namespace

CommandHandler MakeContextHandler(Configurations configurations, const ArrayShape& shape,
                                  Faults faults, std::function<void()> on_load) {
  auto array = std::make_shared<ContextArray>(configurations, shape, faults, std::move(on_load));
  return [array](const Invocation& invocation, const AddressSpace::View& view) {
    return array->Run(invocation, view);
  };
}

}  // namespace tandem::npu::emulator
