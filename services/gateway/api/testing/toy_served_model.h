// The toy model as the APIs see it.
#pragma once

#include <memory>
#include <utility>

#include "services/common/base/check.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway::testing {

inline std::unique_ptr<ServedModel> MakeToyModel(FakeExecutorOptions fake = {},
                                                 const EngineOptions& options = {.max_sequences = 8,
                                                                                 .max_rows = 64,
                                                                                 .chunk_rows = 16,
                                                                                 .max_waiting = 20},
                                                 ModelNameOptions names = {}) {
  auto model = ServedModel::Create(std::make_unique<FakeExecutor>(std::move(fake)), options,
                                   std::move(names));
  TANDEM_CHECK(model.ok());
  return *std::move(model);
}

// With a context of 2,048 positions, for prompts that list tools.
inline std::unique_ptr<ServedModel> MakeRoomyToyModel() {
  FakeExecutorOptions fake;
  fake.limits.context_len *= 8;
  fake.limits.max_table_len *= 8;
  for (uint32_t& blocks : fake.limits.num_blocks) blocks *= 8;
  return MakeToyModel(std::move(fake));
}

}  // namespace tandem::gateway::testing
