// Measures a running cluster: clients each send one request after another, over OpenAI's API or
// gRPC.  Each request has random tokens of its own.
//
//   tandem serve --model 'synthetic:gemma3-27b?type=q4_0&seed=1' --max-sequences 32 --port 50051
//   request_bench --address 127.0.0.1:50051 --clients 1,32 --prompt 128 --tokens 64
//
// With --json-schema FILE each measurement is one of free answers and one of constrained answers.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/status.h"
#include "tests/bench/request_clients.h"
#include "tools/tandem/api_client.h"

namespace tandem::bench {
namespace {

constexpr absl::Duration kStatusTimeout = absl::Seconds(10);
constexpr absl::Duration kReadyTimeout = absl::Minutes(10);

struct RequestFlags {
  std::string address;
  uint16_t http_port = 8080;
  std::vector<std::string> apis = {"openai", "grpc"};
  std::vector<uint32_t> clients = {1, 32};
  Load load;
  bool greedy = false;
};

double DeviceSeconds(const v1::GetStatusResponse& status) {
  double seconds = 0;
  for (const v1::SegmentStatus& segment : status.segments()) seconds += segment.device_seconds();
  return seconds;
}

absl::StatusOr<uint32_t> VocabularySize(GenerationStub& stub) {
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  TANDEM_RETURN_IF_ERROR(FromGrpcStatus(stub.ListModels(&context, {}, &models)));
  if (models.models().empty()) return absl::NotFoundError("the gateway serves no model");
  return models.models(0).vocab_size();
}

// A round that warms up, then `load`; its tokens a second.
absl::StatusOr<double> Measure(GenerationStub& stub, const std::string& api, Load load,
                               const std::function<Client()>& make) {
  const uint32_t rounds = load.rounds;
  load.rounds = 1;
  TANDEM_RETURN_IF_ERROR(RunLoad(load, make).status());
  load.rounds = rounds;
  ++load.seed;
  TANDEM_ASSIGN_OR_RETURN(const auto before, FetchStatus(stub, kStatusTimeout));
  TANDEM_ASSIGN_OR_RETURN(const LoadResult result, RunLoad(load, make));
  TANDEM_ASSIGN_OR_RETURN(const auto after, FetchStatus(stub, kStatusTimeout));
  const v1::SchedulerStatus& from = before.scheduler();
  const v1::SchedulerStatus& to = after.scheduler();
  const double rate = double{1} * load.clients * load.rounds * load.tokens / result.wall_seconds;
  std::printf(
      "%s, %u clients, %s%s: %.0f tok/s; first token p50 %.3f p95 %.3f s, then p50 %.2f p95 %.2f "
      "ms "
      "each; device busy %.1f%%; %llu steps, %llu queued, %llu rows fed, %llu guesses wrong\n",
      api.c_str(), load.clients, load.greedy ? "greedy" : "drawn",
      load.json_schema.empty() ? "" : ", constrained", rate, Quantile(result.first_tokens, 0.5),
      Quantile(result.first_tokens, 0.95), 1e3 * Quantile(result.per_token, 0.5),
      1e3 * Quantile(result.per_token, 0.95),
      100 * (DeviceSeconds(after) - DeviceSeconds(before)) / result.wall_seconds,
      static_cast<unsigned long long>(to.steps() - from.steps()),
      static_cast<unsigned long long>(to.steps_queued() - from.steps_queued()),
      static_cast<unsigned long long>(to.rows_fed() - from.rows_fed()),
      static_cast<unsigned long long>(to.wrong_guesses() - from.wrong_guesses()));
  std::fflush(stdout);
  return rate;
}

absl::Status RunRequestBench(const RequestFlags& flags) {
  const auto stub = MakeGenerationStub(GatewayAddress(flags.address));
  TANDEM_ASSIGN_OR_RETURN(const auto status, WaitAllReady(*stub, kReadyTimeout));
  Load load = flags.load;
  load.greedy = flags.greedy;
  load.cache_prompts = HasPhases(status);
  if (load.cache_prompts) load.seed = std::random_device()();
  TANDEM_ASSIGN_OR_RETURN(load.vocab_size, VocabularySize(*stub));
  std::printf("%s; %u sequences and %u rows a step at most; prompts of %u, %u tokens each\n",
              status.placement().c_str(), status.scheduler().max_sequences(),
              status.scheduler().max_rows(), load.prompt, load.tokens);
  for (const std::string& api : flags.apis) {
    const std::function<Client()> make = [&]() -> Client {
      return api == "grpc" ? MakeGrpcClient(*stub) : MakeOpenAiClient(flags.http_port);
    };
    for (const uint32_t clients : flags.clients) {
      load.clients = clients;
      load.seed += 2;
      load.json_schema.clear();
      TANDEM_ASSIGN_OR_RETURN(const double free, Measure(*stub, api, load, make));
      if (flags.load.json_schema.empty()) continue;
      load.json_schema = flags.load.json_schema;
      load.seed += 2;
      TANDEM_ASSIGN_OR_RETURN(const double constrained, Measure(*stub, api, load, make));
      std::printf("constrained: %.3f of free\n", constrained / free);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::RequestFlags flags;
  CLI::App app("Measures requests to a running cluster, as its clients see them.");
  app.add_option("--address", flags.address, "The gateway's gRPC: unix:PATH or HOST:PORT")
      ->required();
  app.add_option("--http-port", flags.http_port, "Its HTTP, on 127.0.0.1")->capture_default_str();
  app.add_option("--api", flags.apis, "openai (/v1/completions, streamed), grpc (Generate)")
      ->delimiter(',')
      ->check(CLI::IsMember({"openai", "grpc"}))
      ->capture_default_str();
  app.add_option("--clients", flags.clients, "At a time, one or more counts")
      ->delimiter(',')
      ->check(CLI::Range(1u, 10000u))
      ->capture_default_str();
  app.add_option("--prompt", flags.load.prompt, "Tokens in a prompt")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
  app.add_option("--tokens", flags.load.tokens, "Tokens of an answer")
      ->check(CLI::Range(2u, 100000u))
      ->capture_default_str();
  flags.load.rounds = 3;
  app.add_option("--rounds", flags.load.rounds, "Requests of each client, after one that warms up")
      ->check(CLI::Range(1u, 100000u))
      ->capture_default_str();
  std::string schema_file;
  app.add_option("--json-schema", schema_file,
                 "Measures answers of this schema beside free ones; it must allow --tokens tokens")
      ->check(CLI::ExistingFile);
  app.add_flag("--greedy", flags.greedy, "Temperature 0; else the model's own defaults");
  CLI11_PARSE(app, argc, argv);
  tandem::InitLogging("request_bench");
  if (!schema_file.empty()) {
    std::ifstream file(schema_file);
    flags.load.json_schema.assign(std::istreambuf_iterator<char>(file), {});
    if (!nlohmann::json::accept(flags.load.json_schema)) {
      std::fprintf(stderr, "--json-schema: %s is no JSON\n", schema_file.c_str());
      return 2;
    }
  }
  const absl::Status status = tandem::bench::RunRequestBench(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
