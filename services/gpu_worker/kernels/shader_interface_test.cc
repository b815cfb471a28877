// What C++ and the shaders must agree about, read from the shaders as they are embedded.  The ids
// of specialisation constants are not here: launches take them from the shaders (spirv.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "services/common/step/step_batch.h"
#include "services/common/tensor/iq4_nl.h"
#include "services/common/tensor/packed_row.h"
#include "services/common/testing/paths.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/fragment_layout.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/matrix_launches.h"
#include "services/gpu_worker/kernels/phases.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/kernels/spirv.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace glsl {
#include "shaders/include/dtype.glsl"
#include "shaders/include/numbers.glsl"
}  // namespace glsl

namespace {

using spirv::Module;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A block of push constants as C++ has it: its name and size, and where its last field lies.
struct PushBlock {
  std::string_view name, last_field;
  uint32_t last_offset, num_bytes;
};
#define PUSH_BLOCK_OF(type, last) \
  { #type, #last, offsetof(type, last), sizeof(type) }

// The kernels without the emulated ones, which are made of the same files.
struct Kernel {
  std::string_view name;
  Module module;
  PushBlock push;
};

Kernel KernelOf(KernelId id, const PushBlock& push) {
  return {Traits(id).name, Traits(id).spirv, push};
}

std::vector<Kernel> AllKernels() {
  constexpr PushBlock kAddNorm = PUSH_BLOCK_OF(AddNormPush, updated);
  constexpr PushBlock kAttention = PUSH_BLOCK_OF(AttentionPush, scale);
  constexpr PushBlock kComputeRate = PUSH_BLOCK_OF(ComputeRatePush, factor);
  constexpr PushBlock kHeadSlice = PUSH_BLOCK_OF(HeadSlicePush, first_output);
  constexpr PushBlock kMatrix = PUSH_BLOCK_OF(MatrixPush, x_scale);
  constexpr PushBlock kMatvec = PUSH_BLOCK_OF(MatvecPush, x_scale);
  constexpr PushBlock kProbe = PUSH_BLOCK_OF(ProbePush, destination);
  constexpr PushBlock kReadRate = PUSH_BLOCK_OF(ReadRatePush, key);
  constexpr PushBlock kRope = PUSH_BLOCK_OF(QkNormRopePush, group);
  constexpr PushBlock kTexelMatmul = PUSH_BLOCK_OF(TexelMatmulPush, first_row);
  constexpr PushBlock kTiled = PUSH_BLOCK_OF(TiledPush, scale);
  return {KernelOf(KernelId::kEmbed, PUSH_BLOCK_OF(EmbedPush, scale)),
          KernelOf(KernelId::kCopyRows, PUSH_BLOCK_OF(CopyRowsPush, first_row)),
          KernelOf(KernelId::kCopyPages, PUSH_BLOCK_OF(CopyPagesPush, units)),
          KernelOf(KernelId::kAddSplitK, PUSH_BLOCK_OF(AddSplitKPush, split_stride)),
          KernelOf(KernelId::kPool, PUSH_BLOCK_OF(PoolPush, cols)),
          KernelOf(KernelId::kRmsNorm, PUSH_BLOCK_OF(RmsNormPush, first_row)),
          KernelOf(KernelId::kAddNorm, kAddNorm),
          KernelOf(KernelId::kAddNormTexels, kAddNorm),
          KernelOf(KernelId::kAddNormWide, kAddNorm),
          KernelOf(KernelId::kMatmul, PUSH_BLOCK_OF(MatmulPush, first_row)),
          KernelOf(KernelId::kMatvec, kMatvec),
          KernelOf(KernelId::kTexelMatmulF32, kTexelMatmul),
          KernelOf(KernelId::kTexelMatmulF16, kTexelMatmul),
          KernelOf(KernelId::kTexelMatmulBf16, kTexelMatmul),
          KernelOf(KernelId::kCoopMatvec, kMatvec),
          KernelOf(KernelId::kQkNormRope, kRope),
          KernelOf(KernelId::kQkNormRopeTexels, kRope),
          KernelOf(KernelId::kKvAppend, PUSH_BLOCK_OF(KvAppendPush, group)),
          KernelOf(KernelId::kAttention, kAttention),
          KernelOf(KernelId::kAttentionTexels, kAttention),
          KernelOf(KernelId::kDecode, PUSH_BLOCK_OF(DecodePush, epsilon)),
          KernelOf(KernelId::kTiled, kTiled),
          KernelOf(KernelId::kTiledCooperative, kTiled),
          KernelOf(KernelId::kTiledQuads, kTiled),
          KernelOf(KernelId::kTiledRows, kTiled),
          KernelOf(KernelId::kChains, PUSH_BLOCK_OF(ChainsPush, epsilon)),
          KernelOf(KernelId::kHeadSlice, kHeadSlice),
          KernelOf(KernelId::kHeadSliceTexels, kHeadSlice),
          KernelOf(KernelId::kHeadMerge, PUSH_BLOCK_OF(HeadMergePush, first_output)),
          KernelOf(KernelId::kCutPatches, PUSH_BLOCK_OF(CutPatchesPush, stride)),
          KernelOf(KernelId::kAddLayerNorm, PUSH_BLOCK_OF(AddLayerNormPush, epsilon)),
          KernelOf(KernelId::kSplitHeads, PUSH_BLOCK_OF(SplitHeadsPush, block_tokens)),
          KernelOf(KernelId::kBiasGelu, PUSH_BLOCK_OF(BiasGeluPush, stride)),
          KernelOf(KernelId::kPoolPatches, PUSH_BLOCK_OF(PoolPatchesPush, epsilon)),
          KernelOf(KernelId::kCoopMatmulShared, kMatrix),
          KernelOf(KernelId::kCoopMatmulQuads, kMatrix),
          KernelOf(KernelId::kCoopMatmulRows, kMatrix),
          KernelOf(KernelId::kCoopProbe, kProbe),
          KernelOf(KernelId::kNarrowProbe, kProbe),
          {"read_rate", shaders::kReadRate, kReadRate},
          {"read_rate_few", shaders::kReadRateFew, kReadRate},
          {"fma_rate", shaders::kFmaRate, kComputeRate},
          {"fma_rate_few", shaders::kFmaRateFew, kComputeRate},
          {"matrix_rate", shaders::kMatrixRate, kComputeRate}};
}

// A field of a block as its file declares it, where C++ and the scalar layout put it.
struct Field {
  std::string name;
  uint32_t offset = 0;
};
struct DeclaredBlock {
  std::vector<Field> fields;
  uint32_t num_bytes = 0;  // up to the alignment of its widest field
};

// The blocks of shaders/include/push/, by their names.
std::map<std::string, DeclaredBlock, std::less<>> DeclaredBlocks() {
  const std::regex block_name(R"(PUSH_BLOCK\((\w+)\))");
  const std::regex declaration(R"((uint64_t|uint|float) +([^;]*);)");
  const std::regex declarator(R"((\w+)(?:\[(\d+)\])?)");
  std::map<std::string, DeclaredBlock, std::less<>> blocks;
  for (const auto& file : std::filesystem::directory_iterator(SourcePath("shaders/include/push"))) {
    std::ifstream in(file.path());
    DeclaredBlock* block = nullptr;
    uint32_t widest = 1;
    for (std::string line; std::getline(in, line);) {
      line = line.substr(0, line.find("//"));
      std::smatch found;
      if (std::regex_search(line, found, block_name)) block = &blocks[found[1]];
      if (block == nullptr || !std::regex_search(line, found, declaration)) continue;
      const uint32_t bytes = found[1] == "uint64_t" ? 8 : 4;
      const std::string names = found[2];
      for (std::sregex_iterator name(names.begin(), names.end(), declarator), end; name != end;
           ++name) {
        const uint32_t count = (*name)[2].matched ? std::stoul((*name)[2]) : 1;
        const uint32_t offset = (block->num_bytes + bytes - 1) / bytes * bytes;
        block->fields.push_back({(*name)[1], offset});
        block->num_bytes = offset + count * bytes;
        widest = std::max(widest, bytes);
      }
    }
    if (block != nullptr) block->num_bytes = (block->num_bytes + widest - 1) / widest * widest;
  }
  return blocks;
}

// The members of a block in a shader, in their order; PUSH_PHASE's left out.
std::vector<Field> MembersOf(Module module, std::string_view block) {
  const uint32_t result = spirv::FindResult(module, block);
  std::map<uint32_t, Field> members;  // by index
  spirv::VisitAnnotations(module, [&](uint32_t op, Module operands) {
    if (op != spirv::kMemberName || operands[0] != result) return;
    if (spirv::IsString(operands.subspan(2), "phase")) return;
    const std::string name = reinterpret_cast<const char*>(operands.data() + 2);
    members[operands[1]] = {name, spirv::FindMember(module, block, name).value_or(~0u)};
  });
  std::vector<Field> fields;
  fields.reserve(members.size());
  for (const auto& [index, field] : members) fields.push_back(field);
  return fields;
}

// Where C++, the shader and the file of a kernel's block differ; nothing where they agree.
std::vector<std::string> Differences(const Kernel& kernel, const DeclaredBlock& declared) {
  std::vector<std::string> found;
  const auto compare = [&found](std::string_view what, const auto& here,
                                const auto& declared_here) {
    if (here == declared_here) return;
    std::ostringstream text;
    text << what << " is " << here << ", declared is " << declared_here;
    found.push_back(text.str());
  };
  const std::vector<Field> members = MembersOf(kernel.module, kernel.push.name);
  compare("the shader's number of fields", members.size(), declared.fields.size());
  for (size_t i = 0; i < std::min(members.size(), declared.fields.size()); ++i) {
    compare("the shader's field", members[i].name, declared.fields[i].name);
    compare("the shader's offset of " + members[i].name, members[i].offset,
            declared.fields[i].offset);
  }
  compare("the last field in C++", kernel.push.last_field, declared.fields.back().name);
  compare("its offset in C++", kernel.push.last_offset, declared.fields.back().offset);
  compare("the size in C++", kernel.push.num_bytes, declared.num_bytes);
  return found;
}

TEST(GpuShaderInterfaceTest, PushBlocksLieAsCppHasThem) {
  const std::vector<Kernel> kernels = AllKernels();
  for (int id = 0; id < kNumKernels; ++id) {
    const std::string_view name = Traits(static_cast<KernelId>(id)).name;
    EXPECT_EQ(std::ranges::count(kernels, name, &Kernel::name), 1) << name << " is not in the list";
  }
  const auto declared = DeclaredBlocks();
  for (const Kernel& kernel : kernels) {
    SCOPED_TRACE(kernel.name);
    EXPECT_NE(spirv::FindResult(kernel.module, kernel.push.name), 0u)
        << "has no block " << kernel.push.name << ": include shaders/include/push/...";
    const auto block = declared.find(kernel.push.name);
    ASSERT_NE(block, declared.end()) << kernel.push.name << " is not in shaders/include/push";
    EXPECT_THAT(Differences(kernel, block->second), IsEmpty());
    EXPECT_LE(kernel.push.num_bytes, vulkan::kPushConstantBytes);
  }
}

// A copy of the module with `value` as the last operand of the first annotation that `is_it`
// accepts.
template <typename IsIt>
std::vector<uint32_t> Planted(Module module, uint32_t value, IsIt is_it) {
  std::vector<uint32_t> copy(module.begin(), module.end());
  bool done = false;
  spirv::VisitAnnotations(copy, [&](uint32_t op, Module operands) {
    if (done || !is_it(op, operands)) return;
    copy[static_cast<size_t>(&operands.back() - copy.data())] = value;
    done = true;
  });
  EXPECT_TRUE(done) << "nothing to plant into";
  return copy;
}

TEST(GpuShaderInterfaceTest, APlantedPushOffsetIsFound) {
  const std::vector<Kernel> kernels = AllKernels();
  const auto declared = DeclaredBlocks();
  Kernel kernel = *std::ranges::find(kernels, Traits(KernelId::kMatvec).name, &Kernel::name);
  const DeclaredBlock& block = declared.find(kernel.push.name)->second;
  const uint32_t result = spirv::FindResult(kernel.module, kernel.push.name);
  const std::vector<uint32_t> planted =
      Planted(kernel.module, 52, [&](uint32_t op, Module operands) {
        return op == spirv::kMemberDecorate && operands[0] == result && operands[1] == 1 &&
               operands[2] == spirv::kOffset;
      });
  kernel.module = planted;
  EXPECT_THAT(Differences(kernel, block), ElementsAre(HasSubstr("the shader's offset of")));
  kernel.module = Traits(KernelId::kMatvec).spirv;
  EXPECT_THAT(Differences(kernel, block), IsEmpty());
  kernel.push.last_offset += 4;
  EXPECT_THAT(Differences(kernel, block), ElementsAre(HasSubstr("its offset in C++")));
}

// C++ takes ids from the shader by name, so another id is followed, and one that two constants
// share is found.
TEST(GpuShaderInterfaceTest, APlantedConstantIdIsFollowedOrFound) {
  const Module module = Traits(KernelId::kMatvec).spirv;
  const uint32_t constant = spirv::FindResult(module, "WEIGHT_DTYPE");
  const uint32_t id = spirv::FindConstant(module, "WEIGHT_DTYPE").value();
  const auto is_it = [constant](uint32_t op, Module operands) {
    return op == spirv::kDecorate && operands[0] == constant && operands[1] == spirv::kSpecId;
  };
  const std::vector<uint32_t> moved = Planted(module, 63, is_it);
  EXPECT_EQ(spirv::FindConstant(moved, "WEIGHT_DTYPE"), 63u);
  EXPECT_EQ(spirv::CountConstants(moved, id), 0);
  uint32_t other = 0;
  spirv::VisitAnnotations(module, [&](uint32_t op, Module operands) {
    if (op == spirv::kDecorate && operands[1] == spirv::kSpecId && operands[2] > id) {
      other = operands[2];
    }
  });
  ASSERT_NE(other, 0u);
  EXPECT_EQ(spirv::CountConstants(Planted(module, other, is_it), other), 2);
}

TEST(GpuShaderInterfaceTest, ConstantZeroIsTheWorkgroupsSize) {
  for (const Kernel& kernel : AllKernels()) {
    const auto threads = spirv::FindConstant(kernel.module, "THREADS");
    EXPECT_EQ(threads.value_or(kLocalSize), kLocalSize) << kernel.name;
    EXPECT_EQ(spirv::CountConstants(kernel.module, kLocalSize), threads.has_value() ? 1 : 0)
        << kernel.name << " has another constant of id 0";
    bool has_size = false;
    spirv::VisitAnnotations(kernel.module, [&](uint32_t op, Module operands) {
      has_size = has_size || (op == spirv::kDecorate && operands[1] == spirv::kSpecId &&
                              operands[2] == kLocalSize);
    });
    EXPECT_TRUE(has_size) << kernel.name << " does not declare local_size_x_id = 0";
  }
}

TEST(GpuShaderInterfaceTest, NoTwoConstantsOfAKernelShareAnId) {
  constexpr uint32_t kMostIds = 64;
  for (const Kernel& kernel : AllKernels()) {
    for (uint32_t id = 0; id < kMostIds; ++id) {
      EXPECT_LE(spirv::CountConstants(kernel.module, id), 1) << kernel.name << " id " << id;
    }
  }
}

TEST(GpuShaderInterfaceTest, CountersAndPhasesLieWhereKernelsLookForThem) {
  for (const KernelId id : {KernelId::kMatvec, KernelId::kAddNormWide, KernelId::kDecode}) {
    SCOPED_TRACE(Traits(id).name);
    const Module module = Traits(id).spirv;
    const auto at = [&](std::string_view field) {
      return spirv::FindMember(module, "DependencyCounter", field).value_or(~0u);
    };
    EXPECT_EQ(at("left"), offsetof(DependencyCounter, left));
    EXPECT_EQ(at("groups"), offsetof(DependencyCounter, groups));
    EXPECT_EQ(at("given_up"), offsetof(DependencyCounter, given_up));
    EXPECT_EQ(at("waits"), offsetof(DependencyCounter, waits));
    EXPECT_EQ(at("awaited"), offsetof(DependencyCounter, awaited));
    const std::vector<Kernel> kernels = AllKernels();
    const auto kernel = std::ranges::find(kernels, Traits(id).name, &Kernel::name);
    EXPECT_EQ(spirv::FindMember(module, kernel->push.name, "phase"), kPhaseOffset);
  }
  EXPECT_EQ(glsl::kDependencyCounterBytes, sizeof(DependencyCounter));
  EXPECT_EQ(glsl::kWaits, kPhaseWaits);
  EXPECT_EQ(glsl::kCounts, kPhaseCounts);
}

// The numbers of formats need no comparison: both languages read dtype_numbers.inc.
TEST(GpuShaderInterfaceTest, FormatsHaveTheSameValues) {
  EXPECT_TRUE(std::ranges::equal(glsl::kIq4NlValues, kIq4NlValues));
  EXPECT_EQ(glsl::kTileRows, kTileRows);
  EXPECT_EQ(glsl::kActivationF32, static_cast<uint32_t>(ActivationFormat::kF32));
  EXPECT_EQ(glsl::kActivationF16, static_cast<uint32_t>(ActivationFormat::kF16));
  EXPECT_EQ(glsl::kActivationInt8, static_cast<uint32_t>(ActivationFormat::kInt8));
  EXPECT_EQ(glsl::kActivationFragments, static_cast<uint32_t>(ActivationFormat::kFragments));
  EXPECT_EQ(glsl::kActivationBf16, static_cast<uint32_t>(ActivationFormat::kBf16));
  EXPECT_EQ(glsl::kFragmentElements, kFragmentElements);
  EXPECT_EQ(glsl::kUnitElements, kUnitElements);
  EXPECT_EQ(glsl::kUnitBytes, kUnitBytes);
  EXPECT_EQ(glsl::kGegluHalfScale, kGegluHalfScale);
  EXPECT_EQ(glsl::kKvF16, static_cast<uint32_t>(KvFormat::kF16));
  EXPECT_EQ(glsl::kKvQ8_0, static_cast<uint32_t>(KvFormat::kQ8_0));
}

TEST(GpuShaderInterfaceTest, ArgumentsHaveTheSameNumbers) {
  EXPECT_EQ(glsl::kStepRows, static_cast<uint32_t>(NormRows::kStep));
  EXPECT_EQ(glsl::kGatheredRows, static_cast<uint32_t>(NormRows::kGathered));
  EXPECT_EQ(glsl::kOutputRows, static_cast<uint32_t>(NormRows::kOfOutputs));
  EXPECT_EQ(glsl::kOutputF32, static_cast<uint32_t>(MatrixOutput::kF32));
  EXPECT_EQ(glsl::kOutputGegluF32, static_cast<uint32_t>(MatrixOutput::kGegluF32));
  EXPECT_EQ(glsl::kOutputGegluF16, static_cast<uint32_t>(MatrixOutput::kGegluF16));
  EXPECT_EQ(glsl::kOutputBiasGeluF16, static_cast<uint32_t>(MatrixOutput::kBiasGeluF16));
  EXPECT_EQ(glsl::kOutputHeadsF16, static_cast<uint32_t>(MatrixOutput::kHeadsF16));
  EXPECT_EQ(glsl::kCopyPiece, kCopyPiece);
  EXPECT_EQ(glsl::kPageTurns, kPageTurns);
  EXPECT_EQ(glsl::kMaxPoolThreads, kMaxPoolThreads);
  EXPECT_EQ(glsl::kMaxHeadSlice, kMaxHeadSlice);
  EXPECT_EQ(glsl::kMaxElements, kMaxFragmentElements);
}

TEST(GpuShaderInterfaceTest, StepsLieWhereKernelsLookForThem) {
  EXPECT_EQ(glsl::kNoToken, kNoToken);
  EXPECT_EQ(glsl::kNoDraw, kNoDraw);
  EXPECT_EQ(glsl::kNoMask, kNoMask);
  EXPECT_EQ(glsl::kHeaderBytes, sizeof(StepHeader));
  EXPECT_EQ(glsl::kNumRowsOffset, offsetof(StepHeader, num_rows));
  EXPECT_EQ(glsl::kNumSequencesOffset, offsetof(StepHeader, num_sequences));
  EXPECT_EQ(glsl::kNumOutputsOffset, offsetof(StepHeader, num_outputs));
  EXPECT_EQ(glsl::kNumCandidatesOffset, offsetof(StepHeader, num_candidates));
  EXPECT_EQ(glsl::kTableLenOffset, offsetof(StepHeader, table_len));
  EXPECT_EQ(glsl::kNumDrawsOffset, offsetof(StepHeader, num_draws));
  EXPECT_EQ(glsl::kNumPooledOffset, offsetof(StepHeader, num_pooled));
  EXPECT_EQ(glsl::kNumPicturesOffset, offsetof(StepHeader, num_pictures));
  EXPECT_EQ(glsl::kPictureBytes, sizeof(PictureEntry));
  EXPECT_EQ(glsl::kEntryBytes, sizeof(RowEntry));
  EXPECT_EQ(glsl::kEntryBytes, sizeof(SequenceEntry));
  EXPECT_EQ(glsl::kEntryBytes, sizeof(OutputEntry));
  EXPECT_EQ(glsl::kRowPositionOffset, offsetof(RowEntry, position));
  EXPECT_EQ(glsl::kRowSequenceOffset, offsetof(RowEntry, sequence));
  EXPECT_EQ(glsl::kRowFeedOffset, offsetof(RowEntry, feed));
  EXPECT_EQ(glsl::kTablesOffset, offsetof(SequenceEntry, table_offset));
  EXPECT_EQ(glsl::kTargetOffset, offsetof(OutputEntry, target));
  EXPECT_EQ(glsl::kDrawOffset, offsetof(OutputEntry, draw));
  EXPECT_EQ(glsl::kMaskOffset, offsetof(OutputEntry, mask));
  EXPECT_EQ(glsl::kDrawBytes, sizeof(DrawEntry));
  EXPECT_EQ(offsetof(DrawEntry, temperature), 0u);
  EXPECT_EQ(glsl::kTopKOffset, offsetof(DrawEntry, top_k));
  EXPECT_EQ(glsl::kTopPOffset, offsetof(DrawEntry, top_p));
  EXPECT_EQ(glsl::kMinPOffset, offsetof(DrawEntry, min_p));
  EXPECT_EQ(glsl::kUniformOffset, offsetof(DrawEntry, uniform));
  EXPECT_EQ(glsl::kMaxCandidates, kMaxCandidates);
  EXPECT_EQ(glsl::kCandidatesOffset, offsetof(OutputResult, candidates));
  EXPECT_EQ(glsl::kResultBytes, sizeof(OutputResult));
  EXPECT_EQ(glsl::kAttentionEntryBytes, sizeof(AttentionRow));
  EXPECT_EQ(glsl::kAttentionEntryBytes, sizeof(AttentionTile));
}

}  // namespace
}  // namespace tandem::gpu
