// Measures requests in one process: the gateway's engine, scheduler and sampler over the GPU
// worker.  The figures contain no calls between services, and gRPC is not linked.
//
//   serve_bench --model 'synthetic:gemma3-27b?type=q4_0' --clients 1,32 --prompt 128 --tokens 64
//
// Clients send one request after another, each of random tokens of its own.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "absl/strings/str_format.h"
#include "services/common/base/cache_folder.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "services/loader/formats/open_model.h"
#include "tests/bench/local_executor.h"
#include "tests/bench/packed_weights.h"

namespace tandem::bench {
namespace {

struct ServeFlags {
  std::string model = "synthetic:gemma3-1b?type=q4_0";
  std::vector<uint32_t> clients = {1, 32};
  std::vector<uint32_t> max_rows = {512};
  uint32_t prompt = 128;
  uint32_t tokens = 64;
  uint32_t rounds = 3;
  uint32_t turns = 1;
  bool greedy = false;
  gpu::GpuWorkerOptions worker;
};

const char* NameOf(Queueing queueing) {
  switch (queueing) {
    case Queueing::kLate:
      return "queued late";
    case Queueing::kAtOnce:
      return "queued at once";
    case Queueing::kOneByOne:
      return "one by one";
  }
  return "?";
}

struct Times {
  double wall = 0;
  double first_token = 0;  // mean over requests, seconds
  double total = 0;        // likewise
};

// `rounds` requests of each client, after a round that warms up.
absl::StatusOr<Times> RunClients(gateway::Engine& engine, const ServeFlags& flags,
                                 uint32_t num_clients, uint32_t vocab_size, uint32_t rounds) {
  Times times;
  Mutex mutex;
  absl::Status failed;
  std::vector<std::thread> clients;
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t c = 0; c < num_clients; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937 random(1000 * rounds + c);
      for (uint32_t r = 0; r < rounds; ++r) {
        gateway::EngineRequest request;
        while (request.prompt.size() < flags.prompt) {
          request.prompt.push_back(300 + random() % (vocab_size - 300));
        }
        request.max_tokens = flags.tokens;
        request.ignore_eos = true;
        request.use_prefix_cache = false;
        request.sampling.seed = random();
        if (flags.greedy) request.sampling.temperature = 0.0f;
        gateway::testing::StreamReader reader;
        absl::Status status = engine.Submit(std::move(request), reader.stream());
        if (status.ok()) status = reader.ReadToEnd().status;
        MutexLock lock(mutex);
        if (!status.ok()) {
          failed = status;
          return;
        }
        times.first_token += reader.end->usage.first_token_seconds() / (num_clients * rounds);
        times.total += reader.end->usage.total_seconds() / (num_clients * rounds);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  TANDEM_RETURN_IF_ERROR(failed);
  times.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return times;
}

absl::Status Serve(const ServeFlags& flags, gpu::GpuWorker& worker,
                   const std::shared_ptr<const WeightSet>& weights, const Vocabulary& vocabulary,
                   uint32_t max_rows, Queueing queueing) {
  const uint32_t most = *std::max_element(flags.clients.begin(), flags.clients.end());
  TANDEM_ASSIGN_OR_RETURN(
      auto runner,
      testing::PlanRunner::Create(
          weights, {&worker}, testing::WholeModel(weights->config()),
          {.max_rows = max_rows,
           .max_sequences = most,
           .max_outputs = max_rows,
           .max_logit_outputs = most,
           .context_len = std::min(weights->config().context_len, flags.prompt + flags.tokens + 16),
           .num_lanes = 2}));
  TANDEM_ASSIGN_OR_RETURN(const auto tokenizer, gateway::Tokenizer::Create(vocabulary));
  auto owned = std::make_unique<LocalExecutor>(std::move(runner), worker, vocabulary, queueing);
  const LocalExecutor& executor = *owned;
  TANDEM_ASSIGN_OR_RETURN(const auto engine, gateway::Engine::Create(std::move(owned), *tokenizer,
                                                                     {.max_sequences = most,
                                                                      .max_rows = max_rows,
                                                                      .chunk_rows = max_rows,
                                                                      .max_waiting = 2 * most}));
  for (const uint32_t clients : flags.clients) {
    const uint32_t vocab_size = weights->config().vocab_size;
    TANDEM_RETURN_IF_ERROR(RunClients(*engine, flags, clients, vocab_size, 1).status());
    v1::GetStatusResponse before, after;
    engine->FillStatus(before);
    const double device_before = executor.device_seconds();
    TANDEM_ASSIGN_OR_RETURN(const Times times,
                            RunClients(*engine, flags, clients, vocab_size, flags.rounds));
    engine->FillStatus(after);
    const double tokens = double{1} * clients * flags.rounds * flags.tokens;
    std::printf(
        "%u clients, steps of %u rows, %s: %.0f tok/s; first token %.3f s, then %.2f ms each; "
        "device busy %.1f%%; %llu steps, %llu queued, %llu rows fed, %llu guesses wrong\n",
        clients, max_rows, NameOf(queueing), tokens / times.wall, times.first_token,
        1e3 * (times.total - times.first_token) / (flags.tokens - 1),
        100 * (executor.device_seconds() - device_before) / times.wall,
        static_cast<unsigned long long>(after.scheduler().steps() - before.scheduler().steps()),
        static_cast<unsigned long long>(after.scheduler().steps_queued() -
                                        before.scheduler().steps_queued()),
        static_cast<unsigned long long>(after.scheduler().rows_fed() -
                                        before.scheduler().rows_fed()),
        static_cast<unsigned long long>(after.scheduler().wrong_guesses() -
                                        before.scheduler().wrong_guesses()));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

absl::Status RunServeBench(const ServeFlags& flags) {
  gpu::GpuWorkerOptions options = flags.worker;
  options.max_rows = *std::max_element(flags.max_rows.begin(), flags.max_rows.end());
  TANDEM_ASSIGN_OR_RETURN(const auto worker, gpu::GpuWorker::Create(options));
  TANDEM_ASSIGN_OR_RETURN(const auto source, loader::OpenModelSource(flags.model));
  TANDEM_ASSIGN_OR_RETURN(const auto weights, PackWeights(*source));
  std::printf("%s on %s, prompts of %u, %u tokens each, %s\n", flags.model.c_str(),
              worker->description().device.c_str(), flags.prompt, flags.tokens,
              flags.greedy ? "greedy" : "top-k 64, top-p 0.95, temperature 1");
  for (const uint32_t max_rows : flags.max_rows) {
    for (uint32_t turn = 0; turn < flags.turns; ++turn) {
      for (const Queueing queueing : {Queueing::kLate, Queueing::kAtOnce, Queueing::kOneByOne}) {
        TANDEM_RETURN_IF_ERROR(
            Serve(flags, *worker, weights, source->vocabulary(), max_rows, queueing));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::ServeFlags flags;
  flags.worker.cache_folder = tandem::DefaultCacheFolder();
  CLI::App app("Measures requests through the engine and the GPU worker, in one process.");
  app.add_option("--model", flags.model, "A synthetic name, a GGUF file or a safetensors folder")
      ->capture_default_str();
  app.add_option("--clients", flags.clients, "At a time, one or more counts")->delimiter(',');
  app.add_option("--max-rows", flags.max_rows, "Rows in a step, one or more counts")
      ->delimiter(',');
  app.add_option("--prompt", flags.prompt, "Tokens in a prompt")->capture_default_str();
  app.add_option("--tokens", flags.tokens, "Tokens of an answer")
      ->check(CLI::Range(2u, 100000u))
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds, "Requests of each client")->capture_default_str();
  app.add_option("--turns", flags.turns, "How often each way to queue steps is measured");
  app.add_flag("--greedy", flags.greedy, "Temperature 0");
  app.add_option("--device", flags.worker.device, "Vulkan device: index or part of its name");
  CLI11_PARSE(app, argc, argv);
  tandem::InitLogging("serve_bench");
  const absl::Status status = tandem::bench::RunServeBench(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
