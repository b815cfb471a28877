// A model that is up: what the public API needs to know of it, and the engine that runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/service/model_names.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Immutable but for the engine, which is thread-safe.
class ServedModel {
 public:
  // Builds the tokenizer and starts the engine.  INVALID_ARGUMENT: a vocabulary or limits that
  // cannot work.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Create(std::unique_ptr<Executor> executor,
                                                             const EngineOptions& options,
                                                             ModelNameOptions names = {});

  const v1::ModelInfo& info() const { return info_; }
  const ModelConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Engine& engine() const { return *engine_; }
  // What unset parameters mean for this model.
  const SamplingParams& sampling_defaults() const { return sampling_defaults_; }
  // Put before a prompt of text; nullopt: nothing is.
  std::optional<uint32_t> bos() const { return bos_; }

  // Every API asks this what a name means.
  const ModelNames& names() const { return names_; }
  // OK if `name` means this model.  NOT_FOUND says what it is called.
  absl::Status CheckName(const std::string& name) const { return names_.Resolve(name).status(); }
  // Of the model's files, in Jinja; empty where they have none.
  const std::string& chat_template() const { return chat_template_; }

 private:
  ServedModel() = default;

  v1::ModelInfo info_;
  ModelNames names_;
  std::string chat_template_;
  ModelConfig config_;
  SamplingParams sampling_defaults_;
  std::optional<uint32_t> bos_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;  // after the tokenizer it borrows
};

}  // namespace tandem::gateway
