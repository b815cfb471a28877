// Reads the interface of a SPIR-V module at compile time: ids of specialisation constants and
// layouts of blocks, by their names in the shader.
//
// Launches look up the ids of constants here, so that only the shader defines them:
//
//   constexpr uint32_t kRows = ConstantId("ROWS", {shaders::kMatvec, shaders::kCoopMatvec});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

namespace tandem::gpu::spirv {

using Module = std::span<const uint32_t>;

inline constexpr uint32_t kHeaderWords = 5;
enum Op : uint32_t {
  kName = 5,
  kMemberName = 6,
  kTypeVoid = 19,
  kDecorate = 71,
  kMemberDecorate = 72
};
enum Decoration : uint32_t { kSpecId = 1, kOffset = 35 };

// Calls visit(Op, operands) for the instructions before the first type: names and decorations.
template <typename Visit>
constexpr void VisitAnnotations(Module module, Visit visit) {
  for (size_t at = kHeaderWords; at < module.size();) {
    const uint32_t words = module[at] >> 16, op = module[at] & 0xFFFF;
    if (words == 0 || at + words > module.size() || op == kTypeVoid) return;
    visit(op, module.subspan(at + 1, words - 1));
    at += words;
  }
}

// Whether the string at the start of `words` is `text`: UTF-8, four bytes a word, ended by 0.
constexpr bool IsString(Module words, std::string_view text) {
  if (words.size() != text.size() / 4 + 1) return false;
  for (size_t i = 0; i < words.size() * 4; ++i) {
    const auto c = static_cast<char>(words[i / 4] >> (8 * (i % 4)) & 0xFF);
    if (c != (i < text.size() ? text[i] : '\0')) return false;
  }
  return true;
}

// The id of the result called `name`; 0 without one.
constexpr uint32_t FindResult(Module module, std::string_view name) {
  uint32_t found = 0;
  VisitAnnotations(module, [&](uint32_t op, Module operands) {
    if (op == kName && IsString(operands.subspan(1), name)) found = operands[0];
  });
  return found;
}

// The SpecId of the constant called `name`; nullopt if the module does not use it.
constexpr std::optional<uint32_t> FindConstant(Module module, std::string_view name) {
  const uint32_t result = FindResult(module, name);
  std::optional<uint32_t> id;
  VisitAnnotations(module, [&](uint32_t op, Module operands) {
    if (op == kDecorate && operands[0] == result && operands[1] == kSpecId) id = operands[2];
  });
  return id;
}

// How many constants of different names have the SpecId.
constexpr int CountConstants(Module module, uint32_t id) {
  int count = 0;
  VisitAnnotations(module, [&](uint32_t op, Module operands) {
    if (op != kDecorate || operands[1] != kSpecId || operands[2] != id) return;
    VisitAnnotations(module, [&](uint32_t name_op, Module name) {
      if (name_op == kName && name[0] == operands[0]) ++count;
    });
  });
  return count;
}

// The byte offset of a block's or struct's member; nullopt for an unknown member.
constexpr std::optional<uint32_t> FindMember(Module module, std::string_view type,
                                             std::string_view member) {
  const uint32_t result = FindResult(module, type);
  std::optional<uint32_t> index, offset;
  VisitAnnotations(module, [&](uint32_t op, Module operands) {
    if (op == kMemberName && operands[0] == result && IsString(operands.subspan(2), member)) {
      index = operands[1];
    }
  });
  VisitAnnotations(module, [&](uint32_t op, Module operands) {
    if (op == kMemberDecorate && operands[0] == result && index == operands[1] &&
        operands[2] == kOffset) {
      offset = operands[3];
    }
  });
  return offset;
}

// The SpecId of the constant called `name` in the modules that use it.  Fails to compile if no
// module uses it, if they differ, or if another constant has the same id.
consteval uint32_t ConstantId(std::string_view name, std::initializer_list<Module> modules) {
  std::optional<uint32_t> id;
  for (const Module module : modules) {
    const std::optional<uint32_t> here = FindConstant(module, name);
    if (!here.has_value()) continue;
    if (id.has_value() && id != here) throw "the shaders give this constant different ids";
    if (CountConstants(module, *here) != 1) throw "another constant of the shader has this id";
    id = here;
  }
  if (!id.has_value()) throw "no shader uses a constant of this name";
  for (const Module module : modules) {
    if (!FindConstant(module, name).has_value() && CountConstants(module, *id) != 0) {
      throw "one of the shaders has another constant of this id";
    }
  }
  return *id;
}

}  // namespace tandem::gpu::spirv
