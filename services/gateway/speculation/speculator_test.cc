#include "services/gateway/speculation/speculator.h"

#include <gtest/gtest.h>

#include <bit>

#include "services/gateway/speculation/testing/scripted_drafter.h"

namespace tandem::gateway {
namespace {

using testing::Script;
using testing::ScriptedDrafter;

constexpr uint64_t kId = 3;

// One sequence, whose answer is 100, 101, 102, ...; a step takes 10 ms and 0.2 ms for each further
// row, unless said otherwise (below 0: nothing is known of them).
class SpeculatorTest : public ::testing::Test {
 protected:
  void Start(std::vector<Script> scripts, double row_seconds = 0.0002) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (const Script& script : scripts) {
      auto drafter = std::make_unique<ScriptedDrafter>(script);
      drafter->Teach(prompt_, answer_);
      drafters_.push_back(drafter.get());
      drafters.push_back(std::move(drafter));
    }
    speculator_ = std::make_unique<Speculator>(std::move(drafters));
    for (uint32_t rows = 1; rows <= 32 && row_seconds >= 0; ++rows) {
      for (uint32_t i = 0; i < CostTable::kEnough; ++i) {
        speculator_->costs().StepTook(rows, 0.010 + row_seconds * (rows - 1));
      }
    }
    speculator_->Begin({.id = kId, .prompt = prompt_, .sampling = &params_});
    Decide(1);
  }

  void Decide(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      speculator_->TokenDecided(kId, answer_[num_decided_++], i > 0);
    }
    speculator_->StepEnds();
  }

  DraftChoice Choose(bool under_way = false, uint32_t max_guesses = kMaxGuesses) {
    const DraftPlace place{kId, max_guesses, under_way};
    const auto choices = speculator_->Choose({&place, 1}, 1, true);
    EXPECT_EQ(choices.size(), 1u);
    return choices[0];
  }

  // A step that verifies whatever is chosen; returns the guesses verified.
  uint32_t Step() {
    const auto guesses = Choose().guesses;
    uint32_t right = 0;
    while (right < guesses.size() && guesses[right] == answer_[num_decided_ + right]) ++right;
    const auto count = static_cast<uint32_t>(guesses.size());
    Decide(right + 1);
    return count;
  }

  const std::vector<uint32_t> prompt_ = {1, 2, 3};
  const SamplingParams params_ = {};
  std::vector<uint32_t> answer_ = [] {
    std::vector<uint32_t> answer(20000);
    for (uint32_t i = 0; i < answer.size(); ++i) answer[i] = 100 + i % 800;
    return answer;
  }();
  std::vector<ScriptedDrafter*> drafters_;
  std::unique_ptr<Speculator> speculator_;
  uint32_t num_decided_ = 0;
};

TEST_F(SpeculatorTest, GuessesThatAreRightAreVerified) {
  Start({{.longest = 4}});
  const DraftChoice choice = Choose();
  EXPECT_TRUE(std::ranges::equal(choice.guesses, std::vector<uint32_t>({101, 102, 103, 104})));
  Decide(5);
  EXPECT_EQ(drafters_[0]->num_accepted(), 4u);
  EXPECT_EQ(Choose().guesses.front(), 106u);
}

TEST_F(SpeculatorTest, NoMoreGuessesThanThereIsRoomFor) {
  Start({{.longest = 9}});
  EXPECT_EQ(Choose(false, 2).guesses.size(), 2u);
}

TEST_F(SpeculatorTest, WaitsForATokenUnderWayIfGuessesAfterItPay) {
  Start({{.longest = 4}});
  const DraftChoice choice = Choose(/*under_way=*/true);
  EXPECT_TRUE(choice.wait);
  EXPECT_TRUE(choice.guesses.empty());
  Start({{.longest = 1}});
  EXPECT_FALSE(Choose(/*under_way=*/true).wait) << "its only guess is the token under way";
}

TEST_F(SpeculatorTest, WrongGuessesAreGivenUpAndComeBackWhenTheyAreRightAgain) {
  Start({{.right = 0.0, .promise = 0.9f}}, 0.001);
  uint32_t verified = 0;
  for (int i = 0; i < 300; ++i) verified += Step();
  EXPECT_LT(verified, 40u);
  EXPECT_EQ(Step(), 0u);
  EXPECT_GT(drafters_[0]->num_asked(), 290u) << "it is still scored";
}

// Decoding on a device whose kernels are made for 1, 2, 4, 8, 16 and 32 rows (27B in
// 4 bits on a large card); what a chain of guesses right with a probability brings.
class SpeculationPaysTest : public SpeculatorTest {
 protected:
  static double StepTime(uint32_t rows) {
    constexpr double times[] = {6.25e-3, 7.2e-3, 8.0e-3, 8.96e-3, 10.0e-3, 12.1e-3};
    return times[std::bit_width(rows - 1)];
  }
  // Seconds of `num_tokens` tokens of a new sequence, against plain decoding.
  double Ratio(uint32_t num_tokens) {
    constexpr double kGap = 0.1e-3;
    double guessing = 0.0;
    const uint32_t end = num_decided_ + num_tokens;
    while (num_decided_ < end) {
      const uint32_t rows = 1 + Step();

      guessing += StepTime(rows) + (rows > 1 ? kGap : 0.0);
      speculator_->costs().StepTook(rows, StepTime(rows));
      if (rows > 1) speculator_->costs().GapTook(kGap);
    }
    return num_tokens * StepTime(1) / guessing;
  }
};

TEST_F(SpeculationPaysTest, NextToNothingIsLostOnGuessesThatAreAllWrong) {
  Start({{.right = 0.0}}, -1);
  EXPECT_GT(Ratio(300), 0.98);
  // Another sequence begins with the record of the first.
  num_decided_ = 0;
  speculator_->End(kId);
  speculator_->Begin({.id = kId, .prompt = prompt_, .sampling = &params_});
  Decide(1);
  EXPECT_GT(Ratio(300), 0.99);
}

TEST_F(SpeculatorTest, PromisesAreCorrectedByTheRecord) {
  Start({{.right = 1.0, .promise = 0.2f, .longest = 4}}, 0.003);
  EXPECT_EQ(Step(), 0u) << "one in five does not pay";
  for (int i = 0; i < 200; ++i) Step();
  EXPECT_GT(Step(), 0u) << "but they were all right";
}

TEST_F(SpeculatorTest, WithoutPromisesTheRecordAloneCounts) {
  Start({{.right = 0.0, .promise = 0.0f}}, 0.001);
  for (int i = 0; i < 300; ++i) Step();
  EXPECT_EQ(Step(), 0u);
}

TEST_F(SpeculatorTest, ALateChainIsUsedAsFarAsItStillFits) {
  Start({{.longest = 5, .takes = absl::Milliseconds(1), .late_by = 1}});
  EXPECT_TRUE(Choose().guesses.empty()) << "asked, and not there in time";
  Decide(2);
  EXPECT_TRUE(std::ranges::equal(Choose().guesses, std::vector<uint32_t>({103, 104, 105})));
}

TEST_F(SpeculatorTest, ALateChainThatGuessedWrongIsDropped) {
  Start({{.right = 0.0, .longest = 5, .takes = absl::Milliseconds(1), .late_by = 1}});
  EXPECT_TRUE(Choose().guesses.empty());
  Decide(2);
  EXPECT_TRUE(Choose().guesses.empty());
}

TEST_F(SpeculatorTest, ASlowDrafterIsWaitedForOnlyIfThatPays) {
  Start({{.takes = absl::Milliseconds(2)}});
  EXPECT_FALSE(Choose().guesses.empty());
  EXPECT_TRUE(drafters_[0]->waited());
  drafters_.clear();
  num_decided_ = 0;
  Start({{.takes = absl::Milliseconds(200)}});
  EXPECT_TRUE(Choose().guesses.empty());
  EXPECT_FALSE(drafters_[0]->waited());
}

TEST_F(SpeculatorTest, ADrafterInTroubleIsNotAsked) {
  Start({{.takes = absl::Milliseconds(2), .trouble = "its worker is lost"}});
  EXPECT_TRUE(Choose().guesses.empty());
  EXPECT_EQ(drafters_[0]->num_asked(), 0u);
}

TEST_F(SpeculatorTest, OfTwoDraftersTheBetterIsTaken) {
  Start({{.name = "bad", .right = 0.0}, {.name = "good", .right = 1.0}});
  for (int i = 0; i < 100; ++i) Step();
  const DraftChoice choice = Choose();
  ASSERT_FALSE(choice.guesses.empty());
  EXPECT_EQ(speculator_->drafter(choice.drafter).name(), "good");
}

TEST_F(SpeculatorTest, ABatchOfAnotherSizeNeedsNoMeasurementWhereGuessesPayAnyway) {
  const auto measure = [&](uint32_t rows, double seconds) {
    for (uint32_t i = 0; i < CostTable::kEnough; ++i) speculator_->costs().StepTook(rows, seconds);
  };
  const DraftPlace place{kId, kMaxGuesses, false};
  const auto chooses = [&](uint32_t num_rows) {
    return !speculator_->Choose({&place, 1}, num_rows, true)[0].guesses.empty();
  };
  Start({{.right = 1.0}}, -1);
  measure(3, 0.010);
  EXPECT_TRUE(chooses(2)) << "two rows take 6.7 ms at least";
  num_decided_ = 0;
  Start({{.right = 1.0}}, -1);
  measure(32, 0.010);
  EXPECT_FALSE(chooses(2)) << "two rows could take as little as 0.6 ms";
  measure(2, 0.009);
  EXPECT_TRUE(chooses(2));
}

TEST_F(SpeculatorTest, NothingIsChosenBeforeAStepWasMeasuredOrForALargeBatch) {
  Start({{}});
  const DraftPlace place{kId, kMaxGuesses, false};
  EXPECT_TRUE(speculator_->Choose({&place, 1}, 500, true)[0].guesses.empty());
  speculator_->End(kId);
  EXPECT_EQ(drafters_[0]->num_sequences(), 0u);
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<ScriptedDrafter>(Script{}));
  Speculator fresh(std::move(drafters));
  fresh.Begin({.id = kId, .prompt = prompt_, .sampling = &params_});
  EXPECT_TRUE(fresh.Choose({&place, 1}, 1, true)[0].guesses.empty());
}

}  // namespace
}  // namespace tandem::gateway
