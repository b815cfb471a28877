// Traces of requests that a real engine runs on the toy model.
#include "services/gateway/trace/tracer.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/common/testing/eventually.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/trace/testing/fake_collector.h"
#include "services/gateway/trace/trace_response.h"
#include "services/gateway/trace/tracing.h"

namespace tandem::gateway {
namespace {

using otlp::v1::Span;
using testing::AttributeOf;
using testing::FakeCollector;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::StreamReader;

constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

EngineOptions Observed(EngineObserver& observer) {
  return {.max_sequences = 4,
          .max_rows = 64,
          .chunk_rows = 16,
          .max_waiting = 100,
          .min_recovery_pause = absl::Milliseconds(1),
          .observers = {&observer}};
}

std::unique_ptr<Tracing> MakeTracing(const TraceFlags& flags) {
  auto tracing = Tracing::Create(flags, "toy", "1.0");
  EXPECT_TRUE(tracing.ok()) << tracing.status();
  return *std::move(tracing);
}

// Runs all requests to their ends in one engine.  Its first step waits until all have come.
void RunAll(Tracing& tracing, std::vector<EngineRequest> requests, FakeExecutorOptions fake = {}) {
  std::promise<void> submitted;
  fake.on_step = [there = submitted.get_future().share(),
                  on_step = fake.on_step](const StepBatch& step) {
    there.wait();
    return on_step ? on_step(step) : absl::OkStatus();
  };
  auto engine = testing::MakeEngine(std::move(fake), Observed(tracing.tracer()));
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (EngineRequest& request : requests) {
    readers.push_back(std::make_unique<StreamReader>());
    ASSERT_TRUE(engine->Submit(std::move(request), readers.back()->stream()).ok());
  }
  submitted.set_value();
  for (const auto& reader : readers) reader->ReadToEnd();
}

// The spans at a collector when all have been sent.
std::vector<Span> AllSpans(const Tracing& tracing, const FakeCollector& collector) {
  EXPECT_TRUE(
      tandem::testing::Eventually([&] { return tracing.exporter()->counts().queued == 0; }));
  return collector.spans();
}

EngineRequest Traced(uint32_t seed, uint32_t prompt_len, uint32_t max_tokens,
                     const TraceSampler& sampler, const char* parent = "", const char* state = "") {
  EngineRequest request = GreedyRequest(seed, prompt_len, max_tokens);
  request.trace = sampler.Begin(parent, state);
  return request;
}

std::map<std::string, Span> ById(const std::vector<Span>& spans) {
  std::map<std::string, Span> by_id;
  for (const Span& span : spans) {
    EXPECT_EQ(span.trace_id().size(), 16u);
    EXPECT_EQ(span.span_id().size(), 8u);
    EXPECT_TRUE(by_id.emplace(span.span_id(), span).second) << "two spans of one id";
  }
  return by_id;
}

std::vector<Span> Named(const std::vector<Span>& spans, const std::string& name) {
  std::vector<Span> found;
  for (const Span& span : spans) {
    if (span.name() == name) found.push_back(span);
  }
  return found;
}

TEST(TracerTest, ARequestIsATreeOfSpans) {
  FakeCollector collector;
  const auto tracing = MakeTracing({.otlp = collector.url()});
  RunAll(*tracing, {Traced(3, 40, 5, tracing->sampler(), kParent, "a=1")});
  const std::vector<Span> spans = AllSpans(*tracing, collector);
  const auto by_id = ById(spans);
  const auto roots = Named(spans, "text_completion toy");
  ASSERT_EQ(roots.size(), 1u);
  const Span& root = roots[0];
  EXPECT_EQ(root.kind(), Span::SPAN_KIND_SERVER);
  EXPECT_EQ(root.parent_span_id(), std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
  EXPECT_EQ(root.trace_state(), "a=1");
  EXPECT_EQ(AttributeOf(root, "gen_ai.request.model").string_value(), "toy");
  EXPECT_EQ(AttributeOf(root, "gen_ai.usage.input_tokens").int_value(), 40);
  EXPECT_EQ(AttributeOf(root, "gen_ai.usage.cache_read.input_tokens").int_value(), 0);
  EXPECT_EQ(AttributeOf(root, "gen_ai.usage.output_tokens").int_value(), 5);
  EXPECT_EQ(AttributeOf(root, "gen_ai.response.id").string_value(), "r3");
  EXPECT_EQ(
      AttributeOf(root, "gen_ai.response.finish_reasons").array_value().values(0).string_value(),
      "length");
  EXPECT_EQ(Named(spans, "queue").size(), 1u);
  EXPECT_EQ(Named(spans, "prompt").size(), 1u);
  EXPECT_EQ(Named(spans, "decode").size(), 1u);
  // Three steps of the prompt, the last of them with the first token, and four more.
  EXPECT_EQ(Named(spans, "step").size(), 7u);
  EXPECT_EQ(Named(spans, "toy0 device").size(), 7u);
  for (const Span& span : spans) {
    EXPECT_EQ(span.trace_id(), root.trace_id());
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano());
    if (span.span_id() == root.span_id()) continue;
    ASSERT_TRUE(by_id.contains(span.parent_span_id())) << span.name();
    const Span& parent = by_id.at(span.parent_span_id());
    if (span.name().ends_with("device")) continue;  // the toy's device time is made up
    EXPECT_GE(span.start_time_unix_nano(), parent.start_time_unix_nano()) << span.name();
    EXPECT_LE(span.end_time_unix_nano(), parent.end_time_unix_nano()) << span.name();
  }
  for (const Span& device : Named(spans, "toy0 device")) {
    EXPECT_EQ(device.end_time_unix_nano() - device.start_time_unix_nano(), 1000u);
    const Span& call = by_id.at(device.parent_span_id());
    EXPECT_EQ(call.kind(), Span::SPAN_KIND_CLIENT);
    EXPECT_EQ(AttributeOf(call, "rpc.method").string_value(), "Execute");
    EXPECT_EQ(by_id.at(call.parent_span_id()).name(), "step");
  }
}

TEST(TracerTest, TheWaitForPicturesIsAPartOfTheRequest) {
  FakeCollector collector;
  const auto tracing = MakeTracing({.otlp = collector.url()});
  EngineRequest request = Traced(3, 20, 2, tracing->sampler(), kParent);
  const absl::Time now = absl::Now();
  request.pictures_begin = now - absl::Milliseconds(300);
  request.pictures_end = now - absl::Milliseconds(100);
  const auto from = [&](int milliseconds) { return now - absl::Milliseconds(milliseconds); };
  request.picture_times = std::make_shared<const PictureTimes>(PictureTimes{
      {.stage = PictureStage::kFetch, .picture = 1, .begin = from(300), .end = from(250)},
      {.stage = PictureStage::kDecode, .picture = 0, .begin = from(250), .end = from(220)},
      {.stage = PictureStage::kPrepare, .picture = 0, .begin = from(220), .end = from(210)},
      {.stage = PictureStage::kEncode,
       .picture = 0,
       .num_pictures = 2,
       .begin = from(200),
       .end = from(110)}});
  RunAll(*tracing, {request, Traced(4, 20, 2, tracing->sampler(), kParent)});
  const std::vector<Span> spans = AllSpans(*tracing, collector);
  const auto pictures = Named(spans, "pictures");
  ASSERT_EQ(pictures.size(), 1u);
  EXPECT_EQ(pictures[0].end_time_unix_nano() - pictures[0].start_time_unix_nano(), 200'000'000u);
  const auto by_id = ById(spans);
  for (const PictureTime& time : *request.picture_times) {
    const auto stages = Named(spans, PictureStageName(time.stage));
    // The phase of answers has the name "decode" too, under the request's own span.
    const auto stage = std::ranges::find_if(
        stages, [&](const Span& span) { return span.parent_span_id() == pictures[0].span_id(); });
    ASSERT_NE(stage, stages.end()) << PictureStageName(time.stage);
    EXPECT_EQ(stage->start_time_unix_nano(), static_cast<uint64_t>(absl::ToUnixNanos(time.begin)));
    EXPECT_EQ(stage->end_time_unix_nano(), static_cast<uint64_t>(absl::ToUnixNanos(time.end)));
    EXPECT_EQ(AttributeOf(*stage, "tandem.picture.index").int_value(), time.picture);
    if (time.stage != PictureStage::kEncode) continue;
    EXPECT_EQ(AttributeOf(*stage, "tandem.picture.count").int_value(), 2);
  }
  v1::GetTraceResponse kept;
  FillTrace(tracing->ring().Find("r3"), kept);
  ASSERT_EQ(kept.runs(0).pictures_size(), 4);
  EXPECT_EQ(kept.runs(0).pictures(0).stage(), "fetch");
  EXPECT_EQ(kept.runs(0).pictures(0).picture(), 1u);
  EXPECT_EQ(kept.runs(0).pictures(3).stage(), "encode");
  EXPECT_EQ(kept.runs(0).pictures(3).batch(), 2u);
  EXPECT_EQ(kept.runs(0).pictures(3).end_ns(), absl::ToUnixNanos(from(110)));
  const Span& root = by_id.at(pictures[0].parent_span_id());
  EXPECT_EQ(root.start_time_unix_nano(), pictures[0].start_time_unix_nano());
  EXPECT_GE(AttributeOf(root, "tandem.time_to_first_token.seconds").double_value(), 0.3);
  for (const Span& queue : Named(spans, "queue")) {
    if (queue.parent_span_id() != root.span_id()) continue;
    EXPECT_EQ(queue.start_time_unix_nano(), pictures[0].end_time_unix_nano());
  }
}

TEST(TracerTest, SpansOfPicturesAreBounded) {
  FakeCollector collector;
  const auto tracing = MakeTracing({.otlp = collector.url()});
  EngineRequest request = Traced(3, 20, 2, tracing->sampler(), kParent);
  const absl::Time now = absl::Now();
  request.pictures_begin = now - absl::Milliseconds(300);
  request.pictures_end = now;
  request.picture_times = std::make_shared<const PictureTimes>(
      kMaxPictureSpans + 50,
      PictureTime{
          .stage = PictureStage::kPrepare, .begin = now - absl::Milliseconds(9), .end = now});
  RunAll(*tracing, {request});
  EXPECT_EQ(Named(AllSpans(*tracing, collector), "prepare").size(), kMaxPictureSpans);
}

TEST(TracerTest, AStepIsLinkedToTheOtherRequestsItServes) {
  FakeCollector collector;
  const auto tracing = MakeTracing({.otlp = collector.url()});
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(Traced(i, 8, 12, tracing->sampler()));
  requests.push_back(Traced(9, 8, 12, TraceSampler(0.0)));  // not sampled: appears nowhere
  RunAll(*tracing, std::move(requests));
  const std::vector<Span> spans = AllSpans(*tracing, collector);
  const auto by_id = ById(spans);
  std::set<std::string> linked, traces;
  for (const Span& span : spans) traces.insert(span.trace_id());
  EXPECT_EQ(traces.size(), 4u);
  for (const Span& step : Named(spans, "step")) {
    for (const Span::Link& link : step.links()) {
      EXPECT_NE(link.trace_id(), step.trace_id());
      ASSERT_TRUE(by_id.contains(link.span_id()));
      const std::string& phase = by_id.at(link.span_id()).name();
      EXPECT_TRUE(phase == "prompt" || phase == "decode") << phase;
      linked.insert(link.trace_id());
    }
  }
  EXPECT_GE(linked.size(), 3u);
  EXPECT_EQ(Named(spans, "text_completion toy").size(), 4u);
}

TEST(TracerTest, KeepsEveryRequestsStepsWhateverIsSampled) {
  const auto tracing = MakeTracing({.otlp = kOtlpOff, .keep = 3});
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 5; ++i) requests.push_back(Traced(i, 20, 6, tracing->sampler()));
  RunAll(*tracing, std::move(requests));
  const std::vector<KeptTrace> last = tracing->ring().Find("");
  ASSERT_EQ(last.size(), 1u);
  uint32_t num_kept = 0;
  for (uint32_t i = 0; i < 5; ++i) {
    const std::string id = "r" + std::to_string(i);
    const std::vector<KeptTrace> found = tracing->ring().Find(id);
    num_kept += static_cast<uint32_t>(found.size());
    if (found.empty()) continue;
    EXPECT_FALSE(found[0].request->trace.own.sampled);
    v1::GetTraceResponse response;
    FillTrace(found, response);
    EXPECT_EQ(response.request_id(), id);
    ASSERT_EQ(response.runs_size(), 1);
    uint32_t prompt_rows = 0, decode_rows = 0;
    for (const v1::TraceShare& share : response.runs(0).shares()) {
      (share.phase() == "prompt" ? prompt_rows : decode_rows) += share.rows();
      EXPECT_LT(share.step(), static_cast<uint32_t>(response.steps_size()));
    }
    EXPECT_EQ(prompt_rows, 20u);
    EXPECT_EQ(decode_rows, 5u) << "the prompt's last row makes the first token";
    EXPECT_EQ(response.plans(0).workers(0).name(), "toy0");
  }
  EXPECT_EQ(num_kept, 3u);
}

// Guesses nothing, and says that it ran a step for each question.
class StepsOfADraft final : public Drafter {
 public:
  std::string_view name() const override { return "draft"; }
  void Observe(const ObserveDraftStep& observe) override { observe_ = observe; }
  void Begin(const DraftSequence& /*sequence*/) override {}
  void Decided(uint64_t /*sequence*/, std::span<const uint32_t> /*tokens*/,
               uint32_t /*num_accepted*/) override {}
  void End(uint64_t /*sequence*/) override {}
  absl::Duration TimeFor(uint32_t /*num_sequences*/, uint32_t /*max_guesses*/) const override {
    return absl::ZeroDuration();
  }
  void Ask(std::span<const DraftRequest> requests) override {
    for (const DraftRequest& request : requests) {
      const DraftStep::Rows rows{.sequence = request.sequence, .num_rows = 2};
      const absl::Time now = absl::Now();
      const SegmentTiming call{.sent = now - absl::Microseconds(9),
                               .answered = now,
                               .worker_ns = 8'000,
                               .device_ns = 7'000};
      observe_({.step_id = ++num_steps_,
                .begin = now - absl::Microseconds(10),
                .end = now,
                .rows = std::span(&rows, 1),
                .segments = std::span(&call, 1),
                .plan = &plan_});
    }
  }
  void Take(absl::Time /*until*/, std::vector<DraftChain>& /*chains*/) override {}

 private:
  ObserveDraftStep observe_;
  uint64_t num_steps_ = 0;
  const Plan plan_{.workers = {{.name = "npu7"}}, .segments = {{.worker = 0}}};
};

TEST(TracerTest, StepsOfADraftAreStepsOfTheRequestsThatTheyGuessedFor) {
  FakeCollector collector;
  const auto tracing = MakeTracing({.otlp = collector.url()});
  EngineOptions options = Observed(tracing->tracer());
  options.make_drafters = [](const Executor&, const Executor::Progress&) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    drafters.push_back(std::make_unique<StepsOfADraft>());
    return drafters;
  };
  {
    auto engine = testing::MakeEngine({.watts = 40.0}, std::move(options));
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(Traced(1, 20, 6, tracing->sampler()), reader.stream()).ok());
    reader.ReadToEnd();
  }
  v1::GetTraceResponse response;
  FillTrace(tracing->ring().Find("r1"), response);
  uint32_t draft_rows = 0, decode_rows = 0;
  for (const v1::TraceShare& share : response.runs(0).shares()) {
    const v1::TraceStep& step = response.steps(static_cast<int>(share.step()));
    EXPECT_EQ(step.drafts(), share.phase() == "draft");
    const std::string& worker = response.plans(static_cast<int>(step.plan())).workers(0).name();
    EXPECT_EQ(worker, step.drafts() ? "npu7" : "toy0");
    for (const v1::TraceSegment& segment : step.segments()) {
      EXPECT_EQ(segment.device_watts(), step.drafts() ? 0.0 : 40.0);
    }
    if (step.drafts()) draft_rows += share.rows();
    if (share.phase() == "decode") decode_rows += share.rows();
  }
  EXPECT_GT(draft_rows, 0u);
  EXPECT_EQ(decode_rows, 5u);
  const std::vector<Span> spans = AllSpans(*tracing, collector);
  const auto by_id = ById(spans);
  const std::vector<Span> drafts = Named(spans, "draft step");
  EXPECT_EQ(drafts.size(), draft_rows / 2);
  for (const Span& span : drafts) EXPECT_TRUE(by_id.contains(span.parent_span_id()));
  EXPECT_EQ(Named(spans, "npu7 device").size(), drafts.size());
}

TEST(TracerTest, TwoChoicesOfOneRequestAreOneTrace) {
  const auto tracing = MakeTracing({.otlp = kOtlpOff});
  std::vector<EngineRequest> requests = {Traced(1, 8, 4, tracing->sampler(), kParent)};
  requests.push_back(requests[0]);
  requests[1].trace = requests[0].trace.Sibling();
  RunAll(*tracing, std::move(requests));
  const std::vector<KeptTrace> found = tracing->ring().Find("r1");
  ASSERT_EQ(found.size(), 2u);
  v1::GetTraceResponse response;
  FillTrace(found, response);
  ASSERT_EQ(response.runs_size(), 2);
  EXPECT_EQ(response.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_NE(response.runs(0).span_id(), response.runs(1).span_id());
  EXPECT_EQ(response.runs(1).parent_span_id(), "00f067aa0ba902b7");
}

TEST(TracerTest, AFailedStepSaysSo) {
  FakeCollector collector;
  const auto tracing = MakeTracing({.otlp = collector.url()});
  FakeExecutorOptions fake;
  fake.queue_steps = false;
  bool failed = false;
  fake.on_step = [&failed](const StepBatch& step) {
    const bool fails = step.header.step_id == 3 && !std::exchange(failed, true);
    return fails ? absl::UnavailableError("a secret of the worker's") : absl::OkStatus();
  };
  RunAll(*tracing, {Traced(1, 8, 6, tracing->sampler())}, std::move(fake));
  const std::vector<Span> spans = AllSpans(*tracing, collector);
  uint32_t num_failed = 0;
  for (const Span& step : Named(spans, "step")) {
    if (step.status().code() != otlp::v1::Status::STATUS_CODE_ERROR) continue;
    ++num_failed;
    EXPECT_EQ(step.status().message(), "UNAVAILABLE");
  }
  EXPECT_EQ(num_failed, 1u);
  EXPECT_EQ(AttributeOf(Named(spans, "text_completion toy").at(0), "tandem.outcome").string_value(),
            "length");
}

TEST(TracerTest, AnEmbeddingIsAnOperationOfItsOwnWithEveryChunkOfItsPrompt) {
  FakeCollector collector;
  const auto tracing = MakeTracing({.otlp = collector.url()});
  EngineRequest request = Traced(3, 40, 0, tracing->sampler());
  request.embedding = true;
  RunAll(*tracing, {request});
  const std::vector<Span> spans = AllSpans(*tracing, collector);
  const auto roots = Named(spans, "embeddings toy");
  ASSERT_EQ(roots.size(), 1u);
  EXPECT_EQ(AttributeOf(roots[0], "gen_ai.usage.input_tokens").int_value(), 40);
  EXPECT_EQ(AttributeOf(roots[0], "tandem.outcome").string_value(), "stop");
  EXPECT_EQ(Named(spans, "step").size(), 3u);  // of 16 rows at most
}

TEST(TracerTest, LongAnswersAreKeptInPart) {
  Tracer tracer({.model = "toy", .max_request_bytes = 4096});
  auto engine = testing::MakeEngine({}, Observed(tracer));
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(Traced(1, 8, 100, TraceSampler()), reader.stream()).ok());
  reader.ReadToEnd();
  engine.reset();
  const std::vector<KeptTrace> found = tracer.ring().Find("r1");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_GT(found[0].steps.size(), 0u);
  EXPECT_LT(found[0].steps.size(), 50u);
  EXPECT_EQ(found[0].steps.size() + found[0].request->steps_left_out, 100u);
}

TEST(TraceRingTest, LetsTheOldestGoWhenBytesRunOut) {
  const auto trace = [](const std::string& id, size_t num_segments) {
    auto request = std::make_shared<TracedRequest>();
    request->request_id = id;
    auto step = std::make_shared<TracedStep>();
    step->segments.resize(num_segments);
    return KeptTrace{std::move(request), {std::move(step)}};
  };
  TraceRing ring(10, 100 * sizeof(TracedSegment));
  ring.Add(trace("a", 30));
  ring.Add(trace("b", 30));
  EXPECT_EQ(ring.Find("a").size(), 1u);
  ring.Add(trace("c", 60));
  EXPECT_TRUE(ring.Find("a").empty());
  EXPECT_EQ(ring.Find("").at(0).request->request_id, "c");
  ring.Add(trace("d", 1000));  // alone, and more than all
  EXPECT_TRUE(ring.Find("c").empty());
  EXPECT_EQ(ring.Find("d").size(), 1u);
  EXPECT_EQ(ring.Find("d", "").size(), 1u);
  EXPECT_TRUE(ring.Find("d", "key:a").empty()) << "another tenant's trace";
  EXPECT_TRUE(ring.Find("", "key:a").empty());
}

TEST(TracingTest, SpansGoWhereFlagsOrTheEnvironmentSay) {
  const auto none = [](const char*) -> const char* { return nullptr; };
  const auto base = [](const char* name) -> const char* {
    return std::string_view(name) == "OTEL_EXPORTER_OTLP_ENDPOINT" ? "http://c:4318" : nullptr;
  };
  const auto traces = [](const char* name) -> const char* {
    return std::string_view(name) == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" ? "http://c/x"
                                                                          : "http://d";
  };
  EXPECT_EQ(OtlpUrl("", none), "");
  EXPECT_EQ(OtlpUrl("http://a/b", base), "http://a/b");
  EXPECT_EQ(OtlpUrl("", base), "http://c:4318/v1/traces");
  EXPECT_EQ(OtlpUrl("", traces), "http://c/x");
  EXPECT_EQ(OtlpUrl("off", traces), "");
  const auto certificates = [](const char* name) -> const char* {
    if (std::string_view(name) == "OTEL_EXPORTER_OTLP_CERTIFICATE") return "otel.pem";
    return std::string_view(name) == "SSL_CERT_FILE" ? "ssl.pem" : nullptr;
  };
  EXPECT_EQ(OtlpCaFile(none), "");
  EXPECT_EQ(OtlpCaFile(certificates), "otel.pem");
  EXPECT_FALSE(Tracing::Create({.otlp = "ftp://c"}, "toy", "1").ok());
  EXPECT_TRUE(MakeTracing({.otlp = "http://127.0.0.1:9/"})->sampler().Begin("", "").own.sampled);
}

}  // namespace
}  // namespace tandem::gateway
