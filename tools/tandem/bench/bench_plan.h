// The plan of `tandem bench` as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// One line of the table, named as llama-bench names its tests: "pp512", "tg128", "tg128@d4096",
// with "b8" appended for eight sequences at once.
struct BenchTest {
  bool is_prompt = false;  // else decoding
  uint32_t tokens = 0;     // of each prompt, or decoded by each sequence
  uint32_t batch = 1;      // sequences at once
  uint32_t depth = 0;      // positions of each sequence before decoding; at least 1 is used

  std::string Name() const;
  // Tokens of the prompt that is sent.
  uint32_t PromptTokens() const;
  // Positions a sequence needs.
  uint64_t Length() const { return uint64_t{PromptTokens()} + (is_prompt ? 1 : tokens + 1); }
};

// Requests with pictures: "img4", "img4 b8" for eight requests at once.
struct BenchPictureTest {
  uint32_t images = 0;  // of each request
  uint32_t batch = 1;   // requests at once

  std::string Name() const;
};

struct BenchOptions {
  std::vector<uint32_t> prompts = {512};  // 0: no such test
  std::vector<uint32_t> tokens = {128};   // 0: no such test
  std::vector<uint32_t> batches = {1};
  std::vector<uint32_t> depths = {0};  // of decoding
  std::vector<uint32_t> images;        // of a request; 0: no such test
  uint32_t image_side = 896;           // pixels of a picture's width and height
  uint32_t repetitions = 5;
  bool warm_up = true;
  uint64_t seed = 1;  // of the prompts' token ids
};

// For each batch the prompts, then decoding at every depth.
std::vector<BenchTest> PlanTests(const BenchOptions& options);

// INVALID_ARGUMENT: no test, or one that exceeds `context_len` positions or `max_sequences`
// sequences; names the flag that raises the limit.
absl::Status CheckTests(const std::vector<BenchTest>& tests, uint32_t context_len,
                        uint32_t max_sequences);

}  // namespace tandem
