// AMD's aiebu-dump reads the transactions that this folder writes, and prints the same operations; aiebu-asm makes
// ELFs of them with the same places to patch.
#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/control/rows.h"
#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/control/transaction.h"

namespace tandem::npu {
namespace {

// Lines of operations as aiebu-dump prints them, spaces made one.
std::vector<std::string> ExpectedLines(const std::vector<Operation>& operations) {
  std::vector<std::string> lines;
  for (const Operation& operation : operations) {
    switch (operation.kind) {
      case Operation::Kind::kWrite:
        lines.push_back(
            absl::StrFormat("XAIE_IO_WRITE @0x%x, 0x%x", operation.address, operation.values[0]));
        break;
      case Operation::Kind::kMaskedWrite:
        lines.push_back(absl::StrFormat("XAIE_IO_MASKWRITE @0x%x, 0x%x(), 0x%x", operation.address,
                                        operation.mask, operation.values[0]));
        break;
      case Operation::Kind::kBlockWrite:
        lines.push_back(absl::StrFormat("XAIE_IO_BLOCKWRITE @0x%x, [%d]", operation.address,
                                        operation.values.size()));
        for (size_t i = 0; i < operation.values.size(); ++i) {
          lines.push_back(absl::StrFormat("XAIE_IO_BLOCKWRITE.%d 0x%x", i, operation.values[i]));
        }
        break;
      case Operation::Kind::kPatch:
        lines.push_back(absl::StrFormat("XAIE_IO_CUSTOM_OP_DDR_PATCH @0x%x, #%d, +0x%x",
                                        operation.address, operation.argument, operation.offset));
        break;
      case Operation::Kind::kSync: {
        const DmaToken& token = operation.token;
        lines.push_back(absl::StrFormat(
            "XAIE_IO_CUSTOM_OP_TCT R[%d]+%d, C[%d]+%d, #%s, %d", token.tile.row, token.num_rows,
            token.tile.column, token.num_columns,
            token.direction == DmaDirection::kFromTile ? "DMA_S2MM" : "DMA_MM2S", token.channel));
        break;
      }
    }
  }
  return lines;
}

// A descriptor that gets the address of a data buffer.
struct Patch {
  uint32_t location = 0;  // of the descriptor's words in the transaction, bytes
  uint32_t argument = 0;
  uint32_t offset = 0;
  bool operator==(const Patch&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Patch& patch) {
  return out << "argument " << patch.argument << " + " << patch.offset << " at " << patch.location;
}

// REQUIRES words that ReadTransaction takes.
std::vector<Patch> PatchesOf(std::span<const uint32_t> words) {
  std::vector<Patch> patches;
  std::map<uint32_t, uint32_t> descriptors;  // where the last words for a register are
  for (size_t at = 4; at < words.size();) {
    switch (static_cast<Operation::Kind>(words[at])) {
      case Operation::Kind::kWrite:
        at += 6;
        break;
      case Operation::Kind::kMaskedWrite:
        at += 7;
        break;
      case Operation::Kind::kBlockWrite:
        descriptors[words[at + 2]] = static_cast<uint32_t>((at + 4) * sizeof(uint32_t));
        at += words[at + 3] / sizeof(uint32_t);
        break;
      case Operation::Kind::kSync:
        at += 4;
        break;
      case Operation::Kind::kPatch:
        patches.push_back({descriptors.at(words[at + 6] - 4), words[at + 8], words[at + 10]});
        at += 12;
        break;
    }
  }
  return patches;
}

// An ELF of control code, as far as XRT patches it.
struct ControlElf {
  std::vector<uint32_t> words;
  std::vector<Patch> patches;
};
ControlElf ReadControlElf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Elf32_Ehdr header = {};
  std::memcpy(&header, bytes.data(), std::min(sizeof(header), bytes.size()));
  std::map<std::string, std::string> sections;
  std::vector<Elf32_Shdr> headers(header.e_shnum);
  std::memcpy(headers.data(), &bytes.at(header.e_shoff), headers.size() * sizeof(Elf32_Shdr));
  for (const Elf32_Shdr& section : headers) {
    const char* const name = &bytes.at(headers.at(header.e_shstrndx).sh_offset + section.sh_name);
    sections[name] = bytes.substr(section.sh_offset, section.sh_size);
  }
  ControlElf elf;
  const std::string& text = sections[".ctrltext"];
  elf.words.resize(text.size() / sizeof(uint32_t));
  std::memcpy(elf.words.data(), text.data(), elf.words.size() * sizeof(uint32_t));
  const std::string& relocations = sections[".rela.dyn"];
  for (size_t at = 0; at < relocations.size(); at += sizeof(Elf32_Rela)) {
    Elf32_Rela relocation = {};
    std::memcpy(&relocation, &relocations[at], sizeof(relocation));
    Elf32_Sym symbol = {};
    std::memcpy(&symbol, &sections[".dynsym"].at(ELF32_R_SYM(relocation.r_info) * sizeof(symbol)),
                sizeof(symbol));
    // Symbols are named for arguments of the kernel, whose data buffers begin at 3.
    const int argument = std::atoi(&sections[".dynstr"].at(symbol.st_name)) - 3;
    elf.patches.push_back({relocation.r_offset, static_cast<uint32_t>(argument),
                           static_cast<uint32_t>(relocation.r_addend)});
  }
  return elf;
}

class DisassemblyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("AIEBU");
    tools_ = folder == nullptr ? "/nonexistent" : folder;
    for (const char* tool : {"/aiebu-dump", "/aiebu-asm"}) {
      if (::access((tools_ + tool).c_str(), X_OK) != 0) {
        GTEST_SKIP() << "SKIPPED: no " << tools_ << tool << ": run scripts/fetch-xrt";
      }
    }
  }
  // Writes a transaction for AMD's tools, and returns its path.
  std::string Write(std::vector<uint32_t>& words) {
    // They find transactions by a header of generation 4; operations are the same in generation 3.
    words[0] = (words[0] & ~0xFF0000u) | 4u << 16;
    std::string path = folder_.path() + "/control.bin";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(words.data()),
               static_cast<std::streamsize>(words.size() * sizeof(uint32_t)));
    return path;
  }
  std::string Run(const std::string& command) {
    FILE* pipe = ::popen((tools_ + "/" + command + " 2>&1").c_str(), "re");
    std::string text;
    char buffer[4096];
    while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
    EXPECT_EQ(::pclose(pipe), 0) << command << "\n" << text;
    return text;
  }
  // As XRT takes it in an ELF: the same words, patched in the same places.
  void CheckElf(std::vector<uint32_t> words) {
    const std::string path = Write(words);
    Run("aiebu-asm -t aie2txn -c " + path + " -o " + path + ".elf");
    const ControlElf elf = ReadControlElf(path + ".elf");
    EXPECT_EQ(elf.words, words);
    EXPECT_EQ(elf.patches, PatchesOf(words));
  }
  void Check(const Transaction& transaction) {
    ASSERT_OK_AND_ASSIGN(const DecodedTransaction read, ReadTransaction(transaction.words()));
    EXPECT_EQ(Disassemble(transaction.words()), ExpectedLines(read.operations));
    CheckElf(transaction.words());
  }
  std::vector<std::string> Disassemble(std::vector<uint32_t> words) {
    const std::string text = Run("aiebu-dump -m aie2txn -d " + Write(words));
    std::vector<std::string> lines;
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
      if (line.rfind("XAIE", 0) != 0) continue;
      const std::vector<std::string> words_of = absl::StrSplit(line, ' ', absl::SkipEmpty());
      std::string joined;
      for (const std::string& word : words_of) joined += (joined.empty() ? "" : " ") + word;
      lines.push_back(joined);
    }
    return lines;
  }

  TemporaryDirectory folder_;
  std::string tools_;
};

TEST_F(DisassemblyTest, EveryOperationIsWhatAmdsToolReads) {
  std::mt19937 random(11);
  Transaction transaction({});
  for (int i = 0; i < 200; ++i) {
    const Tile tile = {.column = static_cast<uint32_t>(random() % 8),
                       .row = static_cast<uint32_t>(random() % 6)};
    const uint32_t address = TileAddress(tile, (random() % 0x40000) & ~3u);
    switch (random() % 5) {
      case 0:
        transaction.Write(address, random());
        break;
      case 1:
        transaction.MaskedWrite(address, random(), random());
        break;
      case 2: {
        std::vector<uint32_t> values(random() % 20 + 1);
        for (uint32_t& value : values) value = random();
        transaction.BlockWrite(address, values);
        break;
      }
      case 3:
        transaction.Sync({.tile = tile,
                          .direction = static_cast<DmaDirection>(random() % 2),
                          .channel = static_cast<uint32_t>(random() % 2)});
        break;
      default: {
        const ShimPart part = {.descriptor = static_cast<uint32_t>(random() % 16),
                               .argument = static_cast<uint32_t>(random() % 5),
                               .offset = static_cast<uint32_t>(random() % 4096 * 4),
                               .transfer = {.length = static_cast<uint32_t>(random() % 4096 + 1)}};
        ASSERT_OK(StartShimTask({.column = tile.column}, {&part, 1}, false, transaction));
      }
    }
  }
  Check(transaction);
}

// Whole jobs, among them one whose inputs need several tasks, and for 512 rows Gemma 3 4B's largest matrix,
// the output matrices of 4B and 27B, and their largest, as the worker packs them.
TEST_F(DisassemblyTest, TheGemmsControlCodeIsWhatAmdsToolReads) {
  const GemmJob jobs[] = {
      {.array = {.generation = 3, .num_columns = 4},
       .weight_dtype = DType::kQ4_0,
       .num_rows = 65,
       .num_outputs = 97,
       .num_inputs = 16384 + 320,
       .output_stride = 128,
       .activations = {.offset = 4096},
       .weights = {.argument = 1, .offset = 8192},
       .output = {.argument = 2}},
      {.num_rows = 512, .num_outputs = 20480, .num_inputs = 2560, .output = {.argument = 2}},
      {.array = {.generation = 3, .num_columns = 4},
       .weight_dtype = DType::kBf16,
       .num_rows = 512,
       .num_outputs = 2560,
       .num_inputs = 2048,
       .output = {.argument = 2}},
      {.weight_dtype = DType::kBf16,
       .num_rows = 512,
       .num_outputs = 5376,
       .num_inputs = 4096,
       .weights = {.argument = 1},
       .output = {.argument = 2}},
      {.array = {.generation = 3, .num_columns = 4},
       .weight_dtype = DType::kBf16,
       .num_rows = 512,
       .num_outputs = 20480,
       .num_inputs = 2560,
       .weights = {.argument = 1},
       .output = {.argument = 2}},
      {.weight_dtype = DType::kBf16,
       .num_rows = 512,
       .num_outputs = 43008,
       .num_inputs = 5376,
       .weights = {.argument = 1},
       .output = {.argument = 2}},
      {.num_rows = 512,
       .num_outputs = 43008,
       .num_inputs = 5376,
       .weights = {.argument = 1},
       .output = {.argument = 2}},
      {.array = {.generation = 3, .num_columns = 4},
       .weight_dtype = DType::kQ4_0,
       .num_rows = 512,
       .num_outputs = 20480,
       .num_inputs = 2560,
       .weights = {.argument = 1},
       .output = {.argument = 2}}};
  for (const GemmJob& job : jobs) {
    ASSERT_OK_AND_ASSIGN(const Transaction transaction, BuildGemm(job));
    Check(transaction);
    const size_t kib = transaction.words().size() * sizeof(uint32_t) / 1024;
    std::printf("%d rows, %d outputs, %d inputs: %zu KiB\n", job.num_rows, job.num_outputs,
                job.num_inputs, kib);
    // Four columns take more waves, and quantised weights more descriptors in each.
    const bool is_longer = job.array.num_columns == 4 && job.weight_dtype != DType::kBf16;
    EXPECT_LT(kib, job.num_outputs > 40000 ? 1024u
                   : is_longer             ? 640u
                                           : 512u)
        << "docs/npu.md names the limits";
  }
}

// Gemma 3 4B's global layers: a row at position 8191, 512 rows of a prompt, 512 rows behind 8k; a
// window's rows; and a row whose cache lies in blocks of 16 that are not side by side.
TEST_F(DisassemblyTest, TheAttentionsControlCodeIsWhatAmdsToolReads) {
  struct Range {
    uint32_t first_position, num_rows, window, block;
    uint32_t limit_kib;  // docs/npu.md names it
  };
  for (const Range& range :
       {Range{8191, 1, 0, 8192, 128}, Range{0, 512, 0, 512, 128}, Range{8192, 512, 0, 8704, 128},
        Range{3000, 77, 1024, 4096, 128}, Range{8191, 1, 0, 16, 512}}) {
    const uint32_t end = range.first_position + range.num_rows;
    std::vector<CacheExtent> extents;
    for (uint32_t first = 0; first < end; first += range.block) {
      extents.push_back({first, range.block, 8704 - range.block - first % 8704});
    }
    const AttentionRun run = {
        .num_rows = range.num_rows, .first_position = range.first_position, .extents = extents};
    const AttentionJob job = {.head_dim = 256,
                              .num_heads = 8,
                              .num_kv_heads = 4,
                              .window = range.window,
                              .scale = 0.0625f,
                              .cache_slots = 8704 + kZeroSlots,
                              .keys = {.argument = 1},
                              .values = {.argument = 1, .offset = 1 << 26},
                              .output = {.argument = 2},
                              .scratch = {.argument = 3}};
    ASSERT_OK_AND_ASSIGN(const Transaction transaction, BuildAttention(job, {&run, 1}));
    Check(transaction);
    const size_t kib = transaction.num_bytes() / 1024;
    std::printf("%d rows from %d, window %d, blocks of %d: %zu KiB\n", range.num_rows,
                range.first_position, range.window, range.block, kib);
    EXPECT_LT(kib, range.limit_kib);
    // What a worker allots for a column at a time is enough.
    std::vector<Transaction> code;
    ASSERT_OK(BuildAttention(job, {&run, 1}, AttentionCodeBytes(end, range.block), code));
    for (const Transaction& part : code) {
      EXPECT_LE(part.num_bytes(), AttentionCodeBytes(end, range.block));
    }
  }
}

// The row functions of Gemma 3 27B, for 512 rows.
TEST_F(DisassemblyTest, TheRowFunctionsControlCodeIsWhatAmdsToolReads) {
  const struct {
    RowFunction function;
    uint32_t size, num_heads;
  } jobs[] = {{RowFunction::kNorm, 5376, 1},
              {RowFunction::kNormAdd, 5376, 1},
              {RowFunction::kRope, 128, 32},
              {RowFunction::kGeglu, 21504, 1}};
  for (const auto& [function, size, num_heads] : jobs) {
    RowJob job = {.function = function, .num_rows = 512, .size = size, .num_heads = num_heads};
    const RowWords words = RowWordsOf(job);
    job.first = {.place = {}, .stride = words.first};
    job.second = {.place = {.argument = 1}, .stride = words.second};
    job.output = {.place = {.argument = 2}, .stride = words.output};
    job.weights = {.argument = 3};
    ASSERT_OK_AND_ASSIGN(const Transaction transaction, BuildRows(job));
    Check(transaction);
    std::printf("function %d: %d bytes\n", static_cast<int>(function), transaction.num_bytes());
    EXPECT_LT(transaction.num_bytes(), 8192u) << "docs/npu.md names the limit";
  }
}

TEST_F(DisassemblyTest, AFlippedWordIsSeen) {
  Transaction transaction({});
  transaction.Write(TileAddress({.column = 3}, 0x1D214), 0x80000001);
  ASSERT_OK_AND_ASSIGN(const DecodedTransaction read, ReadTransaction(transaction.words()));
  std::vector<uint32_t> flipped = transaction.words();
  flipped[8] ^= 1u << 4;
  EXPECT_NE(Disassemble(flipped), ExpectedLines(read.operations));
}

}  // namespace
}  // namespace tandem::npu
