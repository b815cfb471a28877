# cmake -DINPUT=models.json -DOUTPUT=models_json.cc -P embed.cmake: the table as C++.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "// Generated from ${INPUT}.
#include \"services/common/pull/model_table.h\"

namespace tandem::pull {

std::string_view EmbeddedModelTable() {
  static constexpr unsigned char kBytes[] = {${bytes}};
  return {reinterpret_cast<const char*>(kBytes), sizeof(kBytes)};
}

}  // namespace tandem::pull
")
