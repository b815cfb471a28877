#include "tools/tandem/bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "services/common/testing/status_matchers.h"
#include "tools/tandem/bench/compare.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchReport Report() {
  BenchReport report{.version = "1.2",
                     .model = "gemma, \"small\"",
                     .weight_bytes = 3ull << 30,
                     .parameters = 4300000000,
                     .weight_format = "q4_0",
                     .placement = "everything on gpu0",
                     .options = {.repetitions = 2},
                     .no_energy = "no sensor"};
  report.devices = {{.worker = "gpu0",
                     .device = "Card 9",
                     .read_bytes_per_second = 200e9,
                     .fma_flops_per_second = 8e12,
                     .hop_p50_us = 28,
                     .hop_p99_us = 55}};
  BenchResult prompt{.test = {.is_prompt = true, .tokens = 512},
                     .rates = {1000, 1010},
                     .first_token_seconds = {0.5, 0.52},
                     .seconds = 1,
                     .tokens = 1024,
                     .steps = 2,
                     .bytes = 6e9,
                     .flops = 4e12,
                     .counted_seconds = 1};
  prompt.workers = {{.worker = "gpu0",
                     .device_seconds = 0.9,
                     .round_trip_seconds = 0.95,
                     .calls = 2,
                     .stages = {{"Ffn", 0.6}, {"Qkv", 0.3}}}};
  BenchResult decode = prompt;
  decode.test = {.tokens = 128, .batch = 8, .depth = 4096};
  decode.rates = {100, 102};
  decode.bytes = 100e9;
  decode.steps = 256;
  decode.steps_queued = 240;
  decode.tokens = 2048;
  decode.guesses_verified = 90;
  decode.guesses_accepted = 60;
  report.results = {prompt, decode};
  return report;
}

TEST(BenchReportTest, SpreadIsThatOfASample) {
  EXPECT_EQ(SpreadOf({}).mean, 0);
  EXPECT_EQ(SpreadOf({5}).deviation, 0);
  EXPECT_DOUBLE_EQ(SpreadOf({2, 4, 4, 4, 5, 5, 7, 9}).mean, 5);
  EXPECT_NEAR(SpreadOf({2, 4, 4, 4, 5, 5, 7, 9}).deviation, 2.13809, 1e-5);
}

TEST(BenchReportTest, MarkdownIsWhatPeoplePaste) {
  EXPECT_EQ(
      ReportAsMarkdown(Report()),
      R"(| model               | size     | params | device |           test |            t/s | first token s |
| ------------------- | -------- | ------ | ------ | -------------: | -------------: | ------------: |
| gemma, "small" q4_0 | 3.00 GiB | 4.30 B | Card 9 |          pp512 | 1005.00 ± 7.07 |         0.510 |
| gemma, "small" q4_0 | 3.00 GiB | 4.30 B | Card 9 | tg128@d4096 b8 |  101.00 ± 1.41 |         0.510 |

| test           | ms/step | GB/s | of read | TFLOP/s | of peak | device % | outside us/step | queued % |
| -------------- | ------: | ---: | ------: | ------: | ------: | -------: | --------------: | -------: |
| pp512          | 500.000 | 6.00 |    3.0% |    4.00 |   50.0% |     90.0 |         50000.0 |        0 |
| tg128@d4096 b8 |   3.906 |  100 |   50.0% |    4.00 |   50.0% |     90.0 |           390.6 |       94 |

| ms/step        | worker | calls/step |  device | hop and host |     Qkv |     Ffn |
| -------------- | ------ | ---------: | ------: | -----------: | ------: | ------: |
| pp512          | gpu0   |        1.0 | 450.000 |       25.000 | 150.000 | 300.000 |
| tg128@d4096 b8 | gpu0   |        0.0 |   3.516 |        0.195 |   1.172 |   2.344 |

- gpu0, Card 9: reads 200 GB/s, float32 8.00 TFLOP/s, no matrix units; hop p50 28.0 us, p99 55.0 us
- placement: everything on gpu0; version 1.2
- 2 repetitions, mean ± standard deviation after a warm-up; 0 bytes written for a step
- energy: not reported (no sensor)
- tg128@d4096 b8: 60 of 90 guesses were accepted, 1.00 tokens a step and sequence
)");
}

TEST(BenchReportTest, EnergyIsGivenWhereThereIsAnyAndNeverAsZero) {
  BenchReport report = Report();
  EXPECT_THAT(ReportAsMarkdown(report), Not(HasSubstr("J/token")));
  EXPECT_FALSE(nlohmann::json::parse(ReportAsJson(report))["tests"][0].contains("energy"));
  report.no_energy.clear();
  report.results[1].energy = {{"card", 512}, {"package-0 (RAPL)", 512}};
  EXPECT_THAT(ReportAsMarkdown(report), HasSubstr("| 1024.00 |     0.5 |"));
  EXPECT_THAT(ReportAsMarkdown(report), HasSubstr("|       - |       - |"))
      << "the test that no sensor was read in";
  EXPECT_THAT(ReportAsMarkdown(report), HasSubstr("- energy of card; package-0 (RAPL)\n"));
  EXPECT_EQ(nlohmann::json::parse(ReportAsJson(report))["tests"][1]["joules_per_token"], 0.5);
}

TEST(BenchReportTest, MatrixUnitsAreThePeakWhereThereAreAny) {
  BenchReport report = Report();
  report.devices[0].matrix_flops_per_second = 16e12;
  EXPECT_THAT(ReportAsMarkdown(report), HasSubstr("   25.0% |"));
  report.devices.push_back({.worker = "npu0",
                            .device = "NPU",
                            .emulated = true,
                            .not_measured = "this kind of device is not measured"});
  const std::string text = ReportAsMarkdown(report);
  EXPECT_THAT(text, HasSubstr("| Card 9 + NPU (emulated) |"));
  EXPECT_THAT(text, HasSubstr("- npu0, NPU (emulated): not measured (this kind of device"));
  EXPECT_THAT(text, HasSubstr("   25.0% |")) << "one device has ceilings";
}

TEST(BenchReportTest, JsonAndCsvHoldTheFigures) {
  const auto json = nlohmann::json::parse(ReportAsJson(Report()));
  EXPECT_EQ(json["tests"][1]["test"], "tg128@d4096 b8");
  EXPECT_EQ(json["tests"][1]["samples"], (std::vector<double>{100, 102}));
  EXPECT_EQ(json["tests"][1]["steps_queued"], 240);
  EXPECT_EQ(json["tests"][1]["guesses_accepted"], 60);
  EXPECT_EQ(json["tests"][0]["share_of_peak"], 0.5);
  EXPECT_EQ(json["tests"][0]["workers"][0]["stage_seconds"]["Ffn"], 0.6);
  EXPECT_EQ(json["devices"][0]["matrix_flops_per_second"], nullptr);
  const std::string csv = ReportAsCsv(Report());
  EXPECT_THAT(csv, HasSubstr("\"gemma, \"\"small\"\"\",q4_0,3221225472,4300000000,"
                             "everything on gpu0,pp512,512,1,0,1005,7.07107,2,0.51,1,2,0,"
                             "6e+09,4e+12,0.9,\n"));
}

TEST(BenchReportTest, CsvHasAColumnForEachCellOfPictures) {
  BenchReport report = Report();
  report.options.image_side = 896;
  BenchPictureResult pictures{.test = {.images = 4, .batch = 2}, .rates = {8, 10}};
  pictures.first = {.first_token_seconds = {1, 0.8},
                    .encoded = 16,
                    .decode_seconds = 0.25,
                    .prepare_seconds = 0.125,
                    .encode_seconds = 0.5};
  pictures.again = {.first_token_seconds = {0.1, 0.1}, .cached = 16, .cached_tokens = 4000};
  report.pictures = {pictures};
  const std::string csv = ReportAsCsv(report);
  const std::vector<std::string> lines = absl::StrSplit(csv, '\n');
  ASSERT_EQ(lines.size(), 5u);  // names, two tests, pictures, the end
  EXPECT_TRUE(lines[0].starts_with("model,weight_format,"));
  EXPECT_TRUE(lines[0].ends_with(
      ",joules_per_token,images,image_side,pictures_per_second,pictures_deviation,"
      "again_first_token_seconds,pictures_encoded,again_encoded,again_cached_tokens,"
      "decode_seconds,prepare_seconds,encode_seconds"));
  EXPECT_TRUE(lines[1].ends_with(",0.9" + std::string(12, ','))) << lines[1];
  const std::string about =
      "\"gemma, \"\"small\"\"\",q4_0,3221225472,4300000000,everything on gpu0,";
  EXPECT_EQ(lines[3], about + pictures.test.Name() +
                          ",,2,,,,2,0.9,,,,,,,,4,896,9,1.41421,0.1,16,0,4000,0.25,0.125,0.5");
  const auto num_commas = [](const std::string& line) {
    return std::ranges::count(line, ',') - (line.starts_with('"') ? 1 : 0);
  };
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(num_commas(lines[i]), num_commas(lines[0])) << lines[i];
  EXPECT_EQ(lines[4], "");
}

TEST(CompareTest, SaysWhatDiffersByMoreThanItsSpread) {
  BenchReport now = Report();
  const std::string earlier = ReportAsJson(now);
  now.results[0].rates = {1500, 1520};
  now.results[1].rates = {99, 101};
  ASSERT_OK_AND_ASSIGN(const std::string text, Compare(earlier, "old.json", now));
  EXPECT_EQ(text,
            "test            old.json      now  ratio\n"
            "pp512            1005.00  1510.00  1.502  faster\n"
            "tg128@d4096 b8    101.00   100.00  0.990  within the spread\n");
  now.results[1].rates = {50, 51};
  EXPECT_THAT(*Compare(earlier, "old.json", now), HasSubstr("0.500  slower\n"));
}

TEST(CompareTest, SaysWhatCannotBeCompared) {
  BenchReport now = Report();
  const std::string earlier = ReportAsJson(now);
  now.results.erase(now.results.begin());
  now.results[0].rates = {77};
  now.results.push_back(BenchResult{.test = {.tokens = 7}});
  now.devices[0].device = "Card 10";
  ASSERT_OK_AND_ASSIGN(const std::string text, Compare(earlier, "old.json", now));
  EXPECT_THAT(text, HasSubstr("0.762  spread unknown: one repetition\n"));
  EXPECT_THAT(text, HasSubstr("devices: was Card 9, is Card 10\n"));
  EXPECT_THAT(text, HasSubstr("tg7: not in old.json\n"));
  EXPECT_THAT(text, HasSubstr("pp512: not measured now\n"));
  for (const char* bad : {"", "{", "[]", "{\"tests\": 3}", "{\"tests\": [{\"test\": 1}]}"}) {
    EXPECT_THAT(Compare(bad, "old.json", now).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("old.json")));
  }
}

}  // namespace
}  // namespace tandem
