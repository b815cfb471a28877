#include "services/gateway/picture/picture_decoder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>

#include "services/common/testing/eventually.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/image_decoder/testing/picture_files.h"

namespace tandem::gateway {
namespace {

using namespace ::tandem::testing;

using ::testing::HasSubstr;

PictureDecoderOptions Options() {
  PictureDecoderOptions options;
  options.program = BuildPath("bin/tandem-image-decoder");
  return options;
}

// A program in the decoder's place.
std::string Script(const TemporaryDirectory& folder, const std::string& lines) {
  const std::string path = folder.path() + "/decoder";
  std::ofstream(path) << "#!/bin/sh\n" << lines;
  ::chmod(path.c_str(), 0755);
  return path;
}

TEST(PictureDecoderTest, DecodesEveryFormat) {
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(Options()));
  const TestPicture picture = TestPicture::Pattern(15, 10);  // 150 colours, for GIF and its 256
  for (const std::string& file : {PngFile(picture), WebpFile(picture), GifFile(picture),
                                  BmpFile(picture), JpegFile(picture)}) {
    ASSERT_OK_AND_ASSIGN(const DecodedPicture decoded, decoder->Decode("", file));
    EXPECT_EQ(decoded.width(), 15u);
    EXPECT_EQ(decoded.height(), 10u);
    ASSERT_EQ(decoded.pixels().size(), 15u * 10 * 3);
    if (file[0] == '\xff') continue;  // a JPEG's pixels are near
    const std::vector<uint8_t> expected = picture.OverWhite();
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), decoded.pixels().begin()));
  }
}

TEST(PictureDecoderTest, RefusesWithTheDecodersReason) {
  PictureDecoderOptions options = Options();
  options.limits.max_pixels = 100;
  options.max_file_bytes = 1000;
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(options));
  const auto refused = [&](std::string_view file) { return decoder->Decode("", file).status(); };
  EXPECT_THAT(refused(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
  EXPECT_THAT(refused("hello"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no PNG")));
  EXPECT_THAT(refused(PngFile(TestPicture::Pattern(11, 10))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("11 x 10 pixels")));
  EXPECT_THAT(refused(std::string(1001, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1001 bytes")));
  EXPECT_OK(refused(PngFile(TestPicture::Pattern(10, 10))));
}

TEST(PictureDecoderTest, GoesOnWhenWaitingProcessesAreKilled) {
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(Options()));
  const std::string file = PngFile(TestPicture::Pattern(8, 8));
  for (int round = 0; round < 5; ++round) {
    const std::vector<pid_t> waiting = decoder->WaitingProcesses();
    ASSERT_EQ(waiting.size(), 2u);
    for (const pid_t pid : waiting) ASSERT_EQ(::kill(pid, SIGKILL), 0);
    EXPECT_OK(decoder->Decode("", file).status());
  }
}

TEST(PictureDecoderTest, LeavesNoProcessBehind) {
  std::vector<pid_t> waiting;
  {
    ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(Options()));
    for (int i = 0; i < 10; ++i) (void)decoder->Decode("", "no picture");
    waiting = decoder->WaitingProcesses();
    EXPECT_EQ(waiting.size(), 2u);
  }
  for (const pid_t pid : waiting) EXPECT_TRUE(::kill(pid, 0) != 0 && errno == ESRCH);
}

TEST(PictureDecoderTest, KillsADecoderThatOverruns) {
  const TemporaryDirectory folder;
  PictureDecoderOptions options = Options();
  options.program = Script(folder, "exec sleep 60\n");
  options.limits.timeout = absl::Milliseconds(200);
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(options));
  const absl::Time start = absl::Now();
  EXPECT_THAT(decoder->Decode("", "x"), StatusIs(absl::StatusCode::kResourceExhausted,
                                                 HasSubstr("not decoded within 400ms")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST(PictureDecoderTest, ReportsADecoderThatDies) {
  const TemporaryDirectory folder;
  PictureDecoderOptions options = Options();
  const auto fails_with = [&](const std::string& lines) {
    options.program = Script(folder, lines);
    const auto decoder = PictureDecoder::Create(options);
    EXPECT_OK(decoder);
    return (*decoder)->Decode("", "x").status();
  };
  EXPECT_THAT(fails_with("sleep 0.2; kill -SEGV $$\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ended with signal 11")));
  EXPECT_THAT(fails_with("sleep 0.2; exit 3\n"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("ended with status 3")));
  EXPECT_THAT(fails_with("sleep 0.2; kill -KILL $$\n"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("was killed")));
}

TEST(PictureDecoderTest, NamesAProgramThatIsMissing) {
  PictureDecoderOptions options = Options();
  options.program = "/nowhere/tandem-image-decoder";
  EXPECT_THAT(PictureDecoder::Create(options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/tandem-image-decoder")));
}

// Both slots are taken by one sender, who has more waiting; another sender is next but one.
TEST(PictureDecoderTest, SendersTakeTurns) {
  PictureDecoderOptions options = Options();
  options.max_decoders = 1;
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(options));
  const std::string file = PngFile(TestPicture::Pattern(8, 8));
  absl::Mutex mutex;
  std::string order;
  std::vector<std::thread> threads;
  {
    ASSERT_OK_AND_ASSIGN(const DecodedPicture held, decoder->Decode("a", file));
    const auto send = [&](const std::string& sender) {
      threads.emplace_back([&, sender] {
        const auto decoded = decoder->Decode(sender, file);
        EXPECT_OK(decoded);
        absl::MutexLock lock(&mutex);
        order += sender;
      });
      absl::SleepFor(absl::Milliseconds(50));
    };
    for (int i = 0; i < 4; ++i) send("a");
    send("b");
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(order.find('b'), 1u) << order;
}

TEST(PictureDecoderTest, WaitingIsBounded) {
  PictureDecoderOptions options = Options();
  options.max_decoders = 1;
  options.max_waiting = 2;
  options.max_waiting_per_sender = 1;
  options.max_wait = absl::Milliseconds(500);
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(options));
  const std::string file = PngFile(TestPicture::Pattern(8, 8));
  ASSERT_OK_AND_ASSIGN(const DecodedPicture held, decoder->Decode("a", file));
  std::atomic<int> num_timed_out = 0;
  std::vector<std::thread> threads;
  const auto wait = [&](const std::string& sender) {
    threads.emplace_back([&, sender] {
      const absl::Status status = decoder->Decode(sender, file).status();
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("waited")));
      ++num_timed_out;
    });
    absl::SleepFor(absl::Milliseconds(50));
  };
  wait("a");
  EXPECT_THAT(decoder->Decode("a", file),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1 pictures of yours")));
  wait("b");
  EXPECT_THAT(decoder->Decode("c", file),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 pictures wait")));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_timed_out, 2);
}

// A slot that comes free goes past senders who have left.
TEST(PictureDecoderTest, SendersWhoLeftKeepNoSlot) {
  PictureDecoderOptions options = Options();
  options.max_decoders = 1;
  options.max_wait = absl::Milliseconds(50);
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(options));
  const std::string file = PngFile(TestPicture::Pattern(8, 8));
  {
    ASSERT_OK_AND_ASSIGN(const DecodedPicture held, decoder->Decode("a", file));
    EXPECT_FALSE(decoder->Decode("b", file).ok());
  }
  EXPECT_OK(decoder->Decode("c", file).status());
}

}  // namespace
}  // namespace tandem::gateway
