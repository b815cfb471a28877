// Traces and logs of the services as they are, on the demo model with the emulated NPU: what a
// trace says of a request is what the cluster counted, and no text gets into either.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/paths.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/trace/testing/fake_collector.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

using gateway::testing::AttributeOf;
using gateway::testing::FakeCollector;
using gateway::testing::HttpTestClient;
using gateway::testing::HttpTestResponse;
using nlohmann::json;
using otlp::v1::Span;

constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class ClusterTraceTest : public ClusterFixture {
 protected:
  // The port in the gateway's log.
  uint16_t HttpPort() const {
    const std::string log = LogOf("gateway");
    const std::string before = "http://127.0.0.1:";
    const size_t at = log.find(before);
    EXPECT_NE(at, std::string::npos) << log;
    return static_cast<uint16_t>(std::stoi(log.substr(at + before.size())));
  }

  // Generates over gRPC with a traceparent; the metadata of the answer.
  std::multimap<std::string, std::string> GenerateTraced(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", kParent);
    context.AddMetadata("tracestate", "vendor=1");
    auto reader = gateway().Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::multimap<std::string, std::string> metadata;
    for (const auto& [key, value] : context.GetServerInitialMetadata()) {
      metadata.emplace(std::string(key.data(), key.size()),
                       std::string(value.data(), value.size()));
    }
    return metadata;
  }

  // What `tandem trace` writes.
  json TraceCommand(const std::vector<std::string>& which) {
    const TemporaryDirectory directory;
    const std::string path = directory.path() + "/trace.json";
    std::vector<std::string> arguments = {"trace", "--address", GatewayTarget(), "--out", path};
    arguments.insert(arguments.end(), which.begin(), which.end());
    ChildProcess tandem(BuildPath("bin/tandem"), arguments);
    EXPECT_EQ(tandem.Wait(), 0);
    std::ifstream file(path);
    return json::parse(file);
  }

  // By worker, of the gateway's page for Prometheus.
  std::map<std::string, double> DeviceSeconds() const {
    const std::string page = HttpTestClient(HttpPort()).Call("GET", "/metrics").body;
    std::map<std::string, double> seconds;
    std::istringstream lines(page);
    const std::string name = "tandem_segment_device_seconds_total{worker=\"";
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(name)) continue;
      const size_t quote = line.find('"', name.size());
      seconds[line.substr(name.size(), quote - name.size())] =
          std::stod(line.substr(line.find(' ') + 1));
    }
    return seconds;
  }
};

// A span of a Chrome trace, in nanoseconds.
struct ChromeSpan {
  std::string name, category, lane;
  double begin = 0, end = 0;
  json args;
};

std::vector<ChromeSpan> SpansOf(const json& document) {
  std::map<std::pair<int, int>, std::string> lanes;
  std::vector<ChromeSpan> spans;
  for (const json& event : document.at("traceEvents")) {
    if (event.at("name") == "thread_name") {
      lanes[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
  }
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts").get<double>() * 1e3;
    spans.push_back({event.at("name"), event.at("cat"),
                     lanes.at({event.at("pid"), event.at("tid")}), begin,
                     begin + event.at("dur").get<double>() * 1e3, event.at("args")});
  }
  return spans;
}

std::vector<ChromeSpan> OfCategory(const std::vector<ChromeSpan>& spans, const char* category) {
  std::vector<ChromeSpan> found;
  for (const ChromeSpan& span : spans) {
    if (span.category == category) found.push_back(span);
  }
  return found;
}

// Microseconds with a fraction lose no nanosecond of an hour, but for the last bit.
bool Within(const ChromeSpan& inner, const ChromeSpan& outer) {
  return inner.begin >= outer.begin - 0.01 && inner.end <= outer.end + 0.01;
}

TEST_F(ClusterTraceTest, TheTraceOfARequestIsWhatTheDevicesDidForIt) {
  FakeCollector collector;
  StartCluster(
      {.serve = true, .http = "127.0.0.1:0", .gateway_flags = {"--otlp", collector.url()}});
  const v1::GetStatusResponse before = Status();
  const std::map<std::string, double> device_before = DeviceSeconds();
  v1::GenerateRequest request = GreedyRequest("The capital of France is", 12);
  request.set_request_id("traced-1");
  const auto metadata = GenerateTraced(request);
  const v1::GetStatusResponse after = Status();
  std::map<std::string, double> device_seconds = DeviceSeconds();
  for (const auto& [worker, seconds] : device_before) device_seconds[worker] -= seconds;
  ASSERT_EQ(metadata.count("x-request-id"), 1u);
  EXPECT_EQ(metadata.find("x-request-id")->second, "traced-1");
  const std::string returned = metadata.find("traceparent")->second;
  EXPECT_EQ(returned.substr(0, 36), std::string(kParent).substr(0, 36));
  EXPECT_NE(returned, kParent);

  const auto spans = SpansOf(TraceCommand({"--request", "traced-1"}));
  const auto requests = OfCategory(spans, "request");
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].args.at("trace_id"), kTraceId);
  EXPECT_EQ(requests[0].args.at("span_id"), returned.substr(36, 16));
  EXPECT_EQ(requests[0].args.at("completion_tokens"), 12);
  EXPECT_EQ(SpansOf(TraceCommand({"--last"})).size(), spans.size());

  // Every segment of the plan in every step, once, by its worker.
  const auto steps = OfCategory(spans, "step");
  EXPECT_EQ(steps.size(), after.scheduler().steps() - before.scheduler().steps());
  const auto calls = OfCategory(spans, "call");
  const auto devices = OfCategory(spans, "device");
  std::set<std::pair<uint64_t, uint32_t>> called, computed;
  for (const ChromeSpan& call : calls) {
    called.emplace(call.args.at("step"), call.args.at("segment"));
  }
  std::map<std::string, std::string> lane_of;
  std::map<std::string, double> traced_seconds;
  for (const ChromeSpan& device : devices) {
    computed.emplace(device.args.at("step"), device.args.at("segment"));
    const std::string& worker = after.segments(device.args.at("segment").get<int>()).worker();
    EXPECT_TRUE(device.lane.starts_with(worker + ": ")) << device.lane;
    lane_of[worker] = device.lane;
    traced_seconds[worker] += (device.end - device.begin) * 1e-9;
  }
  EXPECT_EQ(calls.size(), steps.size() * after.segments_size());
  EXPECT_EQ(called.size(), calls.size());
  EXPECT_EQ(computed, called);
  EXPECT_EQ(lane_of.size(), 2u);

  // In one another: device time in its call, calls in their step, steps in a phase of the request.
  for (size_t i = 0; i < calls.size(); ++i) {
    const ChromeSpan& call = calls[i];
    const auto device = std::find_if(devices.begin(), devices.end(), [&](const ChromeSpan& span) {
      return span.args.at("step") == call.args.at("step") &&
             span.args.at("segment") == call.args.at("segment");
    });
    EXPECT_TRUE(Within(*device, call)) << call.name;
    EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [&](const ChromeSpan& step) {
      return step.args.at("step") == call.args.at("step") && Within(call, step);
    })) << call.name;
    if (i > 0) {
      EXPECT_GE(call.begin, calls[i - 1].end - 0.01);
    }
  }
  const auto phases = OfCategory(spans, "phase");
  ASSERT_EQ(phases.size(), 3u);
  for (const ChromeSpan& phase : phases) EXPECT_TRUE(Within(phase, requests[0]));
  for (const ChromeSpan& step : steps) {
    EXPECT_TRUE(Within(step, phases[1]) || Within(step, phases[2])) << step.name;
  }

  // The same sums as the metrics'.  They print six digits or more.
  ASSERT_EQ(device_seconds.size(), 2u);
  for (const auto& [worker, seconds] : device_seconds) {
    EXPECT_GT(seconds, 0.0);
    EXPECT_NEAR(traced_seconds.at(worker), seconds, 1e-4 * seconds) << worker;
  }

  // And the same at the collector.
  const size_t num_spans = requests.size() + phases.size() + steps.size() + calls.size() +
                           devices.size() + OfCategory(spans, "stage").size();
  EXPECT_EQ(num_spans, spans.size());
  ASSERT_TRUE(collector.WaitForSpans(num_spans));
  EXPECT_EQ(collector.spans().size(), num_spans);
  std::map<std::string, Span> by_id;
  std::map<std::string, double> exported_seconds;
  for (const Span& span : collector.spans()) by_id[span.span_id()] = span;
  size_t num_calls = 0;
  for (const Span& span : collector.spans()) {
    num_calls += span.kind() == Span::SPAN_KIND_CLIENT;
    if (span.kind() != Span::SPAN_KIND_SERVER) {
      ASSERT_TRUE(by_id.contains(span.parent_span_id())) << span.name();
      const Span& parent = by_id.at(span.parent_span_id());
      EXPECT_GE(span.start_time_unix_nano(), parent.start_time_unix_nano()) << span.name();
      EXPECT_LE(span.end_time_unix_nano(), parent.end_time_unix_nano()) << span.name();
    }
    if (!span.name().ends_with(" device")) continue;
    exported_seconds[AttributeOf(span, "tandem.worker.name").string_value()] +=
        1e-9 * static_cast<double>(span.end_time_unix_nano() - span.start_time_unix_nano());
  }
  EXPECT_EQ(num_calls, calls.size());
  for (const auto& [worker, seconds] : traced_seconds) {
    EXPECT_NEAR(exported_seconds[worker], seconds, 1e-6 * seconds) << worker;
  }
}

std::vector<json> JsonLines(const std::string& log) {
  std::vector<json> lines;
  std::istringstream stream(log);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

TEST_F(ClusterTraceTest, LogsNameRequestsAndHoldNoText) {
  ASSERT_EQ(::setenv("TANDEM_LOG", "debug", 1), 0);
  StartCluster({.serve = true,
                .http = "127.0.0.1:0",
                .gateway_flags = {"--log-format", "json", "--trace-sample", "1"}});
  ASSERT_EQ(::unsetenv("TANDEM_LOG"), 0);
  const std::string secret = "Zanzibar-Quokka";
  std::vector<std::string> texts = {secret};
  v1::GenerateRequest request = GreedyRequest(secret + ", tell me a story.", 24);
  request.set_request_id("by-grpc");
  texts.push_back(Generate(request).text);
  v1::GenerateRequest wrong = request;
  wrong.mutable_limits()->add_stop(std::string(2000, 'x') + secret);
  EXPECT_FALSE(Generate(wrong).status.ok());
  HttpTestClient client(HttpPort());
  const std::string traced =
      "Content-Type: application/json\r\ntraceparent: " + std::string(kParent) +
      "\r\nX-Request-Id: ";
  const auto post = [&](const std::string& path, const json& body, const std::string& id) {
    return client.Call("POST", path, body.dump(), traced + id + "\r\n");
  };
  const json chat = {{"model", "demo.Q8_0.gguf"},
                     {"messages", json::array({json{{"role", "user"}, {"content", secret}}})},
                     {"max_tokens", 8}};
  const HttpTestResponse openai = post("/v1/chat/completions", chat, "by-openai");
  EXPECT_EQ(openai.status, 200) << openai.body;
  EXPECT_EQ(openai.Header("x-request-id"), "by-openai");
  EXPECT_EQ(openai.Header("traceparent").substr(0, 36), std::string(kParent).substr(0, 36));
  texts.push_back(json::parse(openai.body)["choices"][0]["message"]["content"]);
  EXPECT_EQ(
      post("/tandem/v1/generate", {{"text", secret}, {"limits", {{"maxTokens", 4}}}}, "by-rest")
          .status,
      200);
  EXPECT_EQ(post("/api/generate",
                 {{"model", "demo.Q8_0.gguf"},
                  {"prompt", secret},
                  {"stream", false},
                  {"options", {{"num_predict", 4}}}},
                 "by-ollama")
                .status,
            200);
  EXPECT_EQ(client.Call("GET", "/tandem/v1/tokenize?text=" + secret).status, 200);
  EXPECT_EQ(client.Call("POST", "/v1/chat/completions", "{\"messages\": " + secret).status, 400);
  EXPECT_EQ(post("/v1/completions", {{"prompt", secret}, {"temperature", secret}}, "bad").status,
            400);

  // A request's line is written once its answer has been sent.
  EXPECT_TRUE(Eventually([&] {
    const std::string log = LogOf("gateway");
    const std::vector<std::string> parts = absl::StrSplit(log, R"("event":"request")");
    return parts.size() == 5 && log.ends_with('\n');
  }));
  std::map<std::string, json> requests;
  for (const char* service : {"gateway", "gpu_worker", "npu_worker", "loader"}) {
    const std::string log = LogOf(service);
    EXPECT_FALSE(log.empty()) << service;
    for (const std::string& text : texts) {
      if (text.size() < 8) continue;
      EXPECT_EQ(log.find(text), std::string::npos) << service << ": " << text;
    }
    for (const json& line : JsonLines(log)) {
      for (const char* key : {"time", "level", "service", "event"}) {
        EXPECT_TRUE(line.contains(key)) << line;
      }
      if (line["event"] == "request") requests[line["request_id"]] = line;
      if (line["event"] == "http") {
        EXPECT_TRUE(line["status"].is_number()) << line;
        // Pages poll: at level info their log would be of nothing else.
        const bool looks = line["method"] == "GET" && line["status"] < 400;
        EXPECT_EQ(line["level"], looks ? "debug" : "info") << line;
      }
      if (line["event"] == "http" && line["path"] == "/v1/chat/completions") {
        EXPECT_TRUE(line.contains("request_id"));
      }
    }
  }
  ASSERT_EQ(requests.size(), 4u);
  for (const char* api : {"grpc", "openai", "rest", "ollama"}) {
    const json& line = requests.at("by-" + std::string(api));
    EXPECT_EQ(line["api"], api);
    EXPECT_TRUE(line["outcome"] == "length" || line["outcome"] == "stop") << line;
    EXPECT_EQ(line.contains("trace_id"), true) << line;
    if (std::string(api) != "grpc") {
      EXPECT_EQ(line["trace_id"], kTraceId);
    }
    for (const char* key : {"prompt_tokens", "completion_tokens", "seconds", "queue_seconds",
                            "first_token_seconds"}) {
      ASSERT_TRUE(line.contains(key)) << line;
      EXPECT_TRUE(line[key].is_number()) << line;
    }
  }
  // The workers know which span each call belongs to.
  const std::string worker = LogOf("npu_worker");
  EXPECT_NE(worker.find("\"traceparent\":\"00-" + std::string(kTraceId)), std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
