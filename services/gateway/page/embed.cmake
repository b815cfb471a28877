# cmake "-DFOLDERS=a;b" -DOUTPUT=page_files.cc -P embed.cmake: the files of FOLDERS as C++, each as
# it is and, where that is smaller, compressed with gzip.

# Sets `array` to the initialiser of the bytes that `hex` spells and `size` to their number.
function(bytes_of hex)
  string(LENGTH "${hex}" length)
  math(EXPR size "${length} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," array "${hex}")
  set(size ${size} PARENT_SCOPE)
  set(array "${array}" PARENT_SCOPE)
endfunction()

# Sets `hex` to the file's bytes compressed, the time of compression (bytes 4 to 7) set to 0 so that
# the same files always make the same program.
function(compress path)
  set(compressed ${OUTPUT}.gz)
  file(ARCHIVE_CREATE OUTPUT ${compressed} PATHS ${path} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
  file(READ ${compressed} hex HEX)
  file(REMOVE ${compressed})
  string(SUBSTRING "${hex}" 0 8 head)
  string(SUBSTRING "${hex}" 16 -1 tail)
  set(hex "${head}00000000${tail}" PARENT_SCOPE)
endfunction()

set(arrays "")
set(entries "")
set(number 0)
foreach(folder IN LISTS FOLDERS)
  file(GLOB names RELATIVE ${folder} ${folder}/*)
  list(REMOVE_ITEM names SHA256SUMS)
  list(SORT names)
  foreach(name IN LISTS names)
    file(READ ${folder}/${name} hex HEX)
    bytes_of("${hex}")
    string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${array}};\n")
    string(APPEND entries
      "    {\"${name}\", {reinterpret_cast<const char*>(kFile${number}), ${size}}, ")
    set(plain_size ${size})
    compress(${folder}/${name})
    bytes_of("${hex}")
    if(size LESS plain_size)
      string(APPEND arrays "constexpr unsigned char kGzip${number}[] = {${array}};\n")
      string(APPEND entries "{reinterpret_cast<const char*>(kGzip${number}), ${size}}},\n")
    else()
      string(APPEND entries "{}},\n")
    endif()
    math(EXPR number "${number} + 1")
  endforeach()
endforeach()
file(WRITE ${OUTPUT} "// Generated from ${FOLDERS}.
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
