#include "services/gateway/rest/message_json.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "services/gateway/rest/testing/library.pb.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using tandem::testing::v1::Fields;

std::string Print(const Message& message) {
  std::string out;
  const absl::Status status = AppendMessageJson(message, out);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// protobuf's JSON of `message`, the reference.
std::string Reference(const Message& message) {
  std::string out;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &out).ok());
  return out;
}

// Fills messages with random values; many are extremes.
class Filler {
 public:
  explicit Filler(uint32_t seed) : random_(seed) {}

  void Fill(Message& message, int depth) {
    const Descriptor& type = *message.GetDescriptor();
    if (type.well_known_type() == Descriptor::WELLKNOWNTYPE_TIMESTAMP ||
        type.well_known_type() == Descriptor::WELLKNOWNTYPE_DURATION) {
      // Nanoseconds have the sign of the seconds, and a limit.
      message.GetReflection()->SetInt64(&message, type.FindFieldByName("seconds"), Up(99999999));
      return;
    }
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const int count = field.is_repeated() ? Up(3) : Up(1);
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && depth == 0) continue;
      for (int j = 0; j < count; ++j) Set(message, field, depth);
    }
  }

 private:
  int Up(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

  template <class Number>
  Number AnyOf(std::initializer_list<Number> numbers) {
    return numbers.begin()[Up(static_cast<int>(numbers.size()) - 1)];
  }
  template <class Integer>
  Integer AnInteger() {
    using Limits = std::numeric_limits<Integer>;
    return AnyOf<Integer>({0, 1, 42, Limits::min(), Limits::max()});
  }
  template <class Float>
  Float AFloat() {
    using Limits = std::numeric_limits<Float>;
    // Without -0 and the largest float, whose text protobuf does not read back.
    const auto any = static_cast<Float>(std::normal_distribution<double>()(random_));
    return AnyOf<Float>({Float{0}, any, any * Float(1e20), any * Float(1e-20), Float(3.4e38),
                         Limits::min(), Limits::denorm_min(), Limits::infinity(),
                         -Limits::infinity(), Limits::quiet_NaN(), Float(1) / 3, Float(16777216)});
  }
  std::string AText() {
    static const std::vector<std::string> kPieces = {"a",
                                                     "hat ",
                                                     "\"",
                                                     "\\",
                                                     "\n",
                                                     "\x01",
                                                     "\x7f",
                                                     "<&>'/",
                                                     "\xC3\xA9",
                                                     "\xE2\x80\xA8",
                                                     "\t",
                                                     "\xC2\x80",
                                                     std::string(1, '\0'),
                                                     "\xF0\x9F\x98\x80",
                                                     "\xEF\xBF\xBF"};
    std::string text;
    for (int i = Up(6); i > 0; --i) text += kPieces[Up(static_cast<int>(kPieces.size()) - 1)];
    return text;
  }
  std::string SomeBytes() {
    std::string bytes;
    for (int i = Up(7); i > 0; --i) bytes.push_back(static_cast<char>(Up(255)));
    return bytes;
  }

  void Set(Message& message, const FieldDescriptor& field, int depth) {
    const Reflection& reflection = *message.GetReflection();
    const auto set = [&](auto singular, auto repeated, auto value) {
      if (field.is_repeated()) {
        (reflection.*repeated)(&message, &field, value);
      } else {
        (reflection.*singular)(&message, &field, value);
      }
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return set(&Reflection::SetInt32, &Reflection::AddInt32, AnInteger<int32_t>());
      case FieldDescriptor::CPPTYPE_UINT32:
        return set(&Reflection::SetUInt32, &Reflection::AddUInt32, AnInteger<uint32_t>());
      case FieldDescriptor::CPPTYPE_INT64:
        return set(&Reflection::SetInt64, &Reflection::AddInt64, AnInteger<int64_t>());
      case FieldDescriptor::CPPTYPE_UINT64:
        return set(&Reflection::SetUInt64, &Reflection::AddUInt64, AnInteger<uint64_t>());
      case FieldDescriptor::CPPTYPE_FLOAT:
        return set(&Reflection::SetFloat, &Reflection::AddFloat, AFloat<float>());
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return set(&Reflection::SetDouble, &Reflection::AddDouble, AFloat<double>());
      case FieldDescriptor::CPPTYPE_BOOL:
        return set(&Reflection::SetBool, &Reflection::AddBool, Up(1) == 1);
      case FieldDescriptor::CPPTYPE_ENUM:  // 77 has no name
        return set(&Reflection::SetEnumValue, &Reflection::AddEnumValue, AnyOf<int>({0, 1, 77}));
      case FieldDescriptor::CPPTYPE_STRING:
        return set(&Reflection::SetString, &Reflection::AddString,
                   field.type() == FieldDescriptor::TYPE_BYTES ? SomeBytes() : AText());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(field.is_repeated() ? *reflection.AddMessage(&message, &field, nullptr)
                                        : *reflection.MutableMessage(&message, &field, nullptr),
                    depth - 1);
    }
  }

  std::mt19937 random_;
};

// Whether two JSON values agree: names, order of lists, types.  Floats may differ in digits that
// none of float and double reads.
bool Agree(const nlohmann::json& a, const nlohmann::json& b) {
  if (a.is_number() && b.is_number()) {
    return a == b || static_cast<float>(a.get<double>()) == static_cast<float>(b.get<double>());
  }
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_object()) {
    return std::all_of(a.items().begin(), a.items().end(), [&b](const auto& item) {
      return b.contains(item.key()) && Agree(item.value(), b[item.key()]);
    });
  }
  return a.is_array() ? std::equal(a.begin(), a.end(), b.begin(), Agree) : a == b;
}

// The same bytes for the same message: maps are sorted.
std::string Encode(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  EXPECT_TRUE(message.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

void ExpectSameAsReference(const Message& message) {
  const std::string json = Print(message);
  ASSERT_TRUE(nlohmann::json::accept(json)) << json;
  EXPECT_TRUE(Agree(nlohmann::json::parse(json), nlohmann::json::parse(Reference(message))))
      << json << "\n"
      << Reference(message);
  const std::unique_ptr<Message> read(message.New());
  const auto status = google::protobuf::util::JsonStringToMessage(json, read.get());
  ASSERT_TRUE(status.ok()) << status.ToString() << "\n" << json;
  EXPECT_EQ(Encode(*read), Encode(message)) << json;
}

TEST(MessageJsonTest, EveryMessageOfTheApiIsPrintedAsProtobufDoes) {
  const FileDescriptor& file = *v1::GenerateRequest::descriptor()->file();
  ASSERT_GT(file.message_type_count(), 20);
  std::vector<const Descriptor*> types = {Fields::descriptor()};
  for (int i = 0; i < file.message_type_count(); ++i) types.push_back(file.message_type(i));
  for (const Descriptor* type : types) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
      SCOPED_TRACE(type->full_name() + ", seed " + std::to_string(seed));
      const std::unique_ptr<Message> message(
          google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
      Filler(seed).Fill(*message, /*depth=*/3);
      // Maps drop what was added twice under one key.
      ASSERT_TRUE(message->ParseFromString(message->SerializeAsString()));
      ExpectSameAsReference(*message);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
  }
}

TEST(MessageJsonTest, AnEmptyMessageIsAnEmptyObject) {
  EXPECT_EQ(Print(v1::GenerateResponse()), "{}");
  v1::ChatResponse response;
  response.add_tokens();
  EXPECT_EQ(Print(response), R"({"tokens":[{}]})");
}

TEST(MessageJsonTest, AMessageOfAStreamIsOneShortLine) {
  v1::ChatResponse response;
  response.set_text("caf\xC3\xA9\n");
  v1::Token& token = *response.add_tokens();
  token.set_id(77);
  token.set_piece("\n");
  token.set_logprob(-0.1f);
  EXPECT_EQ(Print(response),
            "{\"text\":\"caf\xC3\xA9\\n\",\"tokens\":[{\"id\":77,\"piece\":\"Cg==\","
            "\"logprob\":-0.1}]}");
}

TEST(MessageJsonTest, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  v1::GetStatusResponse response;
  response.set_detail("a\xFFz");
  EXPECT_EQ(Print(response), "{\"detail\":\"a\xEF\xBF\xBDz\"}");
}

TEST(MessageJsonTest, ATimeThatHasNoJsonFormIsNamed) {
  Fields message;
  message.mutable_time()->set_seconds(std::numeric_limits<int64_t>::max());
  std::string out;
  const absl::Status status = AppendMessageJson(message, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("google.protobuf.Timestamp"));
}

}  // namespace
}  // namespace tandem::gateway
