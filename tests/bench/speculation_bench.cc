// Measures decoding with and without guesses, in pairs: the gateway's engine over the GPU worker, in
// one process.  The answers of both must be the same.
//
//   speculation_bench --model demo2.Q8_0.gguf --prompts editing.jsonl --turns 5
//   speculation_bench --model demo2.Q8_0.gguf --prompts lists.jsonl --draft demo2-draft.Q8_0.gguf
//   speculation_bench --model 'synthetic:gemma3-27b?type=q4_0' --temperature 0 --right 0.7
//
// Guesses come from the lookup drafter, with --draft from a draft model on a second Vulkan device
// of the same GPU, with --right from the answers without guesses, so many of them right; answers are
// then the same tokens whatever the model says.
// --prompts: a line is a conversation: a JSON string, the user's message, or a list of them, the
// user's and the model's in turn.  Without it prompts are random tokens, and answers are sampled at
// a temperature that makes them random: nothing repeats.
// --of N: every chain has N guesses, whether that pays or not; it says how many were accepted.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/cache_folder.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/draft/draft_model.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/stream_reader.h"
#include "services/gateway/speculation/lookup_drafter.h"
#include "services/gateway/tokenizer/chat_template.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "services/loader/formats/open_model.h"
#include "tests/bench/fixed_length_drafter.h"
#include "tests/bench/local_executor.h"
#include "tests/bench/packed_weights.h"
#include "tests/bench/replay_drafter.h"

namespace tandem::bench {
namespace {

struct Flags {
  std::string model;
  std::string prompts;
  uint32_t clients = 1;
  uint32_t requests = 20;
  uint32_t tokens = 200;
  uint32_t turns = 3;
  float temperature = -1.0f;  // below 0: 0 with prompts, else 100
  std::string draft;          // a model's file
  double right = -1.0;        // of replayed guesses; below 0: none are replayed
  uint32_t of = 0;            // guesses of each chain; 0: as many as pay
  gpu::GpuWorkerOptions worker;
};

using Prompts = std::vector<std::vector<uint32_t>>;

// A model on a worker of its own.
struct OnWorker {
  std::unique_ptr<gpu::GpuWorker> worker;
  std::shared_ptr<const WeightSet> weights;
  Vocabulary vocabulary;
};

absl::StatusOr<OnWorker> LoadModel(const Flags& flags, const std::string& file) {
  OnWorker loaded;
  TANDEM_ASSIGN_OR_RETURN(loaded.worker, gpu::GpuWorker::Create(flags.worker));
  TANDEM_ASSIGN_OR_RETURN(const auto source, loader::OpenModelSource(file));
  TANDEM_ASSIGN_OR_RETURN(loaded.weights, PackWeights(*source));
  loaded.vocabulary = source->vocabulary();
  return loaded;
}

absl::StatusOr<std::unique_ptr<LocalExecutor>> StartExecutor(const OnWorker& model,
                                                             uint32_t sequences, uint32_t context) {
  TANDEM_ASSIGN_OR_RETURN(
      auto runner,
      testing::PlanRunner::Create(
          model.weights, {model.worker.get()}, testing::WholeModel(model.weights->config()),
          {.max_rows = 256,
           .max_sequences = sequences,
           .max_outputs = 256,
           .max_logit_outputs = sequences,
           .context_len = std::min(model.weights->config().context_len, context),
           .num_lanes = 2}));
  return std::make_unique<LocalExecutor>(std::move(runner), *model.worker, model.vocabulary,
                                         Queueing::kLate);
}

struct Measured {
  double tokens_per_second = 0;  // of decoding, per client
  uint64_t accepted = 0;
  uint64_t verified = 0;
  uint64_t steps = 0;
  uint64_t steps_drafted = 0;
  std::vector<std::vector<uint32_t>> answers;
};

absl::StatusOr<Prompts> ReadPrompts(const Flags& flags, const gateway::Tokenizer& tokenizer,
                                    const ModelConfig& config) {
  Prompts prompts;
  if (flags.prompts.empty()) {
    std::mt19937 random(1);
    for (uint32_t i = 0; i < flags.requests; ++i) {
      std::vector<uint32_t>& prompt = prompts.emplace_back();
      while (prompt.size() < 64) prompt.push_back(300 + random() % (config.vocab_size - 300));
    }
    return prompts;
  }
  std::ifstream file(flags.prompts);
  for (std::string line; prompts.size() < flags.requests && std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    const auto texts = json.is_array() ? json.get<std::vector<std::string>>()
                                       : std::vector<std::string>{json.get<std::string>()};
    std::vector<gateway::Message> messages;
    for (const std::string& text : texts) {
      const char* const role = messages.size() % 2 == 0 ? "user" : "model";
      messages.push_back({.role = role, .content = text, .marks = {}});
    }
    TANDEM_ASSIGN_OR_RETURN(prompts.emplace_back(),
                            gateway::RenderChat(tokenizer, config.bos_token_id, messages));
  }
  if (prompts.empty()) return absl::NotFoundError(flags.prompts + ": has no prompts");
  return prompts;
}

// What guesses in a measurement; `known`: the answers without guesses.
struct Guessing {
  const OnWorker* draft = nullptr;
  const ReplayDrafter::Answers* known = nullptr;
};

absl::StatusOr<std::vector<std::unique_ptr<gateway::Drafter>>> MakeDrafters(
    const Flags& flags, const Guessing& guessing, const gateway::Executor& target) {
  std::vector<std::unique_ptr<gateway::Drafter>> drafters;
  if (flags.right >= 0) {
    drafters.push_back(
        std::make_unique<ReplayDrafter>(*guessing.known, flags.right, target.config().vocab_size));
  } else if (guessing.draft != nullptr) {
    const auto start = [&](const gateway::Executor::Progress&)
        -> absl::StatusOr<std::unique_ptr<gateway::Executor>> {
      return StartExecutor(*guessing.draft, flags.clients, target.limits().context_len);
    };
    TANDEM_ASSIGN_OR_RETURN(drafters.emplace_back(),
                            gateway::DraftModel::Create({.start = start, .name = flags.draft},
                                                        target.vocabulary(), nullptr));
  } else {
    drafters.push_back(std::make_unique<gateway::LookupDrafter>());
  }
  if (flags.of > 0) {
    drafters[0] = std::make_unique<FixedLengthDrafter>(std::move(drafters[0]), flags.of);
  }
  return drafters;
}

absl::StatusOr<Measured> Measure(const Flags& flags, const OnWorker& model,
                                 const gateway::Tokenizer& tokenizer, const Prompts& prompts,
                                 const Guessing* guessing) {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const auto context = static_cast<uint32_t>(longest) + flags.tokens + 16;
  TANDEM_ASSIGN_OR_RETURN(auto executor, StartExecutor(model, flags.clients, context));
  if (flags.right >= 0) {
    // Random weights choose between tokens that are almost alike: the last bits would decide.
    executor->Force([size = model.weights->config().vocab_size](uint32_t position) {
      return 1000 + position * 7919 % (size - 1000);
    });
  }
  gateway::EngineOptions options{.max_sequences = flags.clients,
                                 .max_rows = 256,
                                 .chunk_rows = 256,
                                 .max_waiting = static_cast<uint32_t>(prompts.size())};
  if (flags.of > 0) options.step_seconds = [](uint32_t) { return 1000.0; };
  if (guessing != nullptr) {
    options.make_drafters = [&](const gateway::Executor& target,
                                const gateway::Executor::Progress&) {
      return MakeDrafters(flags, *guessing, target);
    };
  }
  TANDEM_ASSIGN_OR_RETURN(const auto engine,
                          gateway::Engine::Create(std::move(executor), tokenizer, options));
  const bool greedy = flags.temperature == 0.0f;
  std::vector<std::unique_ptr<gateway::testing::StreamReader>> readers;
  for (size_t i = 0; i < prompts.size(); ++i) {
    gateway::EngineRequest request;
    request.prompt = prompts[i];
    request.max_tokens = flags.tokens;
    request.ignore_eos = flags.prompts.empty();
    request.use_prefix_cache = false;
    request.sampling = {.temperature = flags.temperature, .top_k = 128, .top_p = 1.0f, .seed = i};
    if (greedy) request.sampling.top_k = 64;
    readers.push_back(std::make_unique<gateway::testing::StreamReader>());
    TANDEM_RETURN_IF_ERROR(engine->Submit(std::move(request), readers.back()->stream()));
  }
  Measured measured;
  double seconds = 0, tokens = 0;
  for (const auto& reader : readers) {
    TANDEM_RETURN_IF_ERROR(reader->ReadToEnd().status);
    const v1::Usage& usage = reader->end->usage;
    seconds += usage.total_seconds() - usage.first_token_seconds();
    tokens += usage.completion_tokens() - 1;
    measured.accepted += usage.accepted_prediction_tokens();
    measured.verified += usage.accepted_prediction_tokens() + usage.rejected_prediction_tokens();
    measured.answers.push_back(reader->tokens());
  }
  v1::GetStatusResponse status;
  engine->FillStatus(status);
  measured.steps = status.scheduler().steps();
  measured.steps_drafted = status.scheduler().steps_drafted();
  measured.tokens_per_second = tokens / seconds;
  return measured;
}

absl::Status Run(Flags& flags) {
  flags.worker.max_rows = 256;
  if (flags.temperature < 0) flags.temperature = flags.prompts.empty() ? 100.0f : 0.0f;
  TANDEM_ASSIGN_OR_RETURN(const OnWorker model, LoadModel(flags, flags.model));
  OnWorker draft;
  if (!flags.draft.empty()) {
    TANDEM_ASSIGN_OR_RETURN(draft, LoadModel(flags, flags.draft));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto tokenizer, gateway::Tokenizer::Create(model.vocabulary));
  TANDEM_ASSIGN_OR_RETURN(const Prompts prompts,
                          ReadPrompts(flags, *tokenizer, model.weights->config()));
  ReplayDrafter::Answers known;
  const Guessing guessing{.draft = flags.draft.empty() ? nullptr : &draft, .known = &known};
  // Also warms up, and is what --right replays.
  TANDEM_ASSIGN_OR_RETURN(const Measured first,
                          Measure(flags, model, *tokenizer, prompts, nullptr));
  for (size_t i = 0; i < prompts.size(); ++i) known[prompts[i]] = first.answers[i];
  std::vector<double> ratios;
  for (uint32_t turn = 0; turn < flags.turns; ++turn) {
    Measured of[2];
    for (const bool guesses : {turn % 2 == 1, turn % 2 == 0}) {
      TANDEM_ASSIGN_OR_RETURN(
          of[guesses], Measure(flags, model, *tokenizer, prompts, guesses ? &guessing : nullptr));
    }
    size_t differ = 0;
    for (size_t i = 0; i < prompts.size(); ++i) differ += of[0].answers[i] != of[1].answers[i];
    ratios.push_back(of[1].tokens_per_second / of[0].tokens_per_second);
    std::printf(
        "plain %.1f tok/s, %d steps; with guesses %.1f tok/s, %d steps, %d of %d guesses "
        "accepted; ratio %.3f; %d of %d answers differ\n",
        of[0].tokens_per_second, static_cast<int>(of[0].steps), of[1].tokens_per_second,
        static_cast<int>(of[1].steps), static_cast<int>(of[1].accepted),
        static_cast<int>(of[1].verified), ratios.back(), static_cast<int>(differ),
        static_cast<int>(prompts.size()));
    if (flags.of > 0) {
      std::printf("of %d guesses %.2f accepted a verification, in %d steps\n",
                  static_cast<int>(flags.of),
                  static_cast<double>(of[1].accepted) / static_cast<double>(of[1].steps_drafted),
                  static_cast<int>(of[1].steps_drafted));
    }
    std::fflush(stdout);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%s: median ratio %.3f of %d pairs (%.3f to %.3f)\n", flags.model.c_str(),
              ratios[ratios.size() / 2], static_cast<int>(ratios.size()), ratios.front(),
              ratios.back());
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  tandem::bench::Flags flags;
  flags.worker.cache_folder = tandem::DefaultCacheFolder();
  CLI::App app("Measures decoding with guesses against decoding without, in one process.");
  app.add_option("--model", flags.model, "A GGUF file or a safetensors folder")->required();
  app.add_option("--prompts", flags.prompts, "File of messages, a JSON string a line");
  app.add_option("--clients", flags.clients, "Sequences at a time")->capture_default_str();
  app.add_option("--requests", flags.requests, "Prompts at most")->capture_default_str();
  app.add_option("--tokens", flags.tokens, "Of an answer at most")->capture_default_str();
  app.add_option("--turns", flags.turns, "Pairs")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_option("--temperature", flags.temperature, "Default: 0 with --prompts, else 100");
  app.add_option("--draft", flags.draft, "A draft model's file");
  app.add_option("--right", flags.right, "Replay the answers, this share of the guesses right")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--of", flags.of, "Guesses of every chain; one client")
      ->check(CLI::Range(1u, tandem::gateway::kMaxGuesses));
  app.add_option("--device", flags.worker.device, "Vulkan device: index or part of its name");
  CLI11_PARSE(app, argc, argv);
  tandem::InitLogging("speculation_bench");
  const absl::Status status = tandem::bench::Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
