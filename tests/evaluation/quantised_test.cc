// Quantised weights on every placement against the same weights dequantised to float32: the
// perplexity of a text longer than every window.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <span>

#include "services/common/reference/ops.h"
#include "services/common/reference/reference_model.h"
#include "services/common/testing/paths.h"
#include "services/loader/convert/convert.h"
#include "services/loader/formats/open_model.h"
#include "tests/evaluation/evaluation_fixture.h"
#include "tests/support/greedy.h"

namespace tandem::evaluation {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNumTokens = 1000;  // of the long text
constexpr testing::RunLimits kLimits = {.max_rows = 512,
                                        .max_sequences = 1,
                                        .max_outputs = 512,
                                        .max_logit_outputs = 128,
                                        .context_len = 3072,
                                        .num_blocks = {256, 256}};

class QuantisedTest : public EvaluationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override { folder_ = fs::temp_directory_path() / fs::path(Unique()); }
  void TearDown() override { fs::remove_all(folder_); }

  // The demo model in another format.
  std::string Converted(const std::string& type) {
    fs::create_directories(folder_);
    const std::string path = folder_ / (type + ".gguf");
    const auto source = loader::OpenModelSource(TestDataPath("demo"));
    EXPECT_OK(source);
    EXPECT_OK(loader::ConvertToGguf(
        **source, path, {.mix = loader::ParseWeightMix(type).value(), .name = "demo"}, nullptr));
    return path;
  }

  // Perplexity of the text, by the placement and by float32 arithmetic.
  void ExpectPerplexity(const std::string& path, DType kv_dtype = DType::kF16) {
    SCOPED_TRACE(path);
    testing::RunLimits limits = kLimits;
    limits.kv_dtype = kv_dtype;
    Place(GetParam(), path, limits);
    if (IsSkipped() || HasFatalFailure()) return;
    std::vector<uint32_t> tokens = OpenReferenceOutputs(TestDataPath("demo")).long_tokens;
    tokens.resize(kNumTokens);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> nll,
                         testing::NegativeLogLikelihoods(*runner_, tokens));
    const double actual =
        std::exp(std::accumulate(nll.begin(), nll.end(), 0.0) / static_cast<double>(nll.size()));
    const double expected = ExactPerplexity(path, tokens);
    std::printf("%-24s perplexity %.5f, in float32 %.5f\n", fs::path(path).filename().c_str(),
                actual, expected);
    EXPECT_NEAR(actual / expected, 1.0, 0.005);
  }

 private:
  static double ExactPerplexity(const std::string& path, const std::vector<uint32_t>& tokens) {
    const reference::ReferenceModel model(*OpenCheckpoint(path).weights, {.num_threads = 2});
    const std::vector<float> logits = model.Logits(tokens);
    const size_t vocab = model.config().vocab_size;
    double sum = 0.0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto row = std::span(logits).subspan(i * vocab, vocab);
      sum += reference::LogSumExp(row) - row[tokens[i + 1]];
    }
    return std::exp(sum / static_cast<double>(tokens.size() - 1));
  }
  static std::string Unique() { return "tandem-quantised-" + std::to_string(::getpid()); }

  fs::path folder_;
};

// Between them every block format, those of Q4_K_M mixed inside the fused matrix.
TEST_P(QuantisedTest, PerplexityIsThatOfTheDequantisedWeights) {
  ExpectPerplexity(TestDataPath("demo.Q4_0.gguf"));
  for (const char* type : {"q4_k_m", "q5_k_m", "q5_0", "iq4_nl", "q8_0"}) {
    if (IsSkipped() || HasFatalFailure()) return;
    ExpectPerplexity(Converted(type));
  }
}

TEST_P(QuantisedTest, PerplexityOfAQuantisedKvCacheToo) {
  ExpectPerplexity(TestDataPath("demo.Q4_0.gguf"), DType::kQ8_0);
}

// Files by other quantisers, where there are some: TANDEM_TEST_GGUF_FOLDER names a folder of the
// demo model's.
TEST_P(QuantisedTest, PerplexityOfFilesByOtherQuantisers) {
  const char* folder = std::getenv("TANDEM_TEST_GGUF_FOLDER");
  if (folder == nullptr) GTEST_SKIP() << "NOT RUN: TANDEM_TEST_GGUF_FOLDER is not set";
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("demo.")) continue;
    ExpectPerplexity(entry.path());
    if (IsSkipped() || HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, QuantisedTest, ::testing::ValuesIn(PlacementNames()),
                         [](const auto& test) { return TestName(test.param); });

}  // namespace
}  // namespace tandem::evaluation
