#include "services/loader/formats/gguf.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/testing/allocation_guard.h"
#include "services/loader/formats/testing/gguf_builder.h"

namespace tandem::loader {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace testing;  // the builders

// No allocation on the way to a refusal may be larger than this, whatever the file claims: the
// reader's own buffer is the largest.
constexpr size_t kMaxAllocation = 64 << 10;

// Refused with this offset and reason, without a large allocation.
void ExpectRefused(const std::string& file, uint64_t offset, const std::string& reason) {
  const AllocationGuard guard;
  const absl::StatusOr<GgufHeader> header = ParseGguf(SpanSource(file));
  EXPECT_LE(guard.largest(), kMaxAllocation);
  EXPECT_THAT(header, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(StartsWith("at byte " + std::to_string(offset) + ": "),
                                     HasSubstr(reason))));
}

// Where the bytes of `what` begin in `file`.
uint64_t At(const std::string& file, std::string_view what) {
  const size_t at = file.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at;
}
// Where the description of a tensor, or a key, of this name begins.
uint64_t AtName(const std::string& file, const std::string& name) {
  return At(file, PackedString(name));
}
// Where the value of the key of this name begins.
uint64_t AtValue(const std::string& file, const std::string& name) {
  return AtName(file, name) + 8 + name.size() + 4;
}

TEST(AllocationGuardTest, SeesWhatIsAllocatedWhileItLives) {
  const AllocationGuard guard;
  const std::string text(100 << 10, 'x');
  EXPECT_GE(guard.largest(), text.size());
}

TEST(GgufTest, ReadsVersions2And3) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = SmallGguf();
    builder.version = version;
    const std::string file = builder.Build();
    ASSERT_OK_AND_ASSIGN(const GgufHeader header, ParseGguf(SpanSource(file)));
    EXPECT_EQ(header.version, version);
    EXPECT_EQ(header.keys.size(), builder.keys.size());
    ASSERT_EQ(header.tensors.size(), builder.tensors.size());
    for (size_t i = 0; i < header.tensors.size(); ++i) {
      const GgufTensor& tensor = header.tensors[i];
      EXPECT_EQ(tensor.name, builder.tensors[i].name);
      EXPECT_EQ(file.substr(tensor.file_offset, tensor.num_bytes), builder.tensors[i].data);
    }
  }
}

TEST(GgufTest, ReadsEveryValueType) {
  GgufBuilder builder;
  builder.Set("u8", GgufType::kU8, Packed(uint8_t{200}));
  builder.Set("i8", GgufType::kI8, Packed(int8_t{-100}));
  builder.Set("u16", GgufType::kU16, Packed(uint16_t{60000}));
  builder.Set("i16", GgufType::kI16, Packed(int16_t{-30000}));
  builder.Set("u32", GgufType::kU32, Packed(4000000000u));
  builder.Set("i32", GgufType::kI32, Packed(-2000000000));
  builder.Set("f32", GgufType::kF32, Packed(0.25f));
  builder.Set("bool", GgufType::kBool, Packed(uint8_t{1}));
  builder.SetString("string", "text\nand more");
  builder.Set("u64", GgufType::kU64, Packed(uint64_t{1} << 40));
  builder.Set("i64", GgufType::kI64, Packed(-(int64_t{1} << 40)));
  builder.Set("f64", GgufType::kF64, Packed(-0.5));
  builder.SetI32s("array", {-1, 2, -3});
  builder.Set("nested", GgufType::kArray,
              Packed(uint32_t{9}) + Packed(uint64_t{2}) +
                  PackedArray<uint16_t>(GgufType::kU16, {7, 8}) +
                  PackedArray<uint8_t>(GgufType::kBool, {}));
  const std::string file = builder.Build();
  ASSERT_OK_AND_ASSIGN(const GgufHeader header, ParseGguf(SpanSource(file)));
  const auto print = [&](const char* key) { return PrintGgufValue(*header.Find(key), 100); };
  EXPECT_EQ(print("u8"), "200");
  EXPECT_EQ(print("i8"), "-100");
  EXPECT_EQ(print("u16"), "60000");
  EXPECT_EQ(print("i16"), "-30000");
  EXPECT_EQ(print("u32"), "4000000000");
  EXPECT_EQ(print("i32"), "-2000000000");
  EXPECT_EQ(print("f32"), "0.25");
  EXPECT_EQ(print("bool"), "true");
  EXPECT_EQ(print("string"), "text\\nand more");
  EXPECT_EQ(print("u64"), "1099511627776");
  EXPECT_EQ(print("i64"), "-1099511627776");
  EXPECT_EQ(print("f64"), "-0.5");
  EXPECT_EQ(print("array"), "[i32 x 3] -1, 2, -3");
  EXPECT_EQ(print("nested"), "[array x 2] [u16 x 2] 7, 8, [bool x 0]");
}

TEST(GgufTest, ReadsEverySupportedTensorType) {
  const std::vector<std::pair<uint32_t, DType>> types = {
      {0, DType::kF32},  {1, DType::kF16},   {30, DType::kBf16}, {8, DType::kQ8_0},
      {2, DType::kQ4_0}, {14, DType::kQ6_K}, {12, DType::kQ4_K}, {13, DType::kQ5_K},
      {6, DType::kQ5_0}, {20, DType::kIq4Nl}};
  ASSERT_EQ(types.size(), AllDTypes().size());
  for (const auto& [number, dtype] : types) {
    GgufBuilder builder;
    builder.tensors.push_back(
        {"t", {512, 3}, number, std::string(3 * RowBytes(dtype, 512), 'x'), {}});
    const std::string file = builder.Build();
    ASSERT_OK_AND_ASSIGN(const GgufHeader header, ParseGguf(SpanSource(file)));
    EXPECT_EQ(header.tensors[0].dtype, dtype);
    EXPECT_EQ(header.tensors[0].num_bytes, 3 * RowBytes(dtype, 512));
  }
}

TEST(GgufTest, HonoursAnotherAlignment) {
  for (const uint32_t alignment : {8u, 64u, 65536u}) {
    GgufBuilder builder = SmallGguf();
    builder.alignment = alignment;
    builder.SetU32("general.alignment", alignment);
    const std::string file = builder.Build();
    ASSERT_OK_AND_ASSIGN(const GgufHeader header, ParseGguf(SpanSource(file)));
    EXPECT_EQ(header.data_offset % alignment, 0u);
    const GgufTensor& last = header.tensors.back();
    EXPECT_EQ(file.substr(last.file_offset, last.num_bytes), builder.tensors.back().data);
  }
}

TEST(GgufTest, EveryTruncationOfTheHeaderIsRefused) {
  const std::string file = SmallGguf().Build();
  ASSERT_OK_AND_ASSIGN(const GgufHeader whole, ParseGguf(SpanSource(file)));
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string cut = file.substr(0, size);
    EXPECT_THAT(ParseGguf(SpanSource(cut)),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("at byte ")))
        << size;
  }
}

TEST(GgufTest, RefusesWhatIsNoGguf) {
  std::string file = SmallGguf().Build();
  file[0] = 'g';
  ExpectRefused(file, 0, "does not begin with");
  ExpectRefused("", 0, "4 bytes long, 0 are left");
  for (const uint32_t version : {0u, 1u, 4u}) {
    GgufBuilder builder = SmallGguf();
    builder.version = version;
    ExpectRefused(builder.Build(), 4, "GGUF version " + std::to_string(version));
  }
  GgufBuilder big_endian = SmallGguf();
  big_endian.version = 0x03000000;
  ExpectRefused(big_endian.Build(), 4, "big-endian");
}

TEST(GgufTest, RefusesCountsThatOverflow) {
  for (const uint64_t count : {uint64_t{1} << 16 | 1, uint64_t{1} << 32, uint64_t{1} << 61,
                               ~uint64_t{0}, ~uint64_t{0} / 56}) {
    GgufBuilder builder = SmallGguf();
    builder.claimed_num_tensors = count;
    ExpectRefused(builder.Build(), 8, "claims " + std::to_string(count) + " tensors");
    builder = SmallGguf();
    builder.claimed_num_keys = count;
    ExpectRefused(builder.Build(), 16, "claims " + std::to_string(count) + " keys");
  }
}

TEST(GgufTest, RefusesStringsLongerThanTheFile) {
  for (const uint64_t length : {uint64_t{1} << 20, uint64_t{1} << 40, ~uint64_t{0}}) {
    GgufBuilder builder = SmallGguf();
    builder.Set("general.name", GgufType::kString, Packed(length) + "short");
    const std::string file = builder.Build();
    ExpectRefused(file, AtValue(file, "general.name") + 8,
                  "general.name: " + std::to_string(length) + " bytes long");
  }
  std::string file = SmallGguf().Build();
  file.replace(24, 8, Packed(~uint64_t{0} - 7));  // the first key's name
  ExpectRefused(file, 32, "a key's name: ");
}

TEST(GgufTest, RefusesArraysLongerThanTheFile) {
  for (const uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 61, ~uint64_t{0}}) {
    for (const GgufType type :
         {GgufType::kU8, GgufType::kF64, GgufType::kString, GgufType::kArray}) {
      GgufBuilder builder = SmallGguf();
      builder.Set("array", GgufType::kArray,
                  Packed(static_cast<uint32_t>(type)) + Packed(count) + std::string(64, '\1'));
      const std::string file = builder.Build();
      const bool numbers = type == GgufType::kU8 || type == GgufType::kF64;
      ExpectRefused(file, AtValue(file, "array") + (numbers ? 12 : 4), std::to_string(count));
    }
  }
}

TEST(GgufTest, RefusesUnknownTypesAndBadBools) {
  GgufBuilder builder = SmallGguf();
  builder.Set("odd", static_cast<GgufType>(13), "");
  std::string file = builder.Build();
  ExpectRefused(file, AtValue(file, "odd") - 4, "odd: unknown value type 13");
  builder = SmallGguf();
  builder.Set("odd", GgufType::kArray, Packed(uint32_t{0xffffffff}) + Packed(uint64_t{0}));
  file = builder.Build();
  ExpectRefused(file, AtValue(file, "odd"), "odd: unknown value type 4294967295");
  builder = SmallGguf();
  builder.Set("odd", GgufType::kArray, PackedArray<uint8_t>(GgufType::kBool, {0, 1, 2}));
  file = builder.Build();
  ExpectRefused(file, AtValue(file, "odd") + 12 + 2, "odd: a bool of value 2");
}

TEST(GgufTest, BoundsNestingAndTheNumberOfArrays) {
  std::string value = PackedArray<uint8_t>(GgufType::kU8, {1});
  for (int depth = 0; depth < 3; ++depth) value = Packed(uint32_t{9}) + Packed(uint64_t{1}) + value;
  GgufBuilder builder = SmallGguf();
  builder.Set("deep", GgufType::kArray, value);
  EXPECT_OK(ParseGguf(SpanSource(builder.Build())));
  builder.Set("deep", GgufType::kArray, Packed(uint32_t{9}) + Packed(uint64_t{1}) + value);
  std::string file = builder.Build();
  ExpectRefused(file, AtValue(file, "deep") + 4 * 12, "arrays nested deeper than 4");

  // 100,000 levels: nothing recurses that far.
  std::string bomb;
  for (int i = 0; i < 100000; ++i) bomb += Packed(uint32_t{9}) + Packed(uint64_t{1});
  builder.Set("deep", GgufType::kArray, bomb);
  file = builder.Build();
  ExpectRefused(file, AtValue(file, "deep") + 4 * 12, "arrays nested deeper than 4");

  std::string wide = Packed(uint32_t{9}) + Packed(uint64_t{70000});
  for (int i = 0; i < 70000; ++i) wide += PackedArray<uint8_t>(GgufType::kU8, {});
  builder.Set("deep", GgufType::kArray, wide);
  EXPECT_THAT(ParseGguf(SpanSource(builder.Build())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 65536")));
}

TEST(GgufTest, RefusesBadAlignments) {
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 17, 1u << 31, ~0u}) {
    GgufBuilder builder = SmallGguf();
    builder.SetU32("general.alignment", alignment);
    const std::string file = builder.Build();
    ExpectRefused(file, AtValue(file, "general.alignment"),
                  "general.alignment is " + std::to_string(alignment));
  }
  GgufBuilder builder = SmallGguf();
  builder.SetString("general.alignment", "32");
  const std::string file = builder.Build();
  ExpectRefused(file, AtValue(file, "general.alignment"), "expected u32, file has string");
}

TEST(GgufTest, RefusesDuplicateAndEmptyNames) {
  GgufBuilder builder = SmallGguf();
  builder.keys.push_back(builder.keys[3]);
  std::string file = builder.Build();
  ExpectRefused(file, file.rfind(PackedString(builder.keys[3].name)), "appears twice");

  builder = SmallGguf();
  builder.tensors.push_back(builder.tensors[1]);
  file = builder.Build();
  ExpectRefused(file, file.rfind(PackedString(builder.tensors[1].name)),
                "tensor output_norm.weight appears twice");

  builder = SmallGguf();
  builder.keys.push_back({"", 0, "x"});
  EXPECT_THAT(ParseGguf(SpanSource(builder.Build())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name is empty")));
  builder = SmallGguf();
  builder.tensors[0].name = "";
  EXPECT_THAT(ParseGguf(SpanSource(builder.Build())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name is empty")));
  builder = SmallGguf();
  builder.tensors[0].name = std::string(65, 'n');
  EXPECT_THAT(ParseGguf(SpanSource(builder.Build())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 64")));
}

TEST(GgufTest, RefusesZeroOrTooManyDimensions) {
  for (const uint32_t num_dims : {0u, 5u}) {
    GgufBuilder builder = SmallGguf();
    builder.tensors[0].dims.assign(num_dims, 1);
    const std::string file = builder.Build();
    ExpectRefused(file, AtName(file, "token_embd.weight") + 8 + 17,
                  "has " + std::to_string(num_dims) + " dimensions");
  }
}

TEST(GgufTest, RefusesDimensionProductsAndSizesThatOverflow) {
  const uint64_t big = uint64_t{1} << 32;
  const std::vector<std::vector<uint64_t>> shapes = {{0},
                                                     {8, 0},
                                                     {big, big},
                                                     {big, big, big, big},
                                                     {~uint64_t{0}},
                                                     {uint64_t{1} << 63, 2},
                                                     {uint64_t{1} << 62, 2}};
  for (const std::vector<uint64_t>& shape : shapes) {
    GgufBuilder builder = SmallGguf();
    builder.tensors[0].dims = shape;
    EXPECT_THAT(ParseGguf(SpanSource(builder.Build())),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("tensor token_embd.weight: dimension ")));
  }
  // Products that fit 64 bits, bytes that would not: 2^62 elements of 4 bytes wrap to 0.
  for (const uint64_t elements : {uint64_t{1} << 62, uint64_t{1} << 61, uint64_t{1} << 40}) {
    for (const uint32_t type : {0u, 1u, 8u, 14u}) {
      GgufBuilder builder = SmallGguf();
      builder.tensors[0].dims = {elements};
      builder.tensors[0].type = type;
      const std::string file = builder.Build();
      ExpectRefused(file, AtName(file, "token_embd.weight") + 8 + 17, "do not fit a file of");
    }
  }
}

TEST(GgufTest, RefusesRowsThatAreNoWholeBlocks) {
  GgufBuilder builder = SmallGguf();
  builder.tensors[0].dims = {48, 2};
  builder.tensors[0].type = 8;
  const std::string file = builder.Build();
  ExpectRefused(file, AtName(file, "token_embd.weight") + 8 + 17,
                "rows of 48 are no multiple of q8_0's block of 32");
}

TEST(GgufTest, NamesTypesThatAreNotSupported) {
  const std::vector<std::pair<uint32_t, std::string>> types = {
      {10, "Q2_K"}, {23, "IQ4_XS"}, {28, "F64"}, {4, "unknown (4)"}, {99, "unknown (99)"}};
  for (const auto& [number, name] : types) {
    GgufBuilder builder = SmallGguf();
    builder.tensors[0].type = number;
    const std::string file = builder.Build();
    ExpectRefused(file, AtName(file, "token_embd.weight") + 8 + 17 + 4 + 16,
                  "tensor token_embd.weight has type " + name + ";");
  }
}

TEST(GgufTest, RefusesOffsetsPastTheEndUnalignedOrOverlapping) {
  for (const uint64_t offset : {uint64_t{1} << 20, uint64_t{1} << 63, ~uint64_t{31}}) {
    GgufBuilder builder = SmallGguf();
    builder.tensors[1].claimed_offset = offset;
    const std::string file = builder.Build();
    ExpectRefused(file, AtName(file, "output_norm.weight"), "end past the file's");
  }
  GgufBuilder builder = SmallGguf();
  builder.tensors[1].claimed_offset = 33;
  std::string file = builder.Build();
  ExpectRefused(file, AtName(file, "output_norm.weight"), "no multiple of the alignment 32");
  builder = SmallGguf();
  builder.tensors[1].claimed_offset = 64;  // inside the embedding's 160 bytes
  file = builder.Build();
  ExpectRefused(file, AtName(file, "output_norm.weight"),
                "tensors token_embd.weight and output_norm.weight overlap");
}

TEST(GgufTest, LookUpsNameTheKeyOffsetAndTypeWhenTheTypeIsAnother) {
  GgufBuilder builder;
  builder.SetString("a", "text");
  builder.SetU32("b", 7);
  builder.SetF32("c", std::numeric_limits<float>::infinity());
  builder.Set("d", GgufType::kI32, Packed(-1));
  const std::string file = builder.Build();
  ASSERT_OK_AND_ASSIGN(const GgufHeader header, ParseGguf(SpanSource(file)));
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(header.Unsigned("a", 10),
              StatusIs(code, HasSubstr("a: expected an integer, file has string")));
  EXPECT_THAT(header.Unsigned("b", 6), StatusIs(code, HasSubstr("b is 7, must be in [0, 6]")));
  EXPECT_THAT(header.Unsigned("d", 6), StatusIs(code, HasSubstr("d is -1")));
  EXPECT_THAT(header.Float("b"), StatusIs(code, HasSubstr("expected a float, file has u32")));
  EXPECT_THAT(header.Float("c"), StatusIs(code, HasSubstr("not finite")));
  EXPECT_THAT(header.Bool("b"), StatusIs(code, HasSubstr("expected a bool")));
  EXPECT_THAT(header.String("b"), StatusIs(code, HasSubstr("expected a string")));
  EXPECT_EQ(*header.Unsigned("b", 7), 7u);
  EXPECT_EQ(*header.Unsigned("z", 7), std::nullopt);
}

}  // namespace
}  // namespace tandem::loader
