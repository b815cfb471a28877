// REST gives what gRPC gives: for every method and binding of the public API, by its descriptors,
// with requests that are right, empty, or wrong in one field.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/gateway/rest/rest_binding.h"
#include "services/gateway/rest/testing/rest_fixture.h"

namespace tandem::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using testing::HttpTestResponse;

std::unique_ptr<Message> New(const Descriptor& type) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

// What a call came to: all its messages in one, and its status.
struct Outcome {
  std::unique_ptr<Message> messages;
  int code = 0;
  std::string error;
};

// Adds a stream's message to those before: repeated fields grow, and so does `text`.
void Fold(const Message& next, Message& all) {
  const FieldDescriptor* text = all.GetDescriptor()->FindFieldByName("text");
  const Reflection& reflection = *all.GetReflection();
  std::string joined;
  if (text != nullptr) joined = reflection.GetString(all, text) + reflection.GetString(next, text);
  all.MergeFrom(next);
  if (text != nullptr) reflection.SetString(&all, text, joined);
}

// Takes out what differs from call to call by its nature: times, what is cached, the load of the
// moment.
void DropTimes(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string& name = field->name();
    if (absl::EndsWith(name, "seconds") || name == "device_times" || name == "request_id" ||
        name == "cached_tokens" || name == "scheduler") {
      reflection.ClearField(&message, field);
    } else if (field->message_type() != nullptr && field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        DropTimes(*reflection.MutableRepeatedMessage(&message, field, i));
      }
    } else if (field->message_type() != nullptr) {
      DropTimes(*reflection.MutableMessage(&message, field));
    }
  }
}

using Path = std::vector<const FieldDescriptor*>;

// Every field that holds a value, through messages that are not repeated.
void FindLeaves(const Descriptor& type, Path& path, std::vector<Path>& leaves) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    path.push_back(field);
    if (field->message_type() != nullptr && !field->is_repeated()) {
      FindLeaves(*field->message_type(), path, leaves);
    } else if (!field->is_map() && field->name() != "request_id") {
      leaves.push_back(path);
    }
    path.pop_back();
  }
}

// Values to try in `field`: extremes, what is no number, what no model is called.
std::vector<std::function<void(Message&)>> Values(const FieldDescriptor* field) {
  std::vector<std::function<void(Message&)>> values;
  const auto add = [&values](auto set) { values.emplace_back(set); };
  const auto reflection = [](Message& m) { return m.GetReflection(); };
  if (field->is_repeated()) {
    if (field->message_type() != nullptr) {
      add([=](Message& m) { reflection(m)->AddMessage(&m, field); });
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      add([=](Message& m) { reflection(m)->AddString(&m, field, ""); });
    } else {
      add([=](Message& m) { reflection(m)->AddUInt32(&m, field, 4294967295u); });
    }
    return values;
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      for (const uint32_t value : {0u, 3u, 4294967295u}) {
        add([=](Message& m) { reflection(m)->SetUInt32(&m, field, value); });
      }
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      add([=](Message& m) { reflection(m)->SetUInt64(&m, field, UINT64_MAX); });
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      for (const float value : {std::nanf(""), HUGE_VALF, -3.5f, 0.0f, 0.75f}) {
        add([=](Message& m) { reflection(m)->SetFloat(&m, field, value); });
      }
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      add([=](Message& m) { reflection(m)->SetBool(&m, field, true); });
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      for (const char* value : {"", "a\xE2\x82\xAC \"\\\n/?&=%+"}) {
        add([=](Message& m) { reflection(m)->SetString(&m, field, value); });
      }
      break;
    default:
      ADD_FAILURE() << "no values to try in " << field->full_name();
  }
  return values;
}

// A request of each type that is answered, and quickly.
const std::map<std::string, const char*>& GoodRequests() {
  static const std::map<std::string, const char*> good = {
      {"GenerateRequest",
       "tokens { ids: 5 ids: 9 ids: 6 } sampling { temperature: 0 seed: 7 } "
       "limits { max_tokens: 6 ignore_eos: true }"},
      {"ChatRequest",
       "messages { role: 'user' content: 'a b' } sampling { temperature: 0 seed: 7 } "
       "limits { max_tokens: 6 ignore_eos: true } logprobs: 2"},
      {"EmbedRequest", "inputs { text: 'a b' } inputs { tokens { ids: 5 ids: 9 } }"},
      {"TokenizeRequest", "text: 'a b' add_bos: true"},
      {"DetokenizeRequest", "ids: 5 ids: 6"},
  };
  return good;
}

std::vector<std::unique_ptr<Message>> Requests(const Descriptor& type) {
  std::vector<std::unique_ptr<Message>> requests;
  requests.push_back(New(type));  // empty
  std::unique_ptr<Message> good = New(type);
  const auto found = GoodRequests().find(type.name());
  if (found != GoodRequests().end()) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(found->second, good.get()));
  }
  Path path;
  std::vector<Path> leaves;
  FindLeaves(type, path, leaves);
  for (const Path& leaf : leaves) {
    for (const auto& set : Values(leaf.back())) {
      requests.push_back(New(type));
      Message* at = requests.back().get();
      at->CopyFrom(*good);
      for (size_t i = 0; i + 1 < leaf.size(); ++i) {
        at = at->GetReflection()->MutableMessage(at, leaf[i]);
      }
      set(*at);
    }
  }
  requests.push_back(std::move(good));
  return requests;
}

std::string Encode(const std::string& text, const char* safe) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(safe, c)) {
      out.push_back(c);
    } else {
      out += absl::StrFormat("%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// The request as REST's: what the template binds in the path, the rest in the body or the query.
struct RestRequest {
  std::string target, body;
};
RestRequest ToRest(const RestBinding& binding, const Message& request) {
  std::unique_ptr<Message> rest(request.New());
  rest->CopyFrom(request);
  RestRequest result{binding.path_template, ""};
  for (const PathTemplate::Variable& variable : binding.path.variables()) {
    const FieldDescriptor* field = rest->GetDescriptor()->FindFieldByName(variable.field_path);
    const size_t begin = result.target.find('{');
    const size_t end = result.target.find('}');
    result.target.replace(begin, end + 1 - begin,
                          Encode(rest->GetReflection()->GetString(*rest, field), "-_.~/"));
    rest->GetReflection()->ClearField(rest.get(), field);
  }
  if (binding.body == "*") {
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(*rest, &result.body).ok());
    return result;
  }
  EXPECT_EQ(binding.body, "") << "a body that is one field: none is in the API yet";
  std::vector<const FieldDescriptor*> fields;
  rest->GetReflection()->ListFields(*rest, &fields);
  std::string separator = "?";
  for (const FieldDescriptor* field : fields) {
    EXPECT_EQ(field->message_type(), nullptr) << "a message in a query: none is in the API yet";
    const int count = field->is_repeated() ? rest->GetReflection()->FieldSize(*rest, field) : 1;
    for (int i = 0; i < count; ++i) {
      std::string value;
      google::protobuf::TextFormat::Printer().PrintFieldValueToString(
          *rest, field, field->is_repeated() ? i : -1, &value);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        value = rest->GetReflection()->GetString(*rest, field);
      }
      result.target += separator + field->json_name() + "=" + Encode(value, "-_.~");
      separator = "&";
    }
  }
  return result;
}

class RestEqualityTest : public testing::RestFixture {
 protected:
  Outcome CallGrpc(const google::protobuf::MethodDescriptor& method, const Message& request) {
    grpc::GenericStub stub(CreateChannel(server_->targets()[0]));
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(
        &context, "/" + method.service()->full_name() + "/" + method.name(), &queue);
    const auto done = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    done();
    const grpc::Slice slice(request.SerializeAsString());
    call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    done();
    Outcome outcome{.messages = New(*method.output_type())};
    while (true) {
      grpc::ByteBuffer buffer;
      call->Read(&buffer, nullptr);
      if (!done()) break;
      grpc::Slice bytes;
      EXPECT_TRUE(buffer.DumpToSingleSlice(&bytes).ok());
      const std::unique_ptr<Message> message = New(*method.output_type());
      EXPECT_TRUE(message->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
      Fold(*message, *outcome.messages);
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    done();
    outcome.code = status.error_code();
    outcome.error = status.error_message();
    return outcome;
  }

  Outcome CallRest(const RestBinding& binding, const Message& request, bool events) {
    const RestRequest rest = ToRest(binding, request);
    auto client = Connect();
    const HttpTestResponse response = client.Call(binding.http_method, rest.target, rest.body,
                                                  events ? "Accept: text/event-stream\r\n" : "");
    Outcome outcome{.messages = New(*binding.method->output_type())};
    EXPECT_TRUE(response.complete);
    const bool streaming = binding.method->server_streaming();
    if (response.status != 200) {
      TakeError(response.body, outcome);
      EXPECT_EQ(response.status, HttpStatusOf(static_cast<absl::StatusCode>(outcome.code)));
      return outcome;
    }
    EXPECT_EQ(response.Header("content-type"), !streaming ? "application/json"
                                               : events   ? "text/event-stream"
                                                          : "application/x-ndjson");
    const std::vector<std::string> lines = absl::StrSplit(response.body, '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      const std::string json = streaming && events ? line.substr(6) : line;
      EXPECT_EQ(absl::StartsWith(line, "data: "), streaming && events) << line;
      const std::unique_ptr<Message> message = New(*binding.method->output_type());
      EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, message.get()).ok()) << json;
      Fold(*message, *outcome.messages);
    }
    return outcome;
  }

  static void TakeError(const std::string& body, Outcome& outcome) {
    const nlohmann::json error = nlohmann::json::parse(body);
    outcome.code = error["code"];
    outcome.error = error["message"];
  }
};

TEST_P(RestEqualityTest, EveryMethodAnswersTheSameOverBoth) {
  StartRest();
  const auto& service = *v1::GenerateRequest::descriptor()->file()->service(0);
  int num_good = 0;
  int num_errors = 0;
  for (int i = 0; i < service.method_count(); ++i) {
    const auto& method = *service.method(i);
    const auto bindings = ReadBindings(method);
    ASSERT_TRUE(bindings.ok()) << bindings.status();
    EXPECT_FALSE(bindings->empty()) << method.full_name() << " has no google.api.http annotation";
    for (const auto& request : Requests(*method.input_type())) {
      Outcome over_grpc = CallGrpc(method, *request);
      DropTimes(*over_grpc.messages);
      ++(over_grpc.code == 0 ? num_good : num_errors);
      for (const RestBinding& binding : *bindings) {
        for (const bool events : {false, true}) {
          if (events && !method.server_streaming()) continue;
          SCOPED_TRACE(absl::StrFormat("%s %s: %s", binding.http_method, binding.path_template,
                                       request->ShortDebugString()));
          const Outcome over_rest = CallRest(binding, *request, events);
          DropTimes(*over_rest.messages);
          EXPECT_EQ(over_rest.code, over_grpc.code) << over_rest.error << over_grpc.error;
          EXPECT_EQ(over_rest.error, over_grpc.error);
          google::protobuf::util::MessageDifferencer differences;
          std::string report;
          differences.ReportDifferencesToString(&report);
          EXPECT_TRUE(differences.Compare(*over_grpc.messages, *over_rest.messages)) << report;
        }
      }
    }
  }
  EXPECT_GT(num_good, 20);
  EXPECT_GT(num_errors, 20);
}

INSTANTIATE_TEST_SUITE_P(Ways, RestEqualityTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "FromTheEngine" : "ByCalls"; });

}  // namespace
}  // namespace tandem::gateway
