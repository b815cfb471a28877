#include "services/gateway/service/served_model.h"

#include <utility>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/common/rpc/convert.h"
#include "services/gateway/service/model_work.h"

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
  TANDEM_ASSIGN_OR_RETURN(const std::vector<PackedTensor> tensors, TensorsFromProto(model, config));
  info.set_weight_bytes(WeightBytes(tensors));
  info.set_parameters(NumParameters(tensors));
  info.set_weight_format(WeightFormat(tensors));
  info.set_quantization(model.quantization());
  *info.mutable_work() = WorkOf(config, tensors, kv_dtype);
  return info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Create(std::unique_ptr<Executor> executor,
                                                                 const EngineOptions& options,
                                                                 ModelNameOptions names) {
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
  TANDEM_ASSIGN_OR_RETURN(served->engine_,
                          Engine::Create(std::move(executor), *served->tokenizer_, options));
  served->info_.set_context_len(served->engine_->max_sequence_len());
  return served;
}

}  // namespace tandem::gateway
