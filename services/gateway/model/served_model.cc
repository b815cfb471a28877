#include "services/gateway/model/served_model.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/convert.h"
#include "services/gateway/model/model_work.h"
#include "services/gateway/tool_calls/functiongemma_parser.h"

namespace tandem::gateway {
namespace {

absl::StatusOr<v1::ModelInfo> MakeInfo(const loader::v1::Model& model, const ModelConfig& config,
                                       DType kv_dtype) {
  v1::ModelInfo info;
  info.set_name(model.name());
  info.set_model_id(model.model_id());
  info.set_architecture(config.architecture);
  info.set_vocab_size(config.vocab_size);
  info.set_num_layers(config.num_layers);
  TANDEM_ASSIGN_OR_RETURN(std::vector<PackedTensor> tensors, TensorsFromProto(model, config));
  std::erase_if(tensors, [](const PackedTensor& tensor) { return IsVision(tensor.role); });
  info.set_weight_bytes(WeightBytes(tensors));
  info.set_parameters(NumParameters(tensors));
  info.set_weight_format(WeightFormat(tensors));
  info.set_quantization(model.quantization());
  *info.mutable_work() = WorkOf(config, tensors, kv_dtype);
  return info;
}

// The control tokens of FunctionGemma; none if one of them is missing.
std::vector<uint32_t> FunctionTokens(const Tokenizer& tokenizer) {
  std::vector<uint32_t> tokens;
  for (const std::string_view piece : kFunctionMarkers) {
    const std::optional<uint32_t> id = tokenizer.FindPiece(piece);
    if (!id.has_value()) return {};
    tokens.push_back(*id);
  }
  return tokens;
}

// The vocabulary as constraints see it.
absl::StatusOr<std::shared_ptr<const constraint::TokenTrie>> MakeTrie(const ModelConfig& config,
                                                                      const Tokenizer& tokenizer) {
  constexpr size_t kMostBytes = 1024;  // longer tokens are in no mask
  std::vector<std::string> bytes(config.vocab_size);
  for (uint32_t token = 0; token < config.vocab_size; ++token) {
    const std::string_view text = tokenizer.TokenBytes(token);
    if (text.size() <= kMostBytes) bytes[token] = text;
  }
  std::vector<uint32_t> ends;
  for (const int32_t id : config.stop_token_ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < config.vocab_size) {
      ends.push_back(static_cast<uint32_t>(id));
    }
  }
  return constraint::TokenTrie::Create(std::move(bytes), std::move(ends));
}

constraint::ConstraintCacheOptions CacheOptions(const std::vector<EngineObserver*>& observers) {
  constraint::ConstraintCacheOptions options;
  options.on_compiled = [observers](const absl::Status& status, absl::Duration time) {
    for (EngineObserver* observer : observers) observer->ConstraintCompiled(status, time);
  };
  options.on_hit = [observers] {
    for (EngineObserver* observer : observers) observer->ConstraintFound();
  };
  return options;
}

}  // namespace

void ServedModel::StopPreparing(const absl::Status& why) const {
  constraints_->Stop(why);
  if (pictures_ != nullptr) pictures_->Stop(why);
}

void ServedModel::TakePictures(const Executor& executor, const EngineOptions& options,
                               const MakePictureEncoder& make) {
  const ModelConfig& config = executor.config();
  if (!config.vision.has_value()) {
    why_no_pictures_ = absl::StrFormat(
        "%s reads no pictures: it has no vision encoder (docs/pictures.md)", info_.name());
    return;
  }
  std::string why = executor.plan().why_no_pictures();
  const uint32_t num_rows = config.vision->tokens_per_image;
  const uint32_t most = Engine::MaxPictureRows(options, executor.limits());
  if (why.empty() && num_rows > most) {
    why = absl::StrFormat(
        "a picture takes %d rows of one step, and steps have room for %d beside other requests: "
        "raise --max-rows",
        num_rows, most);
  }
  for (const std::string_view marker : {"<start_of_image>", "<end_of_image>"}) {
    if (why.empty() && !tokenizer_->FindPiece(marker).has_value()) {
      why = absl::StrFormat("the vocabulary lacks %s", std::string(marker));
    }
  }
  if (why.empty() && make == nullptr) why = "it has no encoder";
  if (why.empty()) {
    auto made = make(executor);
    if (made.ok()) {
      pictures_ = *std::move(made);
      info_.set_image_tokens(num_rows);
      return;
    }
    why = std::string(made.status().message());
  }
  why_no_pictures_ = "this server takes no pictures: " + why;
  LogWarning("pictures are refused", {{"model", info_.name()}, {"reason", why}});
}

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Create(
    LoadedReplica first, ReplicaStarts starts, const EngineOptions& options, ModelNameOptions names,
    std::optional<ToolFormat> tools, const MakePictureEncoder& make_pictures) {
  const Executor* const executor = first.executor.get();
  std::unique_ptr<ServedModel> served(new ServedModel());
  const loader::v1::Model& model = executor->model();
  const Vocabulary& vocabulary = executor->vocabulary();
  served->config_ = executor->config();
  TANDEM_ASSIGN_OR_RETURN(served->info_,
                          MakeInfo(model, served->config_, executor->limits().kv_dtype));
  served->names_ = ModelNames(model.name(), std::move(names));
  for (size_t i = 1; i < served->names_.listed().size(); ++i) {
    served->info_.add_aliases(served->names_.listed()[i]);
  }
  served->chat_template_ = model.chat_template();
  if (model.has_default_top_k()) served->sampling_defaults_.top_k = model.default_top_k();
  if (model.has_default_top_p()) served->sampling_defaults_.top_p = model.default_top_p();
  if (model.has_default_temperature()) {
    served->sampling_defaults_.temperature = model.default_temperature();
  }
  if (vocabulary.add_bos && served->config_.bos_token_id >= 0) {
    served->bos_ = static_cast<uint32_t>(served->config_.bos_token_id);
  }
  TANDEM_ASSIGN_OR_RETURN(served->tokenizer_, Tokenizer::Create(vocabulary));
  if (tools != ToolFormat::kGemma3) {
    served->tool_tokens_ = FunctionTokens(*served->tokenizer_);
    if (!served->tool_tokens_.empty()) {
      served->tool_format_ = ToolFormat::kFunctionGemma;
    } else if (tools.has_value()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--tool-format functiongemma: the vocabulary of %s lacks its tokens, such as %s",
          model.name(), std::string(kFunctionMarkers[0])));
    }
  }
  served->shared_prefixes_ = options.shared_prefixes;
  served->TakePictures(*executor, options, make_pictures);
  served->info_.set_no_images_reason(served->why_no_pictures_);
  TANDEM_ASSIGN_OR_RETURN(auto trie, MakeTrie(served->config_, *served->tokenizer_));
  TANDEM_ASSIGN_OR_RETURN(served->replicas_, Replicas::Create(std::move(first), *served->tokenizer_,
                                                              options, std::move(starts)));
  served->constraints_ = std::make_unique<constraint::ConstraintCache>(
      std::move(trie), CacheOptions(options.observers));
  served->info_.set_context_len(served->replicas_->max_sequence_len());
  return served;
}

}  // namespace tandem::gateway
