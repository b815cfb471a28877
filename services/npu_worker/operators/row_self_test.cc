#include "services/npu_worker/operators/row_self_test.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/backend/known_answer.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kRowTestRepeats = 2;      // of a column's descriptors, four rows each time
constexpr uint32_t kRowTestCount = 100;      // of the norms' 128
constexpr uint32_t kRowTestGuardWords = 32;  // before and behind each job's output
constexpr Fill<uint32_t> kRowFill = {.guard = 0x7FA5A5A5, .canary = 0x7FDACDAC};
constexpr float kRowTestEpsilon = 1e-6f;
// Answers are a few units in size, and bfloat16 rounds them and exp2's result by 2^-8 at most.
constexpr double kRowTestTolerance = 0.05;
constexpr uint32_t kWordBytes = sizeof(uint32_t);

std::span<uint32_t> WordsOf(const NpuBuffer& buffer) {
  return {reinterpret_cast<uint32_t*>(buffer.data()), buffer.size() / kWordBytes};
}

// A row of a buffer as float32.
class RowReader {
 public:
  RowReader(const NpuBuffer& buffer, const RowOperand& operand, uint32_t row)
      : words_(WordsOf(buffer).subspan(operand.place.offset / kWordBytes +
                                       size_t{row} * operand.stride)) {}
  double operator[](size_t i) const { return std::bit_cast<float>(words_[i]); }
  double Bf16(size_t i) const {
    return Bf16ToFloat(static_cast<uint16_t>(words_[i / 2] >> (i % 2 * 16)));
  }

 private:
  std::span<const uint32_t> words_;
};

template <typename Row>
std::vector<double> NormedRow(const Row& row, size_t first, const RowJob& job,
                              const RowReader& weights) {
  double squares = 0;
  for (size_t i = 0; i < job.size; ++i) squares += row[first + i] * row[first + i];
  const double factor =
      1 / std::sqrt(squares / (job.count == 0 ? job.size : job.count) + kRowTestEpsilon);
  std::vector<double> normed;
  for (size_t i = 0; i < job.size; ++i) normed.push_back(row[first + i] * factor * weights[i]);
  return normed;
}

std::vector<double> ExpectedRow(const RowJob& job, const RowReader& first, const RowReader& second,
                                const RowReader& weights) {
  std::vector<double> expected;
  switch (job.function) {
    case RowFunction::kNorm:
      return NormedRow(first, 0, job, weights);
    case RowFunction::kNormAdd:
      expected = NormedRow(first, 0, job, weights);
      for (size_t i = 0; i < job.size; ++i) expected[i] += second[i];
      return expected;
    case RowFunction::kRope: {
      const size_t half = job.size / 2;
      for (size_t head = 0; head < job.num_heads; ++head) {
        const auto normed = NormedRow(second, head * job.size, job, weights);
        for (size_t i = 0; i < job.size; ++i) {
          const double cosine = first[i % half], sine = first[half + i % half];
          expected.push_back(i < half ? normed[i] * cosine - normed[i + half] * sine
                                      : normed[i - half] * sine + normed[i] * cosine);
        }
      }
      return expected;
    }
    case RowFunction::kGeglu:
      for (size_t i = 0; i < job.size; ++i) {
        const double x = first[2 * i];
        const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x);
        expected.push_back(0.5 * x * (1 + std::tanh(inner)) * first[2 * i + 1]);
      }
      return expected;
  }
  return expected;
}

}  // namespace

// The last column's last repeat has one row.
uint32_t RowSelfTest::num_rows() const {
  return (op_.array.num_columns * kRowTestRepeats - 1) * kRowCores + 1;
}

absl::Status RowSelfTest::Failure(const std::string& what) const {
  return absl::DataLossError(absl::StrFormat("NPU self-test of '%s': %s", op_.name, what));
}

absl::StatusOr<std::unique_ptr<RowSelfTest>> RowSelfTest::Create(std::shared_ptr<NpuKernel> kernel,
                                                                 const NpuOperator& op) {
  std::unique_ptr<RowSelfTest> test(new RowSelfTest(std::move(kernel), op));
  test->jobs_ = {{.function = RowFunction::kNorm, .size = 128, .count = kRowTestCount},
                 {.function = RowFunction::kNormAdd, .size = 128, .count = kRowTestCount},
                 {.function = RowFunction::kRope, .size = 64, .num_heads = 2},
                 {.function = RowFunction::kGeglu, .size = 64}};
  // Side by side in the buffers, outputs between guards.
  const uint32_t padded_rows = PaddedJobRows(test->num_rows());
  RowWords next = {.output = kRowTestGuardWords};
  for (RowJob& job : test->jobs_) {
    const RowWords words = RowWordsOf(job);
    job.epsilon = kRowTestEpsilon;
    job.first = {.place = {.offset = next.first * kWordBytes}, .stride = words.first};
    job.second = {.place = {.offset = next.second * kWordBytes}, .stride = words.second};
    job.output = {.place = {.offset = next.output * kWordBytes}, .stride = words.output};
    job.weights = {.offset = next.weights * kWordBytes};
    next.first += padded_rows * words.first;
    next.second += padded_rows * words.second;
    next.output += padded_rows * words.output + kRowTestGuardWords;
    next.weights += words.weights;
  }
  const auto make = [&](const char* name, uint32_t words) {
    return RowCommand::MakeBuffer(*test->kernel_, op, name, uint64_t{words} * kWordBytes);
  };
  TANDEM_ASSIGN_OR_RETURN(test->first_, make("first", next.first));
  TANDEM_ASSIGN_OR_RETURN(test->second_, make("second", next.second));
  TANDEM_ASSIGN_OR_RETURN(test->output_, make("output", next.output));
  TANDEM_ASSIGN_OR_RETURN(test->weights_, make("weights", next.weights));
  TANDEM_ASSIGN_OR_RETURN(
      test->command_,
      RowCommand::Create(
          *test->kernel_, op, {.max_rows = test->num_rows(), .jobs = test->jobs_},
          {.first = &test->first_, .second = &test->second_, .output = &test->output_}));
  TANDEM_RETURN_IF_ERROR(test->Fill());
  const CommandUse uses[] = {test->use()};
  TANDEM_RETURN_IF_ERROR(test->commands_.Prepare(uses));
  return test;
}

absl::Status RowSelfTest::Fill() {
  uint32_t number = 0;
  for (const NpuBuffer* buffer : {&first_, &second_, &weights_}) {
    for (uint32_t& word : WordsOf(*buffer))
      word = std::bit_cast<uint32_t>(4.0f * KnownNumber(++number, 0, 5) - 2.0f);
  }
  // Zeros follow the numbers that a mean is over.
  for (const RowJob& job : jobs_) {
    const auto rows = WordsOf(first_).subspan(job.first.place.offset / kWordBytes);
    for (uint32_t row = 0; row < num_rows() && job.count != 0; ++row) {
      std::ranges::fill(rows.subspan(size_t{row} * job.size + job.count, job.size - job.count), 0u);
    }
  }
  for (const NpuBuffer* buffer : {&first_, &second_, &weights_}) {
    TANDEM_RETURN_IF_ERROR(buffer->SyncToDevice(0, buffer->size()));
  }
  return absl::OkStatus();
}

absl::Status RowSelfTest::CheckJob(const RowJob& job) const {
  const std::span<const uint32_t> all = WordsOf(output_);
  const size_t begin = job.output.place.offset / kWordBytes;
  const size_t size = size_t{PaddedJobRows(num_rows())} * job.output.stride;
  const std::string wrong =
      WrongWrites<uint32_t>(all.subspan(begin, size),
                            {all.subspan(begin - kRowTestGuardWords, kRowTestGuardWords),
                             all.subspan(begin + size, kRowTestGuardWords)},
                            kRowFill);
  if (!wrong.empty()) return Failure(wrong);
  for (uint32_t row = 0; row < num_rows(); ++row) {
    const RowReader output(output_, job.output, row);
    const auto expected = ExpectedRow(job, {first_, job.first, row}, {second_, job.second, row},
                                      {weights_, {.place = job.weights}, 0});
    for (size_t i = 0; i < expected.size(); ++i) {
      const double actual = job.function == RowFunction::kNormAdd ? output[i] : output.Bf16(i);
      if (!(std::abs(actual - expected[i]) <= kRowTestTolerance)) {
        return Failure(absl::StrFormat("function %d: number %d of row %d is %g, expected %g",
                                       static_cast<int>(job.function), i, row, actual,
                                       expected[i]));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RowSelfTest::Check() const {
  for (const RowJob& job : jobs_) TANDEM_RETURN_IF_ERROR(CheckJob(job));
  return absl::OkStatus();
}

absl::Status RowSelfTest::Begin() {
  std::ranges::fill(WordsOf(output_), kRowFill.guard);
  for (const RowJob& job : jobs_) {
    std::ranges::fill(
        WordsOf(output_).subspan(job.output.place.offset / kWordBytes,
                                 size_t{PaddedJobRows(num_rows())} * job.output.stride),
        kRowFill.canary);
  }
  return output_.SyncToDevice(0, output_.size());
}

absl::Status RowSelfTest::End() {
  TANDEM_RETURN_IF_ERROR(output_.SyncFromDevice(0, output_.size()));
  return Check();
}

absl::Status RowSelfTest::Run(absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(Begin());
  const CommandUse uses[] = {use()};
  const auto ns = commands_.Execute(uses, num_rows(), timeout);
  if (absl::IsInternal(ns.status())) return Failure(std::string(ns.status().message()));
  if (!ns.ok()) return ns.status();
  return End();
}

}  // namespace tandem::npu
