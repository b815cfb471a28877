// A model that is up: what the public API needs to know of it, and the engines that run it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/gateway/constraint/constraint_cache.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/model/model_names.h"
#include "services/gateway/model/picture_encoder.h"
#include "services/gateway/replicas/replicas.h"
#include "services/gateway/tokenizer/tokenizer.h"
#include "services/gateway/tool_calls/call_parser.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Makes what turns files of pictures into soft tokens.
using MakePictureEncoder =
    std::function<absl::StatusOr<std::unique_ptr<PictureEncoder>>(const Executor& executor)>;

// Immutable but for the replicas, the constraints and the pictures, which are thread-safe.
class ServedModel {
 public:
  // Builds the tokenizer and starts the engines: that of `first`, and in the background those of the
  // other replicas of `starts`.  `tools`: how the model is shown tools; by default its vocabulary
  // decides.  INVALID_ARGUMENT: a vocabulary or limits that cannot work, or that lacks what `tools`
  // needs.  `make_pictures`: called where model and workers take pictures; if it is null or fails,
  // pictures are refused.  REQUIRES first.replica < starts.all.size().
  static absl::StatusOr<std::unique_ptr<ServedModel>> Create(
      LoadedReplica first, ReplicaStarts starts, const EngineOptions& options,
      ModelNameOptions names = {}, std::optional<ToolFormat> tools = {},
      const MakePictureEncoder& make_pictures = {});
  // With one replica.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Create(
      std::unique_ptr<Executor> executor, const EngineOptions& options, ModelNameOptions names = {},
      std::optional<ToolFormat> tools = {}, const MakePictureEncoder& make_pictures = {}) {
    return Create({0, std::move(executor)}, {std::vector<ReplicaStart>(1), false}, options,
                  std::move(names), tools, make_pictures);
  }

  const v1::ModelInfo& info() const { return info_; }
  const ModelConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  Replicas& replicas() const { return *replicas_; }
  // Compiles constraints for the model's vocabulary (PrepareConstraint).  Stop it where the engines
  // are stopped, so that the calls that wait for it end.
  constraint::ConstraintCache& constraints() const { return *constraints_; }
  // Encodes pictures (PrepareRequests); null: pictures are refused, and why_no_pictures() says why.
  PictureEncoder* pictures() const { return pictures_.get(); }
  const std::string& why_no_pictures() const { return why_no_pictures_; }
  // Whether all clients share prefixes, whatever their keys.
  bool shared_prefixes() const { return shared_prefixes_; }
  // Ends what requests wait for before the engine has them.
  void StopPreparing(const absl::Status& why) const;
  // What unset parameters mean for this model.
  const SamplingParams& sampling_defaults() const { return sampling_defaults_; }
  // Put before a prompt of text; nullopt: nothing is.
  std::optional<uint32_t> bos() const { return bos_; }

  // Every API asks this what a name means.
  const ModelNames& names() const { return names_; }
  // OK if `name` means this model.  NOT_FOUND says what it is called.
  absl::Status CheckName(const std::string& name) const { return names_.Resolve(name).status(); }
  // How it is shown tools and writes calls.
  ToolFormat tool_format() const { return tool_format_; }
  // The control tokens of that format, shown in answers that may call tools.
  const std::vector<uint32_t>& tool_tokens() const { return tool_tokens_; }
  // Of the model's files, in Jinja; empty where they have none.
  const std::string& chat_template() const { return chat_template_; }

 private:
  ServedModel() = default;
  // Sets pictures_ or why_no_pictures_.
  void TakePictures(const Executor& executor, const EngineOptions& options,
                    const MakePictureEncoder& make);

  v1::ModelInfo info_;
  ModelNames names_;
  std::string chat_template_;
  ToolFormat tool_format_ = ToolFormat::kGemma3;
  std::vector<uint32_t> tool_tokens_;
  ModelConfig config_;
  SamplingParams sampling_defaults_;
  std::optional<uint32_t> bos_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Replicas> replicas_;  // after the tokenizer they borrow
  // After the engines: what waits for a compilation is answered by it.
  std::unique_ptr<constraint::ConstraintCache> constraints_;
  bool shared_prefixes_ = false;
  std::string why_no_pictures_;
  std::unique_ptr<PictureEncoder> pictures_;  // likewise after the engines; null: they are refused
};

}  // namespace tandem::gateway
