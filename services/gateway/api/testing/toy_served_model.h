// The toy model as the APIs see it.
#pragma once

#include <memory>
#include <utility>

#include "services/common/base/check.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/service/served_model.h"

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

}  // namespace tandem::gateway::testing
