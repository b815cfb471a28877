#include "tools/tandem/commands/testing/fake_gateway.h"

#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"

namespace tandem {
namespace {

// Streams `words` as an answer; both kinds of response have the same fields.
template <typename Response>
grpc::Status StreamWords(const std::vector<std::string>& words, bool forever, bool with_logprobs,
                         const std::function<bool(const Response&)>& write) {
  Response first;
  first.set_placement("Attend on npu0 (emulated), the rest on gpu0");
  first.set_request_id("r1");
  write(first);
  uint32_t num_tokens = 0;
  do {
    for (const std::string& word : words) {
      Response response;
      response.set_text(word);
      v1::Token* token = response.add_tokens();
      token->set_id(num_tokens++);
      token->set_piece(word);
      if (with_logprobs) {
        token->set_logprob(-0.5f);
        v1::TokenAlternative* alternative = token->add_alternatives();
        alternative->set_id(7);
        alternative->set_piece("\xE6\x9D");
        alternative->set_logprob(-1.5f);
      }
      if (!write(response)) return grpc::Status::CANCELLED;
    }
    if (forever) absl::SleepFor(absl::Milliseconds(5));
  } while (forever);
  Response last;
  last.set_finish_reason(v1::FINISH_REASON_LENGTH);
  v1::Usage* usage = last.mutable_usage();
  usage->set_prompt_tokens(3);
  usage->set_completion_tokens(num_tokens);
  usage->set_seed(42);
  usage->set_first_token_seconds(0.25);
  usage->set_total_seconds(0.25 + 0.1 * (num_tokens - 1));
  v1::DeviceTime* time = usage->add_device_times();
  time->set_worker("gpu0");
  time->set_seconds(0.125);
  time->set_joules(12.5);
  write(last);
  return grpc::Status::OK;
}

template <typename Response>
grpc::Status StreamBack(const std::string& content, const std::string& answer, bool with_logprobs,
                        const std::function<bool(const Response&)>& write) {
  if (content == "fail") {
    return {grpc::StatusCode::INVALID_ARGUMENT, "sampling.top_p is 7:\nit must be in (0, 1]"};
  }
  if (content == "nothing") return grpc::Status::OK;
  std::vector<std::string> words;
  std::istringstream stream(answer);
  for (std::string word; stream >> word;) words.push_back((words.empty() ? "" : " ") + word);
  return StreamWords(words, content == "forever", with_logprobs, write);
}

template <typename Response>
std::function<bool(const Response&)> Sink(const grpc::ServerContext& context,
                                          grpc::ServerWriter<Response>& writer) {
  return [&context, &writer](const Response& response) {
    return writer.Write(response) && !context.IsCancelled();
  };
}

}  // namespace

FakeGateway::FakeGateway() {
  auto server =
      Server::Start({.listen = {"127.0.0.1:0"}}, {{v1::Generation::service_full_name(), this}});
  TANDEM_CHECK(server.ok());
  server_ = *std::move(server);
}

std::vector<v1::GenerateRequest> FakeGateway::generate_requests() const {
  const std::lock_guard lock(mutex_);
  return generate_requests_;
}

std::vector<v1::ChatRequest> FakeGateway::chat_requests() const {
  const std::lock_guard lock(mutex_);
  return chat_requests_;
}

void FakeGateway::set_state(const std::string& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void FakeGateway::set_model(const std::string& name, const std::string& id) {
  const std::lock_guard lock(mutex_);
  model_ = name;
  model_id_ = id;
}

void FakeGateway::set_pictures(const v1::PictureStatus& pictures) {
  const std::lock_guard lock(mutex_);
  pictures_ = pictures;
}

grpc::Status FakeGateway::StreamGenerate(
    const v1::GenerateRequest& request,
    const std::function<bool(const v1::GenerateResponse&)>& write) {
  {
    const std::lock_guard lock(mutex_);
    generate_requests_.push_back(request);
  }
  return StreamBack(request.text(), request.text(), request.has_logprobs(), write);
}

grpc::Status FakeGateway::StreamChat(const v1::ChatRequest& request,
                                     const std::function<bool(const v1::ChatResponse&)>& write) {
  {
    const std::lock_guard lock(mutex_);
    chat_requests_.push_back(request);
  }
  const std::string& content = request.messages(request.messages_size() - 1).content();
  return StreamBack(content, absl::StrFormat("%d messages: %s", request.messages_size(), content),
                    request.has_logprobs(), write);
}

grpc::Status FakeGateway::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                   grpc::ServerWriter<v1::GenerateResponse>* writer) {
  return StreamGenerate(*request, Sink(*context, *writer));
}

grpc::Status FakeGateway::Chat(grpc::ServerContext* context, const v1::ChatRequest* request,
                               grpc::ServerWriter<v1::ChatResponse>* writer) {
  return StreamChat(*request, Sink(*context, *writer));
}

grpc::Status FakeGateway::Embed(grpc::ServerContext*, const v1::EmbedRequest* request,
                                v1::EmbedResponse* response) {
  for (int i = 0; i < request->inputs_size(); ++i) {
    const std::string& text = request->inputs(i).text();
    if (text == "fail") return {grpc::StatusCode::DATA_LOSS, "not finite"};
    v1::Embedding* embedding = response->add_embeddings();
    embedding->add_values(static_cast<float>(text.size()));
    embedding->add_values(0.1f * static_cast<float>(i));
  }
  return grpc::Status::OK;
}

grpc::Status FakeGateway::ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                                     v1::ListModelsResponse* response) {
  const std::lock_guard lock(mutex_);
  v1::ModelInfo* model = response->add_models();
  model->set_name(model_);
  model->set_model_id(model_id_);
  model->set_architecture("gemma3");
  model->set_context_len(4096);
  model->set_vocab_size(262208);
  model->set_num_layers(12);
  model->set_weight_bytes(11 << 20);
  return grpc::Status::OK;
}

grpc::Status FakeGateway::GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                                    v1::GetStatusResponse* response) {
  const std::lock_guard lock(mutex_);
  response->set_state(state_);
  if (pictures_.has_value()) *response->mutable_pictures() = *pictures_;
  response->set_detail(state_ == "ready" ? "" : "no NPU");
  response->set_model(model_);
  response->set_placement("Attend on npu0 (emulated), the rest on gpu0");
  response->set_placement_notice("there is no NPU");
  v1::WorkerStatus* worker = response->add_workers();
  worker->set_name("npu0");
  worker->set_device("emulated NPU");
  worker->set_emulated(true);
  worker->set_state("ready");
  worker->set_weight_import("dmabuf");
  worker->set_kv_bytes(3 << 19);
  worker->set_hop_p50_us(29.5);
  v1::WorkerStatus* absent = response->add_workers();
  absent->set_name("npu1");
  absent->set_kind("npu");
  absent->set_state("absent");
  absent->set_detail("this machine has no second NPU");
  for (uint32_t layer_idx = 0; layer_idx < 3; ++layer_idx) {
    v1::SegmentStatus* segment = response->add_segments();
    segment->set_index(layer_idx);
    segment->set_worker("npu0");
    segment->set_stages(absl::StrFormat("Attend(%d)", layer_idx));
    segment->set_calls(10);
    segment->set_device_seconds(100e-6);
    segment->set_round_trip_seconds(400e-6);
  }
  v1::SchedulerStatus* scheduler = response->mutable_scheduler();
  scheduler->set_running(2);
  scheduler->set_max_sequences(16);
  scheduler->add_kv_blocks_total(100);
  scheduler->add_kv_blocks_used(7);
  scheduler->add_kv_blocks_cached(31);
  scheduler->set_prefix_tokens_looked_up(50);
  scheduler->set_prefix_tokens_found(20);
  return grpc::Status::OK;
}

}  // namespace tandem
