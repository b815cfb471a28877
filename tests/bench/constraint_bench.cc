// Measures constraints over a vocabulary: time to compile a schema, time of a mask, memory.
//
//   constraint_bench [--tokenizer FILE] [--schemas FOLDER] [--count N] [--cpu] [--verbose]
//
// FOLDER holds *.json: a schema each, or JSONSchemaBench's form {"schema", "tests": [{"data",
// "valid"}]}.  The texts of valid instances are followed token by token with a mask before each
// token; an instance which JSONSchemaBench calls invalid must not be accepted.  --cpu measures the
// thread's processor time: for machines with other work.  Exit status 77, said out loud: the
// vocabulary is not there.  The checksum of the masks is the same after a change that only makes them faster.
#include <xxhash.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/common/base/check.h"
#include "services/gateway/constraint/constraint.h"
#include "services/gateway/constraint/schema/schema_compiler.h"
#include "services/gateway/constraint/testing/vocabularies.h"

namespace tandem::gateway::constraint {
namespace {

using Json = nlohmann::ordered_json;

clockid_t measured_clock = CLOCK_MONOTONIC;

double Microseconds() {
  timespec now;
  clock_gettime(measured_clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Options {
  std::filesystem::path tokenizer;
  std::filesystem::path schemas;
  size_t count = SIZE_MAX;
  bool verbose = false;
};

struct Figures {
  std::vector<double> compile_us;
  std::vector<double> first_mask_us;
  std::vector<double> mask_us;
  std::vector<double> memory_mb;
  size_t files = 0;
  size_t refused = 0;
  size_t valid = 0;
  size_t valid_rejected = 0;
  size_t any_order_accepted = 0;
  size_t invalid = 0;
  size_t invalid_accepted = 0;
  size_t failed = 0;
  uint64_t checksum = 0;  // of all measured masks, in order
};

void Print(const char* name, std::vector<double> values, const char* unit) {
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[std::min(values.size() - 1,
                           static_cast<size_t>(part * static_cast<double>(values.size())))];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  std::printf(
      "%-11s n %8zu  mean %9.1f  p50 %9.1f  p90 %9.1f  p99 %9.1f  p99.9 %9.1f  max %9.1f %s\n",
      name, values.size(), sum / static_cast<double>(values.size()), at(0.5), at(0.9), at(0.99),
      at(0.999), values.back(), unit);
}

// Whether the whole of `text` is accepted.
absl::StatusOr<bool> Follow(Constraint& constraint, const TokenTrie& trie, const std::string& text,
                            bool measure, const std::string& name, const Options& options,
                            Figures& figures) {
  auto state = constraint.Start();
  if (!state.ok()) return state.status();
  std::vector<uint32_t> mask(trie.mask_words());
  bool first = true;
  size_t at = 0;
  for (const uint32_t token : LongestTokens(trie, text)) {
    if (measure) {
      const uint64_t work = state->work();
      const auto begin = Microseconds();
      if (const absl::Status made = state->Mask(mask); !made.ok()) return made;
      const double us = Microseconds() - begin;
      (first ? figures.first_mask_us : figures.mask_us).push_back(us);
      first = false;
      figures.checksum =
          XXH3_64bits_withSeed(mask.data(), mask.size() * sizeof(mask[0]), figures.checksum);
      if (options.verbose && us > 2000) {
        std::printf("slow %s: %.0f us, %zu visits after %s\n", name.c_str(), us,
                    static_cast<size_t>(state->work() - work),
                    text.substr(at > 60 ? at - 60 : 0, std::min<size_t>(at, 60)).c_str());
      }
    }
    const auto next = state->Advance(token);
    if (!next.ok()) return next.status();
    const bool masked = (mask[token / 32] >> (token % 32) & 1) != 0;
    if (measure && masked != *next) {
      std::printf("MISMATCH %s: token %u, mask %d, advance %d\n", name.c_str(), token, masked,
                  *next);
    }
    if (!*next) {
      if (options.verbose && measure) {
        std::printf("rejected %s at %zu: %s\n", name.c_str(), at,
                    text.substr(at > 60 ? at - 60 : 0, 100).c_str());
      }
      return false;
    }
    at += trie.bytes(token).size();
  }
  return state->Accepting();
}

void Measure(const std::string& name, const Json& document,
             const std::shared_ptr<const TokenTrie>& trie, const Options& options,
             Figures& figures) {
  ++figures.files;
  const bool bench =
      document.is_object() && document.contains("schema") && document.contains("tests");
  const std::string schema = (bench ? document["schema"] : document).dump();
  const auto begin = Microseconds();
  auto grammar = CompileSchema(schema);
  if (!grammar.ok()) {
    ++figures.refused;
    if (options.verbose) {
      std::printf("refused %s: %s\n", name.c_str(),
                  std::string(grammar.status().message()).c_str());
    }
    return;
  }
  const auto constraint = Constraint::Create(*std::move(grammar), trie);
  figures.compile_us.push_back(Microseconds() - begin);
  if (options.verbose && figures.compile_us.back() > 50'000) {
    std::printf("slow compile %s: %.0f us\n", name.c_str(), figures.compile_us.back());
  }
  const auto& tests = bench ? document["tests"] : Json::array();
  for (const Json& test : tests) {
    const bool valid = test["valid"];
    // As json.dumps writes it.
    std::string text = test["data"].dump(-1, ' ', false, Json::error_handler_t::replace);
    ++(valid ? figures.valid : figures.invalid);
    const auto accepted = Follow(*constraint, *trie, text, valid, name, options, figures);
    if (!accepted.ok()) {
      ++figures.failed;
      std::printf("failed %s: %s\n", name.c_str(),
                  std::string(accepted.status().message()).c_str());
      continue;
    }
    if (valid && !*accepted) {
      ++figures.valid_rejected;
      SchemaOptions any_order;
      any_order.layout.any_key_order = true;
      auto again = CompileSchema(schema, any_order);
      bool fits = false;
      if (again.ok()) {
        const auto other = Constraint::Create(*std::move(again), trie);
        const auto result = Follow(*other, *trie, text, false, name, options, figures);
        fits = result.ok() && *result;
        if (fits) ++figures.any_order_accepted;
      }
      if (!fits) std::printf("valid rejected %s: %s\n", name.c_str(), text.substr(0, 300).c_str());
    }
    if (!valid && *accepted) {
      ++figures.invalid_accepted;
      std::printf("invalid accepted %s: %s\n", name.c_str(), text.substr(0, 300).c_str());
    }
  }
  figures.memory_mb.push_back(static_cast<double>(constraint->memory_bytes()) / 1e6);
}

int Run(const Options& options) {
  if (options.tokenizer.empty()) {
    std::printf("SKIPPED: no vocabulary; give --tokenizer or set TANDEM_GEMMA_TOKENIZER\n");
    return 77;
  }
  auto begin = Microseconds();
  const auto trie = ReadTokenizerFile(options.tokenizer);
  if (!trie.ok()) {
    std::fprintf(stderr, "%s\n", std::string(trie.status().message()).c_str());
    return 1;
  }
  std::printf("vocabulary: %u tokens, %zu nodes, %.1f MB, read in %.0f ms\n", (*trie)->vocab_size(),
              (*trie)->num_nodes(), static_cast<double>((*trie)->memory_bytes()) / 1e6,
              (Microseconds() - begin) / 1e3);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.schemas)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  // A part of them: every n-th, so that all kinds are among them.
  const size_t step = options.count >= files.size() ? 1 : files.size() / options.count;
  Figures figures;
  for (size_t i = 0; i < files.size(); i += step) {
    std::ifstream in(files[i]);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    const Json document = Json::parse(text, nullptr, false);
    if (document.is_discarded()) continue;
    Measure(files[i].filename().string(), document, *trie, options, figures);
  }
  std::printf(
      "schemas %zu, refused %zu; valid %zu, rejected %zu (%zu of them for the order of keys); "
      "invalid %zu, accepted %zu; failed %zu\n",
      figures.files, figures.refused, figures.valid, figures.valid_rejected,
      figures.any_order_accepted, figures.invalid, figures.invalid_accepted, figures.failed);
  std::printf("checksum of the masks: %016" PRIx64 "\n", figures.checksum);
  Print("compile", figures.compile_us, "us");
  Print("first mask", figures.first_mask_us, "us");
  Print("mask", figures.mask_us, "us");
  Print("memory", figures.memory_mb, "MB");
  return 0;
}

}  // namespace
}  // namespace tandem::gateway::constraint

int main(int argc, char** argv) {
  using tandem::gateway::constraint::FindTokenizerFile;
  tandem::gateway::constraint::Options options;
  options.tokenizer = FindTokenizerFile("../shared/tokenizer");
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--verbose") == 0) {
      options.verbose = true;
    } else if (std::strcmp(argv[i], "--cpu") == 0) {
      tandem::gateway::constraint::measured_clock = CLOCK_THREAD_CPUTIME_ID;
    } else if (std::strcmp(argv[i], "--tokenizer") == 0 && more) {
      options.tokenizer = argv[++i];
    } else if (std::strcmp(argv[i], "--schemas") == 0 && more) {
      options.schemas = argv[++i];
    } else if (std::strcmp(argv[i], "--count") == 0 && more) {
      options.count = std::max(1ul, std::stoul(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: constraint_bench [--tokenizer FILE] [--schemas FOLDER] [--count N] "
                   "[--cpu] [--verbose]\n");
      return 2;
    }
  }
  return Run(options);
}
