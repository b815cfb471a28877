// Writes the seed corpora again: make_corpus tests/fuzz/corpus.  Their files are kept in the
// repository, so this runs only when a format's reader learns something new.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "services/image_decoder/testing/picture_files.h"
#include "services/loader/formats/ggml_types.h"
#include "services/loader/formats/testing/gguf_builder.h"
#include "services/loader/formats/testing/release_builder.h"
#include "services/loader/formats/testing/vision_builder.h"

namespace tandem::loader::testing {
namespace {

void Write(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
}

void WriteGguf(const std::filesystem::path& folder) {
  Write(folder / "small.gguf", SmallGguf().Build());
  GgufBuilder version2 = SmallGguf();
  version2.version = 2;
  version2.alignment = 64;
  version2.SetU32("general.alignment", 64);
  version2.SetString("gemma3.rope.scaling.type", "linear");
  version2.SetF32("gemma3.rope.scaling.factor", 8.0f);
  version2.SetF32("gemma3.attention.scale", 0.25f);
  version2.Set("gemma3.attention.sliding_window_pattern", GgufType::kArray,
               PackedArray<uint8_t>(GgufType::kBool, {1}));
  Write(folder / "version2.gguf", version2.Build());
  GgufBuilder types;
  for (uint32_t type = 0; type < kNumGgufTypes; ++type) {
    const auto value_type = static_cast<GgufType>(type);
    if (value_type == GgufType::kString || value_type == GgufType::kArray) continue;
    types.Set(std::string(GgufTypeName(value_type)), value_type,
              Packed(uint64_t{1})
                  .substr(0, type == 10 || type == 11 || type == 12 ? 8
                             : type < 2 || type == 7                ? 1
                             : type < 4                             ? 2
                                                                    : 4));
  }
  types.Set("nested", GgufType::kArray,
            Packed(uint32_t{9}) + Packed(uint64_t{2}) + PackedArray<float>(GgufType::kF32, {1, 2}) +
                PackedArray<uint64_t>(GgufType::kU64, {3}));
  for (const uint32_t ggml_type : {8u, 2u, 14u, 30u}) {
    types.tensors.push_back({"t" + std::to_string(ggml_type),
                             {256},
                             ggml_type,
                             std::string(RowBytes(*DTypeOfGgml(ggml_type), 256), 'x'),
                             {}});
  }
  Write(folder / "types.gguf", types.Build());
}

void WriteSafetensors(const std::filesystem::path& folder) {
  const Release release = SmallRelease();
  Write(folder / "small.safetensors", SafetensorsFile(release.tensors));
  Release image = release;
  image.Rename("language_model.model.");
  image.tensors.push_back({"lm_head.weight", "F32", {10, 8}, std::string(320, 'x')});
  image.tensors.push_back({"vision_tower.x", "I64", {}, std::string(8, 'x')});
  image.tensors.push_back({"empty", "F16", {0, 3}, ""});
  Write(folder / "image.safetensors", SafetensorsFile(image.tensors));
}

void WriteConfigs(const std::filesystem::path& folder) {
  Release release = SmallRelease();
  const std::string separator(1, '\0');
  Write(folder / "old.json",
        release.files["config.json"] + separator + release.files["generation_config.json"]);
  Write(folder / "nested.json", R"({"model_type": "gemma3", "eos_token_id": [1, 106],
"text_config": {"model_type": "gemma3_text", "num_hidden_layers": 2, "hidden_size": 64,
"layer_types": ["sliding_attention", "full_attention"], "tie_word_embeddings": false,
"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}})");
  Write(folder / "scaled.json", R"({"model_type": "gemma3_text", "sliding_window_pattern": 3,
"rope_scaling": {"type": "linear", "factor": 4}, "hidden_activation": "gelu_pytorch_tanh",
"attention_bias": false, "final_logit_softcapping": null, "query_pre_attn_scalar": 168})");
}

void WriteTokenizers(const std::filesystem::path& folder) {
  Write(folder / "small.model", TokenizerModelFile(SmallPieces()));
  Write(folder / "foreign_fields.model",
        WireField(77, "unknown") + WireField(78, 1.0f) + WireVarint(79 << 3 | 1) + Packed(2.0) +
            TokenizerModelFile({{"x", -1, 1}, {"\xe2\x96\x81y", -2, 5}}));
}

void WriteVision(const std::filesystem::path& folder) {
  Write(folder / "f16.gguf", SmallMmproj().Build());
  GgufBuilder defaults = SmallMmproj(8);  // Q8_0
  defaults.RemoveKey("clip.vision.image_mean");
  defaults.RemoveKey("clip.vision.attention.layer_norm_epsilon");
  Write(folder / "defaults.gguf", defaults.Build());
}

void WritePictures(const std::filesystem::path& folder) {
  using namespace tandem::testing;
  const TestPicture picture = TestPicture::Pattern(17, 12);
  const std::string exif = ExifBlock(6);
  Write(folder / "rgb.png", PngFile(picture, {.exif = exif}));
  Write(folder / "interlaced.png", PngFile(picture, {.alpha = true, .interlaced = true}));
  Write(folder / "grey16.png", PngFile(picture, {.grey = true, .sixteen_bits = true}));
  Write(folder / "baseline.jpg", JpegFile(picture, {.exif = exif}));
  Write(folder / "progressive.jpg", JpegFile(picture, {.progressive = true}));
  Write(folder / "cmyk.jpg", JpegFile(picture, {.cmyk = true}));
  Write(folder / "lossless.webp", WebpFile(picture, {.exif = exif}));
  Write(folder / "lossy.webp", WebpFile(picture, {.lossless = false}));
  Write(folder / "animated.webp", WebpFile(picture, {.animated = true}));
  Write(folder / "plain.gif", GifFile(picture));
  Write(folder / "frames.gif",
        GifFile(picture, {.interlaced = true, .num_frames = 2, .left = 3, .transparent = 1}));
  for (const uint32_t bits : {8u, 16u, 24u, 32u}) {
    Write(folder / (std::to_string(bits) + ".bmp"), BmpFile(picture, {.bits = bits}));
  }
  Write(folder / "masks.bmp", BmpFile(picture, {.bits = 32, .top_down = true, .bit_fields = true}));
}

}  // namespace
}  // namespace tandem::loader::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  using namespace tandem::loader::testing;
  WriteGguf(folder / "gguf");
  WriteSafetensors(folder / "safetensors");
  WriteConfigs(folder / "config");
  WriteTokenizers(folder / "spm");
  WriteVision(folder / "vision");
  WritePictures(folder / "picture");
  return 0;
}
