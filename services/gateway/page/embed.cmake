# cmake -DFOLDER=site -DOUTPUT=page_files.cc -P embed.cmake: the files of FOLDER as C++.
file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT names)
set(arrays "")
set(entries "")
set(number 0)
foreach(name IN LISTS names)
  file(READ ${FOLDER}/${name} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR size "${length} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${bytes}};\n")
  string(APPEND entries
    "    {\"${name}\", {reinterpret_cast<const char*>(kFile${number}), ${size}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Generated from ${FOLDER}.
#include \"services/gateway/page/page_routes.h\"

namespace tandem::gateway {
namespace {

${arrays}
const PageFile kPageFiles[] = {
${entries}};

}  // namespace

std::span<const PageFile> PageFiles() { return kPageFiles; }

}  // namespace tandem::gateway
")
