// An array of cores as its control code sees it: executes transactions.
//
// Every register that a transaction writes must be one that is emulated (shim descriptors and
// queues, cores' runtime parameters and their lock), and every effect must be one that a device
// would show whatever its timing (shim_dma.h).  Anything else is an error with the operation's
// number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/array/design.h"
#include "services/npu_worker/emulator/fault_injection.h"

namespace tandem::npu::emulator {

// Thread-compatible.
class EmulatedArray {
 public:
  // Configures the array anew.  The fabric must outlive the design.
  using DesignFactory = std::function<std::unique_ptr<Design>(Fabric&)>;

  EmulatedArray(const ArrayShape& shape, DesignFactory make_design, Faults faults = {});

  // Loads another configuration: what cores, queues and locks held is gone.
  void Configure(DesignFactory make_design);

  // Executes a transaction over data buffers at `buffers`, device addresses; none: its descriptors have the
  // addresses, and patches do nothing.  After an error the
  // array is configured anew.  INVALID_ARGUMENT, OUT_OF_RANGE, RESOURCE_EXHAUSTED: what the
  // transaction got wrong; outside its buffers nothing has been touched.  DEADLINE_EXCEEDED: it
  // waits for a token that will never come.
  using Buffers = std::optional<std::span<const uint64_t>>;
  absl::Status Run(std::span<const uint32_t> words, Buffers buffers,
                   const AddressSpace::View& memory);

 private:
  void Reset();
  absl::Status Execute(const DecodedTransaction& transaction, Buffers buffers);
  absl::Status Execute(const Operation& operation, Buffers buffers);
  absl::StatusOr<uint32_t> Read(uint32_t address) const;
  absl::Status Write(uint32_t address, uint32_t value);
  absl::Status WriteCore(Tile tile, uint32_t offset, uint32_t value);
  absl::Status Sync(const DmaToken& token);
  absl::Status CheckIdle() const;

  const ArrayShape shape_;
  DesignFactory make_design_;
  const Faults faults_;
  int64_t num_runs_ = 0;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Design> design_;
};

}  // namespace tandem::npu::emulator
