# cmake -DINPUT=x.spv -DOUTPUT=x.h -DSYMBOL=kX -P EmbedSpirv.cmake: a SPIR-V module as a constexpr array.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," words "${hex}")
string(REGEX REPLACE "(0x........,0x........,0x........,0x........,0x........,0x........,0x........,0x........,)" "\\1\n"
       words "${words}")
file(WRITE ${OUTPUT}.part "// Generated from ${INPUT}.
#pragma once
#include <cstdint>
namespace tandem::shaders {
inline constexpr uint32_t ${SYMBOL}[] = {
${words}};
}  // namespace tandem::shaders
")
file(RENAME ${OUTPUT}.part ${OUTPUT})
