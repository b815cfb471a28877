// Which vision encoder (llama.cpp's `mmproj` file) belongs to a GGUF model, by the files' names.
//
// The loader chooses with it among the files beside a model, `tandem pull` among a repository's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Whether a file of this name is an mmproj file: "mmproj" in it and ".gguf" at its end, letter case
// aside.
bool IsMmprojName(std::string_view name);

// Whether all words of the mmproj file's name, but for "mmproj", "model" and number formats, are
// words of the model's.  REQUIRES names without folders that end in ".gguf".
bool MmprojBelongsTo(std::string_view mmproj, std::string_view model);

// Of the mmproj files among `names`, the one to use for the model `model`: it belongs to the model
// and has the most words; then the best format, which is F16 before BF16, F32, Q8_0 and others;
// then the first in alphabetical order.  F16 comes first because llama.cpp writes it by default: it
// has half of F32's size and holds BF16's numbers except for the smallest.  nullopt: none belongs.
std::optional<std::string> ChooseMmproj(std::string_view model,
                                        const std::vector<std::string>& names);

}  // namespace tandem
