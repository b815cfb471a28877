#include "tools/tandem/trace/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kGateway = 1;  // processes
constexpr int kDevices = 2;
constexpr int kSteps = 1;  // threads of the gateway's; calls and then runs come behind
constexpr int kFirstRun = 10;
// Behind the lanes of any request's choices.
constexpr int kFirstStage = 1000;
constexpr int kFirstReplica = 2000;
constexpr int kFirstDraft = 3000;

// Of steps; that of their calls follows.
int StepsLane(uint32_t replica, bool drafts) {
  if (replica == 0 && !drafts) return kSteps;
  return (drafts ? kFirstDraft : kFirstReplica) + 2 * static_cast<int>(replica);
}

class Writer {
 public:
  explicit Writer(int64_t zero_ns) : zero_ns_(zero_ns) {}

  void Name(int process, const std::string& name) {
    events_.push_back(
        {{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
    events_.push_back({{"ph", "M"},
                       {"name", "process_sort_index"},
                       {"pid", process},
                       {"args", {{"sort_index", process}}}});
  }
  void Name(int process, int lane, const std::string& name, int order) {
    events_.push_back({{"ph", "M"},
                       {"name", "thread_name"},
                       {"pid", process},
                       {"tid", lane},
                       {"args", {{"name", name}}}});
    events_.push_back({{"ph", "M"},
                       {"name", "thread_sort_index"},
                       {"pid", process},
                       {"tid", lane},
                       {"args", {{"sort_index", order}}}});
  }
  void Span(int process, int lane, const std::string& name, const char* category, int64_t begin_ns,
            int64_t end_ns, Json args) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", category},
                       {"pid", process},
                       {"tid", lane},
                       {"ts", 1e-3 * static_cast<double>(begin_ns - zero_ns_)},
                       {"dur", 1e-3 * static_cast<double>(std::max<int64_t>(end_ns - begin_ns, 0))},
                       {"args", std::move(args)}});
  }
  Json Take() && { return std::move(events_); }

 private:
  const int64_t zero_ns_;
  Json events_ = Json::array();
};

void WriteRun(const v1::GetTraceResponse& trace, int index, Writer& writer) {
  const v1::TraceRun& run = trace.runs(index);
  const int lane = kFirstRun + index;
  writer.Name(kGateway, lane,
              trace.runs_size() == 1 ? "request" : absl::StrFormat("request, choice %d", index),
              index - trace.runs_size());
  writer.Span(kGateway, lane, run.operation() + " " + trace.model(), "request", run.submitted_ns(),
              run.ended_ns(),
              {{"request_id", trace.request_id()},
               {"trace_id", trace.trace_id()},
               {"span_id", run.span_id()},
               {"api", run.api()},
               {"outcome", run.outcome()},
               {"prompt_tokens", run.prompt_tokens()},
               {"cached_tokens", run.cached_tokens()},
               {"completion_tokens", run.completion_tokens()},
               {"steps_left_out", run.steps_left_out()}});
  const auto phase = [&](const char* name, int64_t begin_ns, int64_t end_ns) {
    if (begin_ns == 0) return;
    end_ns = end_ns == 0 ? run.ended_ns() : std::min(end_ns, run.ended_ns());
    writer.Span(kGateway, lane, name, "phase", begin_ns, end_ns, Json::object());
  };
  phase("queue", run.submitted_ns(), run.started_ns());
  phase("prompt", run.started_ns(), run.decode_begin_ns());
  phase("decode", run.decode_begin_ns(), 0);
}

// What happened to the request's pictures: a lane for each stage.
void WritePictures(const v1::GetTraceResponse& trace, Writer& writer) {
  std::map<std::string, int> lanes;
  // Choices share them.
  for (const v1::TracePicture& picture : trace.runs(0).pictures()) {
    const auto [lane, added] =
        lanes.emplace(picture.stage(), kFirstStage + static_cast<int>(lanes.size()));
    if (added) writer.Name(kGateway, lane->second, "pictures: " + picture.stage(), 0);
    writer.Span(kGateway, lane->second, picture.stage(), "picture", picture.begin_ns(),
                picture.end_ns(), {{"picture", picture.picture()}, {"batch", picture.batch()}});
  }
}

// A call's time on its device.
struct DeviceSpan {
  const v1::TraceStep* step = nullptr;
  const v1::TraceSegment* segment = nullptr;
  const v1::TracePlannedSegment* planned = nullptr;
  int64_t end_ns = 0;
  int64_t begin_ns() const { return end_ns - static_cast<int64_t>(segment->device_ns()); }
};

void WriteDevice(int lane, std::vector<DeviceSpan>& spans, Writer& writer) {
  // A draft's step may end before one of the model's that began earlier.
  std::ranges::stable_sort(spans, {}, &DeviceSpan::end_ns);
  for (size_t i = spans.size(); i-- > 1;) {
    spans[i - 1].end_ns = std::min(spans[i - 1].end_ns, spans[i].begin_ns());
  }
  for (const DeviceSpan& span : spans) {
    const auto& stages = span.segment->stages();
    Json args = {{"step", span.step->step_id()},
                 {"segment", span.segment->index()},
                 {"stages", span.planned->stages()},
                 {"device_ns", span.segment->device_ns()}};
    const double watts = span.segment->device_watts();
    if (watts > 0.0) args["device_watts"] = watts;
    writer.Span(kDevices, lane, span.planned->kinds(), "device", span.begin_ns(), span.end_ns,
                std::move(args));
    if (stages.size() < 2) continue;
    int64_t begin_ns = span.begin_ns();
    for (const v1::TraceStageTime& stage : stages) {
      const int64_t end_ns = begin_ns + static_cast<int64_t>(stage.device_ns());
      writer.Span(kDevices, lane, stage.stage(), "stage", begin_ns, std::min(end_ns, span.end_ns),
                  {{"device_ns", stage.device_ns()}});
      begin_ns = std::min(end_ns, span.end_ns);
    }
  }
}

}  // namespace

std::string ChromeTrace(const v1::GetTraceResponse& trace) {
  int64_t zero_ns = trace.runs(0).submitted_ns();
  for (const v1::TraceRun& run : trace.runs()) zero_ns = std::min(zero_ns, run.submitted_ns());
  Writer writer(zero_ns);
  writer.Name(kGateway, "gateway");
  writer.Name(kDevices, "devices");
  for (int r = 0; r < trace.runs_size(); ++r) WriteRun(trace, r, writer);
  WritePictures(trace, writer);
  std::set<std::pair<uint32_t, bool>> lanes = {{0, false}};
  for (const v1::TraceStep& step : trace.steps()) lanes.insert({step.replica(), step.drafts()});
  int order = 0;
  for (const auto& [replica, drafts] : lanes) {
    const std::string of = replica == 0 ? "" : absl::StrFormat(" of replica %d", replica);
    const std::string kind = drafts ? "draft " : "";
    const int lane = StepsLane(replica, drafts);
    writer.Name(kGateway, lane, kind + "steps" + of, ++order);
    writer.Name(kGateway, lane + 1, kind + "calls" + of, ++order);
  }
  std::map<std::string, std::vector<DeviceSpan>> devices;  // by worker
  std::map<std::string, std::string> names;
  for (const v1::TraceStep& step : trace.steps()) {
    const int lane = StepsLane(step.replica(), step.drafts());
    Json args = {{"step", step.step_id()},
                 {"replica", step.replica()},
                 {"decode_rows", step.decode_rows()},
                 {"prompt_rows", step.prompt_rows()},
                 {"drafted_rows", step.drafted_rows()},
                 {"requests", step.requests()},
                 {"queued", step.queued()},
                 {"span_id", step.span_id()}};
    if (!step.error().empty()) args["error"] = step.error();
    const char* const name = step.drafts() ? "draft step" : "step";
    writer.Span(kGateway, lane, absl::StrFormat("%s %d", name, step.step_id()), "step",
                step.begin_ns(), step.end_ns(), std::move(args));
    const v1::TracePlan& plan = trace.plans(static_cast<int>(step.plan()));
    for (const v1::TraceSegment& segment : step.segments()) {
      const v1::TracePlannedSegment& planned = plan.segments(static_cast<int>(segment.index()));
      const v1::TraceWorker& worker = plan.workers(static_cast<int>(planned.worker()));
      writer.Span(kGateway, lane + 1, worker.name() + " " + planned.kinds(), "call",
                  segment.sent_ns(), segment.answered_ns(),
                  {{"step", step.step_id()},
                   {"segment", segment.index()},
                   {"stages", planned.stages()},
                   {"worker_ns", segment.worker_ns()},
                   {"device_ns", segment.device_ns()}});
      names[worker.name()] = absl::StrFormat("%s: %s%s", worker.name(), worker.device(),
                                             !worker.emulated()       ? ""
                                             : worker.kind() == "gpu" ? " (software)"
                                                                      : " (emulated)");
      devices[worker.name()].push_back({&step, &segment, &planned, segment.device_end_ns()});
    }
  }
  int lane = 0;
  for (auto& [worker, spans] : devices) {
    ++lane;
    writer.Name(kDevices, lane, names[worker], lane);
    WriteDevice(lane, spans, writer);
  }
  const Json document = {{"displayTimeUnit", "ns"},
                         {"otherData",
                          {{"request_id", trace.request_id()},
                           {"trace_id", trace.trace_id()},
                           {"begin_unix_ns", absl::StrFormat("%d", zero_ns)}}},
                         {"traceEvents", std::move(writer).Take()}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tandem
