#include "services/npu_worker/package/package.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/kernels/aie/attention_tile.h"
#include "services/npu_worker/kernels/aie/row_tile.h"

namespace tandem::npu {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr char kPackage[] = R"({
  "format": "tandem-npu-package", "version": 3, "emulated": false,
  "operators": [
    {"name": "a256", "control": "attention", "device": "npu4", "columns": 8, "numbers": "bf16",
     "xclbin": "a.xclbin", "kernel": "MLIR_AIE", "shapes": {"head_dim": 256},
     "arguments": [{"name": "queries", "index": 3, "group": 0}, {"name": "cache", "index": 6, "group": 1},
                   {"name": "output", "index": 5, "group": 0}, {"name": "scratch", "index": 4, "group": 0}],
     "parameters": {"address": 4096, "lock": 3, "words": ["first_position", "first_key", "num_tiles",
                    "num_keys", "window", "scale", "picture_first", "picture_last"]},
     "provenance": {"source": "here", "revision": "1", "toolchain": "none"}, "licence": "Apache-2.0"},
    {"name": "g", "control": "gemm", "device": "npu4", "columns": 4, "numbers": "bf16",
     "xclbin": "b.xclbin", "kernel": "MLIR_AIE", "shapes": {"weight_format": "q4_0"},
     "arguments": [{"name": "activations", "index": 3, "group": 0}, {"name": "weights", "index": 4, "group": 0},
                   {"name": "output", "index": 5, "group": 0}],
     "parameters": {"address": 64512, "lock": 15, "words": ["num_input_tiles", "num_output_tiles"]},
     "provenance": {"source": "here", "revision": "1", "toolchain": "none"}, "licence": "MIT"},
    {"name": "r", "control": "rows", "device": "npu4", "columns": 8, "numbers": "bf16",
     "xclbin": "a.xclbin", "kernel": "rows", "shapes": {},
     "arguments": [{"name": "first", "index": 3, "group": 0}, {"name": "second", "index": 4, "group": 0},
                   {"name": "output", "index": 5, "group": 0}, {"name": "weights", "index": 6, "group": 0}],
     "parameters": {"address": 64512, "lock": 15, "words": ["function", "num_rows", "size", "num_heads",
                    "inverse_count", "epsilon"]},
     "provenance": {"source": "here", "revision": "1", "toolchain": "none"}, "licence": "MIT"}]})";

class PackageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string xclbin(320, '\0');
    std::memcpy(xclbin.data(), "xclbin2", 8);
    const uint64_t length = xclbin.size();
    std::memcpy(xclbin.data() + 304, &length, sizeof(length));
    Write("a.xclbin", xclbin);
    Write("b.xclbin", xclbin);
    Write("package.json", kPackage);
  }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << content;
  }
  absl::StatusOr<OperatorPackage> Read() { return OperatorPackage::Read(folder_.path()); }
  // The package with one text replaced by another, once.
  absl::Status ReadWith(const std::string& from, const std::string& to) {
    std::string text = kPackage;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    Write("package.json", text.replace(at, from.size(), to));
    return Read().status();
  }
  TemporaryDirectory folder_;
};

TEST_F(PackageTest, ReadsOperators) {
  ASSERT_OK_AND_ASSIGN(const OperatorPackage package, Read());
  EXPECT_FALSE(package.emulated);
  EXPECT_EQ(package.HeadDims(), std::vector<uint32_t>{256});
  EXPECT_EQ(package.Devices(), "npu4, 8 columns; npu4, 4 columns");
  ASSERT_OK_AND_ASSIGN(const NpuOperator* op, package.FindAttention(256));
  EXPECT_EQ(op->array, (ArrayShape{.generation = 4, .num_columns = 8}));
  EXPECT_EQ(op->argument("cache").buffer(), 3u);
  EXPECT_EQ(op->argument("cache").group, 1u);
  EXPECT_EQ(op->parameters, (ParameterPlace{.address = 4096, .lock = 3}));
  EXPECT_EQ(op->licence, "Apache-2.0");
  EXPECT_EQ(package.operators[1].weight_dtype, DType::kQ4_0);
  EXPECT_EQ(package.GemmFormats(), std::vector<DType>{DType::kQ4_0});
  EXPECT_EQ(package.FindGemm(DType::kBf16), nullptr);
  EXPECT_THAT(package.FindAttention(64).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("head size 64")));
  // The names stand for what control code writes.
  EXPECT_EQ(ParameterNames(ControlKind::kAttention).size(),
            sizeof(AttentionParameters) / sizeof(uint32_t));
  EXPECT_EQ(ParameterNames(ControlKind::kRows).size(), sizeof(RowParameters) / sizeof(uint32_t));
  ASSERT_NE(package.FindRows(), nullptr);
  EXPECT_EQ(package.FindRows()->name, "r");
  EXPECT_EQ(package.operators[0].xclbin_path, package.FindRows()->xclbin_path);
  EXPECT_EQ(package.FindRows()->kernel_name, "rows");
}

TEST_F(PackageTest, AGemmIsFoundByTheFormatOfItsWeights) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kBf16}) {
    Write("package.json", kPackage);
    ASSERT_OK(ReadWith("\"q4_0\"", "\"" + std::string(Traits(dtype).name) + "\""));
    ASSERT_OK_AND_ASSIGN(const OperatorPackage package, Read());
    EXPECT_EQ(package.GemmFormats(), std::vector<DType>{dtype});
    ASSERT_NE(package.FindGemm(dtype), nullptr);
    EXPECT_EQ(package.FindGemm(dtype)->name, "g");
  }
}

TEST_F(PackageTest, ControlCodeGoesInInstructionBuffersUnlessTheOperatorSaysElf) {
  for (const auto& [text, form] : {std::pair("\"elf\"", CodeForm::kElf),
                                   std::pair("\"instructions\"", CodeForm::kInstructions)}) {
    Write("package.json", kPackage);
    ASSERT_OK(
        ReadWith("\"kernel\": \"rows\"", absl::StrCat("\"kernel\": \"rows\", \"code\": ", text)));
    ASSERT_OK_AND_ASSIGN(const OperatorPackage package, Read());
    EXPECT_EQ(package.operators[0].code, CodeForm::kInstructions);
    EXPECT_EQ(package.FindRows()->code, form);
  }
}

TEST_F(PackageTest, PackagesOfOtherVersionsAreRefusedWithTheWayOut) {
  EXPECT_THAT(ReadWith("\"version\": 3", "\"version\": 4"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("version 4")));
  std::filesystem::remove(folder_.path() + "/package.json");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("package.json")));
  Write("manifest.json", R"({"format": "tandem-npu-kernels", "abi_version": 3})");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               ::testing::AllOf(HasSubstr("TNPI"), HasSubstr("float16"),
                                                HasSubstr("--npu=emulate"))));
}

TEST_F(PackageTest, ForeignDevicesAreRefusedByName) {
  ASSERT_OK_AND_ASSIGN(const OperatorPackage package, Read());
  for (const char* name : {"RyzenAI-npu4", "NPU Strix", "NPU Krackan 1", "NPU of the future"}) {
    EXPECT_OK(package.CheckDevice(name));
  }
  for (const char* name : {"RyzenAI-npu1", "NPU Phoenix"}) {
    EXPECT_THAT(package.CheckDevice(name),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         ::testing::AllOf(HasSubstr("'a256'"), HasSubstr("built for npu4"),
                                          HasSubstr(name))));
  }
}

TEST_F(PackageTest, RefusesWhatIsWrongAndNamesIt) {
  const struct {
    const char *from, *to, *text;
  } faults[] = {
      {"tandem-npu-package", "other", "'format'"},
      {"\"version\": 3", "\"version\": -3", "'version'"},
      {"\"emulated\": false", "\"emulated\": 0", "'emulated'"},
      {"\"emulated\"", "\"simulated\"", "'simulated' is not known"},
      {"\"operators\": [", "\"operators\": 7, \"x\": [", "member 'x'"},
      {"\"numbers\": \"bf16\"", "\"numbers\": \"f16\"", "no core of an NPU computes with"},
      {"\"npu4\"", "\"npu9\"", "operators[0]: 'device'"},
      {"\"npu4\", \"columns\": 4", "\"npu1\", \"columns\": 4", "of one device"},
      {"\"columns\": 8", "\"columns\": 9", "'columns'"},
      {"\"attention\"", "\"convolution\"", "'control'"},
      {"\"kernel\": \"rows\"", "\"kernel\": \"rows\", \"code\": \"ctrlcode\"",
       "operators[2]: 'code'"},
      {"\"head_dim\": 256", "\"head_dim\": 96", "'head_dim'"},
      {"\"head_dim\": 256", "\"head_dim\": 4294967360", "'head_dim'"},
      {"\"q4_0\"", "\"q9_9\"", "'weight_format'"},
      {"\"index\": 6", "\"index\": 7", "'index'"},
      {"\"index\": 6", "\"index\": 5", "'index'"},
      {"\"scratch\"", "\"scraps\"", "queries, cache, output, scratch"},
      {"\"address\": 4096", "\"address\": 4098", "multiple of 4"},
      {"\"address\": 4096", "\"address\": 65500", "'address'"},
      {"\"lock\": 3", "\"lock\": 16", "'lock'"},
      {"\"first_position\", \"first_key\"", "\"first_key\", \"first_position\"", "in this order"},
      {"\"rows\", \"shapes\"", "\"MLIR_AIE\", \"shapes\"",
       "'a256' and 'r' are both kernel 'MLIR_AIE' of a.xclbin"},
      {"b.xclbin\", \"kernel\": \"MLIR_AIE\"", "a.xclbin\", \"kernel\": \"g\"",
       "share a.xclbin: 'a256' has 8, 'g' has 4"},
      {"\"name\": \"g\"", "\"name\": \"a256\"", "without doubles"},
      {"\"a.xclbin\"", "\"../a.xclbin\"", "'xclbin'"},
      {"\"a.xclbin\"", "\"/etc/passwd\"", "'xclbin'"},
      {"\"a.xclbin\"", "\"..\"", "'xclbin'"},
      {"\"xclbin\": \"a.xclbin\"", "\"elf\": \"a.elf\"", "name an xclbin"},
      {"\"licence\": \"MIT\"", "\"licence\": \"\"", "'licence'"},
      {"\"revision\": \"1\", ", "", "'revision'"},
  };
  for (const auto& fault : faults) {
    EXPECT_THAT(ReadWith(fault.from, fault.to),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(HasSubstr("package.json"), HasSubstr(fault.text))))
        << fault.from << " -> " << fault.to;
  }
}

TEST_F(PackageTest, RefusesFilesThatAreNoXclbin) {
  EXPECT_THAT(ReadWith("\"a.xclbin\"", "\"c.xclbin\""),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("c.xclbin")));
  Write("package.json", kPackage);
  Write("a.xclbin", "TNPI and so on");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("TNPI")));
  Write("a.xclbin", "xclbin2");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cut short")));
}

// A damaged file is read or refused; an operator that was read is sound.
TEST_F(PackageTest, DamagedFilesAreReadOrRefused) {
  std::mt19937 random(5);
  const std::string original = kPackage;
  int num_read = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = original;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      const size_t from = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at + 1, random() % 8);
          break;
        case 2:
          text.insert(at, original, from % original.size(), random() % 40);
          break;
        default:
          text.resize(at + 1);
      }
    }
    Write("package.json", text);
    const auto package = Read();
    if (!package.ok()) {
      EXPECT_FALSE(package.status().message().empty());
      continue;
    }
    ++num_read;
    for (const NpuOperator& op : package->operators) {
      ASSERT_EQ(op.arguments.size(), ArgumentNames(op.control).size());
      ASSERT_LT(op.parameters.lock, kCoreLocks);
      ASSERT_LE(op.parameters.address + kMaxParameters * 4, kCoreMemoryBytes);
      ASSERT_TRUE(op.xclbin_path.starts_with(folder_.path() + "/"));
    }
  }
  EXPECT_GT(num_read, 5);  // changed names and numbers
  EXPECT_LT(num_read, 2500);
}

TEST_F(PackageTest, DeepAndLongFilesAreRefused) {
  Write("package.json", std::string(100000, '['));
  EXPECT_THAT(Read(), HasCode(absl::StatusCode::kInvalidArgument));
  Write("package.json", std::string((1 << 20) + 1, ' '));
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be 1 to")));
}

}  // namespace
}  // namespace tandem::npu
