#include "services/gateway/llamacpp/server_state.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {
namespace {

// The shortest decimal form: 0.95, not 0.94999998807907104.
double Short(float value) { return std::round(double{value} * 1e6) / 1e6; }

std::string Piece(const ServedModel& model, int64_t token) {
  if (token < 0 || token >= model.config().vocab_size) return "";
  return std::string(model.tokenizer().Piece(static_cast<uint32_t>(token)));
}

// The defaults of a request, under llama.cpp's names.
Json DefaultParams(const ServedModel& model) {
  const SamplingParams& defaults = model.sampling_defaults();
  return {{"n_predict", -1},
          {"max_tokens", -1},
          {"seed", std::numeric_limits<uint32_t>::max()},
          {"temperature", Short(defaults.temperature)},
          {"top_k", defaults.top_k},
          {"top_p", Short(defaults.top_p)},
          {"min_p", Short(defaults.min_p)},
          {"typical_p", 1.0},
          {"repeat_last_n", -1},
          {"repeat_penalty", Short(defaults.repetition_penalty)},
          {"presence_penalty", Short(defaults.presence_penalty)},
          {"frequency_penalty", Short(defaults.frequency_penalty)},
          {"mirostat", 0},
          {"stop", Json::array()},
          {"ignore_eos", false},
          {"stream", false},
          {"n_probs", 0},
          {"samplers", {"penalties", "temperature", "top_k", "top_p", "min_p"}}};
}

Json Slot(const ServedModel& model, uint32_t id, bool is_processing) {
  return {{"id", id},
          {"id_task", -1},
          {"n_ctx", model.info().context_len()},
          {"speculative", false},
          {"is_processing", is_processing}};
}

}  // namespace

Json LlamaCppProps(const ServedModel& model, const v1::SchedulerStatus& scheduler,
                   const std::string& version) {
  Json settings = Slot(model, 0, false);
  settings["params"] = DefaultParams(model);
  const auto& stops = model.config().stop_token_ids;
  return {{"default_generation_settings", std::move(settings)},
          {"total_slots", scheduler.max_sequences()},
          {"model_path", model.info().name()},
          {"model_alias", model.names().listed().back()},
          {"chat_template", model.chat_template()},
          {"modalities", {{"vision", model.pictures() != nullptr}, {"audio", false}}},
          {"bos_token", model.bos().has_value() ? Piece(model, *model.bos()) : ""},
          {"eos_token", stops.empty() ? "" : Piece(model, stops.front())},
          {"build_info", "tandem-" + version},
          {"is_sleeping", false}};
}

Json LlamaCppSlots(const ServedModel& model, const v1::SchedulerStatus& scheduler) {
  Json slots = Json::array();
  for (uint32_t id = 0; id < scheduler.max_sequences(); ++id) {
    slots.push_back(Slot(model, id, id < scheduler.running()));
  }
  return slots;
}

bool HasFreeSlot(const v1::SchedulerStatus& scheduler) {
  return scheduler.waiting() == 0 && scheduler.running() < scheduler.max_sequences();
}

}  // namespace tandem::gateway
