#include "services/common/trace/trace_context.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSpan[] = "00f067aa0ba902b7";

std::string Header(const std::string& version, const std::string& flags) {
  return version + "-" + kTrace + "-" + kSpan + "-" + flags;
}

TEST(TraceContextTest, ReadsAndWritesTheExampleOfTheRules) {
  const auto context = ParseTraceParent(Header("00", "01"));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, (TraceId{0x4bf92f3577b34da6, 0xa3ce929d0e0e4736}));
  EXPECT_EQ(context->span_id, 0x00f067aa0ba902b7u);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(FormatTraceParent(*context), Header("00", "01"));
  EXPECT_EQ(FormatTraceId(context->trace_id), kTrace);
  EXPECT_EQ(FormatSpanId(context->span_id), kSpan);
  EXPECT_FALSE(ParseTraceParent(Header("00", "00"))->sampled);
  // Flags that are not known count for nothing, and are not passed on.
  EXPECT_EQ(FormatTraceParent(*ParseTraceParent(Header("00", "fe"))), Header("00", "00"));
  EXPECT_TRUE(ParseTraceParent(Header("00", "ff"))->sampled);
}

TEST(TraceContextTest, ReadsLaterVersionsAsFarAsItKnowsThem) {
  EXPECT_TRUE(ParseTraceParent(Header("01", "01")).has_value());
  EXPECT_TRUE(ParseTraceParent(Header("fe", "01-what-comes")).has_value());
  EXPECT_TRUE(ParseTraceParent(Header("cc", "01-")).has_value());
  EXPECT_FALSE(ParseTraceParent(Header("cc", "01.what")).has_value());
}

TEST(TraceContextTest, RefusesWhatTheRulesCallInvalid) {
  const std::string good = Header("00", "01");
  EXPECT_FALSE(ParseTraceParent("").has_value());
  EXPECT_FALSE(ParseTraceParent(Header("ff", "01")).has_value());
  EXPECT_FALSE(ParseTraceParent(Header("0x", "01")).has_value());
  EXPECT_FALSE(ParseTraceParent(Header("00", "0.")).has_value());
  EXPECT_FALSE(ParseTraceParent(Header("00", "1")).has_value());
  EXPECT_FALSE(ParseTraceParent(good + "-more").has_value());
  EXPECT_FALSE(ParseTraceParent(good + "-").has_value());
  EXPECT_FALSE(ParseTraceParent(" " + good).has_value());
  EXPECT_FALSE(ParseTraceParent("00-" + std::string(32, '0') + "-" + kSpan + "-01").has_value());
  EXPECT_FALSE(ParseTraceParent(std::string("00-") + kTrace + "-0000000000000000-01").has_value());
  for (const size_t dash : {2u, 35u, 52u}) {
    std::string header = good;
    header[dash] = '_';
    EXPECT_FALSE(ParseTraceParent(header).has_value()) << header;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(ParseTraceParent(good.substr(0, i)).has_value()) << i;
    std::string header = good;
    header[i] = 'F';  // capitals are refused
    EXPECT_FALSE(ParseTraceParent(header).has_value()) << header;
  }
}

TEST(TraceContextTest, PassesOnTraceStateAsItCame) {
  EXPECT_EQ(CheckTraceState("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"),
            "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
  EXPECT_EQ(CheckTraceState(" a=1 ,\t,0t@sys=x y"), "a=1,0t@sys=x y");
  EXPECT_EQ(CheckTraceState(""), "");
  for (const char* bad : {"a", "=1", "a=", "A=1", "0=1", "a=1,a=2", "a=1=2", "a@=1", "@b=1",
                          "a@0=1", "a=\x7f", "a b=1"}) {
    EXPECT_EQ(CheckTraceState(bad), "") << bad;
  }
  EXPECT_EQ(CheckTraceState("a=" + std::string(257, 'x')), "");
  EXPECT_EQ(CheckTraceState(std::string(257, 'k') + "=1"), "");
  std::string members;
  for (int i = 0; i < 32; ++i) members += (i > 0 ? ",k" : "k") + std::to_string(i) + "=v";
  EXPECT_EQ(CheckTraceState(members), members);
  EXPECT_EQ(CheckTraceState(members + ",more=1"), "");
}

TEST(TraceContextTest, TheCallersFlagDecides) {
  const RequestTrace sampled = TraceSampler(0.0).Begin(Header("00", "01"), "a=1");
  EXPECT_TRUE(sampled.own.sampled);
  EXPECT_EQ(FormatTraceId(sampled.own.trace_id), kTrace);
  EXPECT_EQ(FormatSpanId(sampled.parent_span_id), kSpan);
  EXPECT_NE(sampled.own.span_id, sampled.parent_span_id);
  EXPECT_EQ(sampled.state, "a=1");
  EXPECT_FALSE(TraceSampler(1.0).Begin(Header("00", "00"), "").own.sampled);
}

TEST(TraceContextTest, BeginsATraceWhereNoneCame) {
  std::set<uint64_t> spans;
  for (const char* parent : {"", "nonsense"}) {
    const RequestTrace trace = TraceSampler(1.0).Begin(parent, "a=1");
    EXPECT_TRUE(trace.own.trace_id.valid());
    EXPECT_TRUE(trace.own.sampled);
    EXPECT_EQ(trace.parent_span_id, 0u);
    EXPECT_EQ(trace.state, "");  // belongs to the trace that was not taken
    spans.insert(trace.own.span_id);
    const RequestTrace beside = trace.Sibling();
    EXPECT_EQ(beside.own.trace_id, trace.own.trace_id);
    spans.insert(beside.own.span_id);
  }
  EXPECT_EQ(spans.size(), 4u);
}

TEST(TraceContextTest, SamplesTheShareAskedFor) {
  EXPECT_FALSE(TraceSampler(0.0).Begin("", "").own.sampled);
  const TraceSampler quarter(0.25);
  int sampled = 0;
  constexpr int kTraces = 4000;
  for (int i = 0; i < kTraces; ++i) sampled += quarter.Begin("", "").own.sampled;
  // Eight standard deviations of a binomial count: sqrt(4000 / 4 * 3 / 4) = 27.
  EXPECT_NEAR(sampled, kTraces / 4, 8 * 27);
}

}  // namespace
}  // namespace tandem
