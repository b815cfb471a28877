#include "services/loader/formats/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/testing/allocation_guard.h"
#include "services/loader/formats/testing/release_builder.h"

namespace tandem::loader {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace testing;  // the builders

void ExpectFileRefused(const std::string& file, uint64_t offset, const std::string& reason) {
  const AllocationGuard guard;
  const auto header = ParseSafetensors(SpanSource(file));
  EXPECT_LE(guard.largest(), (size_t{64} << 10) + file.size());
  EXPECT_THAT(header, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr(absl::StrFormat("at byte %d: ", offset)),
                                     HasSubstr(reason))));
}

// A file of one tensor "t" with this description, and this many bytes of data.
std::string OneTensor(const std::string& description, size_t data_bytes) {
  return SafetensorsFile("{\"t\": " + description + "}", std::string(data_bytes, 'x'));
}
// Where "t" stands in it.
constexpr uint64_t kNameOffset = 9;

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const Release release = SmallRelease();
  const std::string file = SafetensorsFile(release.tensors);
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ParseSafetensors(SpanSource(file)));
  ASSERT_EQ(header.tensors.size(), release.tensors.size());
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const FileTensor& tensor = header.tensors[i];
    EXPECT_EQ(tensor.name, release.tensors[i].name);
    EXPECT_EQ(tensor.shape, release.tensors[i].shape);
    EXPECT_EQ(tensor.dtype, DType::kBf16);
    EXPECT_EQ(file.substr(tensor.file_offset, tensor.num_bytes), release.tensors[i].data);
  }
  ASSERT_EQ(header.metadata.size(), 1u);
  EXPECT_EQ(header.metadata[0].second, "pt");
}

TEST(SafetensorsTest, ReadsScalarsEmptyTensorsAndForeignTypes) {
  const std::string file =
      SafetensorsFile(std::vector<StoredTensor>{{"scalar", "F32", {}, "1234"},
                                                {"empty", "F16", {0, 5}, ""},
                                                {"ids", "I64", {3}, std::string(24, 'x')}});
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ParseSafetensors(SpanSource(file)));
  EXPECT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[2].dtype, std::nullopt);
  EXPECT_EQ(header.tensors[2].dtype_name, "I64");
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string file = SafetensorsFile(SmallRelease().tensors);
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string cut = file.substr(0, size);
    EXPECT_THAT(ParseSafetensors(SpanSource(cut)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at byte ")))
        << size;
  }
}

TEST(SafetensorsTest, RefusesHeaderLengthsThatDoNotFit) {
  for (const uint64_t length :
       {uint64_t{100}, uint64_t{100'000'001}, uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}}) {
    ExpectFileRefused(Packed(length) + "{}", 0, absl::StrFormat("a header of %d bytes", length));
  }
  ExpectFileRefused("1234567", 0, "needs 8 bytes, 7 are left");
  ExpectFileRefused(Packed(uint64_t{0}), 8, "does not begin with '{'");
}

// Claims to be as long as it is asked to be, and counts the bytes read.
class LongSource : public ByteSource {
 public:
  uint64_t size() const override { return uint64_t{1} << 40; }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    std::fill(out.begin(), out.end(), std::byte{0});
    const uint64_t length = 100'000'001;
    if (offset == 0) std::memcpy(out.data(), &length, sizeof(length));
    num_bytes_read += out.size();
    return absl::OkStatus();
  }
  mutable uint64_t num_bytes_read = 0;
};

TEST(SafetensorsTest, RefusesHeadersOver100MegabytesBeforeReadingThem) {
  const LongSource source;
  const AllocationGuard guard;
  EXPECT_THAT(ParseSafetensors(source),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("100000001")));
  EXPECT_LE(guard.largest(), size_t{64} << 10);
  EXPECT_LE(source.num_bytes_read, uint64_t{64} << 10);
}

TEST(SafetensorsTest, RefusesHeadersThatAreNoObjectOfObjects) {
  ExpectFileRefused(SafetensorsFile("[1, 2, 3]", ""), 8, "does not begin with '{'");
  ExpectFileRefused(SafetensorsFile("{\"t\": 5}", ""), kNameOffset, "description is no object");
  ExpectFileRefused(SafetensorsFile("{\"t\": {}", ""), 8, "in the header");
  ExpectFileRefused(SafetensorsFile("{\"__metadata__\": 5}", ""), 8, "__metadata__ is no object");
  ExpectFileRefused(SafetensorsFile("{\"__metadata__\": {\"a\": 5}}", ""), 8, "\"a\" is no string");
}

TEST(SafetensorsTest, RefusesDuplicateNamesAndDeepNesting) {
  const std::string entry = R"({"dtype": "F32", "shape": [], "data_offsets": [0, 4]})";
  EXPECT_THAT(
      ParseSafetensors(
          SpanSource(SafetensorsFile("{\"t\": " + entry + ", \"t\": " + entry + "}", "1234"))),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the name \"t\" appears twice")));
  std::string deep = "{\"t\": ";
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_THAT(ParseSafetensors(SpanSource(SafetensorsFile(deep, ""))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nested deeper than 64")));
}

TEST(SafetensorsTest, RefusesBadDescriptions) {
  struct Case {
    const char* description;
    const char* reason;
  };
  const Case cases[] = {
      {R"({"shape": [2], "data_offsets": [0, 8]})", "dtype is missing"},
      {R"({"dtype": 7, "shape": [2], "data_offsets": [0, 8]})", "dtype is 7"},
      {R"({"dtype": "Q4", "shape": [2], "data_offsets": [0, 8]})", "unknown dtype \"Q4\""},
      {R"({"dtype": "F32", "data_offsets": [0, 8]})", "shape is missing"},
      {R"({"dtype": "F32", "shape": 2, "data_offsets": [0, 8]})", "shape is missing or no array"},
      {R"({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]})", "dimension -2"},
      {R"({"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]})", "dimension 2.0"},
      {R"({"dtype": "F32", "shape": [[2]], "data_offsets": [0, 8]})", "dimension [2]"},
      {R"({"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,2], "data_offsets": [0, 8]})", "9 dimensions"},
      {R"({"dtype": "F32", "shape": [2]})", "data_offsets is not two"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [0]})", "data_offsets is not two"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]})", "data_offsets is not two"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]})", "data_offsets is not two"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": ["0", "8"]})", "data_offsets is not two"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]})", "do not lie in the data's 8"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 9]})", "do not lie in the data's 8"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [18446744073709551608, 0]})",
       "do not lie in the data's 8"},
      {R"({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]})", "make 12 bytes"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "x": 1})", "unknown member \"x\""},
  };
  for (const Case& bad : cases) {
    ExpectFileRefused(OneTensor(bad.description, 8), kNameOffset, bad.reason);
  }
}

TEST(SafetensorsTest, RefusesShapesWhoseSizeOverflows) {
  for (const char* shape :
       {"[4294967296, 4294967296]", "[18446744073709551615]", "[2305843009213693952, 4]",
        "[4611686018427387904]", "[0, 18446744073709551615, 2, 4294967296]"}) {
    const std::string description =
        absl::StrFormat(R"({"dtype": "F32", "shape": %s, "data_offsets": [0, 0]})", shape);
    if (std::string(shape).starts_with("[0")) {
      EXPECT_OK(ParseSafetensors(SpanSource(OneTensor(description, 0))));  // nothing times anything
    } else {
      ExpectFileRefused(OneTensor(description, 0), kNameOffset, "overflows");
    }
  }
}

TEST(SafetensorsTest, RefusesOverlapsHolesAndTrailingBytes) {
  const auto file = [](uint64_t begin, size_t data_bytes) {
    const std::string header =
        absl::StrFormat(R"({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},)"
                        R"( "b": {"dtype": "U8", "shape": [8], "data_offsets": [%d, %d]}})",
                        begin, begin + 8);
    return SafetensorsFile(header, std::string(data_bytes, 'x'));
  };
  EXPECT_OK(ParseSafetensors(SpanSource(file(8, 16))));
  const uint64_t name_b = file(8, 16).find("\"b\"");
  ExpectFileRefused(file(4, 16), name_b, "inside the tensor before it");
  ExpectFileRefused(file(0, 16), name_b, "inside the tensor before it");
  ExpectFileRefused(file(16, 24), name_b, "with a hole after the tensor before it");
  const std::string trailing = file(8, 17);
  ExpectFileRefused(trailing, trailing.size() - 1, "1 bytes belong to no tensor");
}

}  // namespace
}  // namespace tandem::loader
