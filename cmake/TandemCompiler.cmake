# Language level, warnings and sanitizers for every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")

# A compiler cache is used where one has been begun, that is where the folder CCACHE_DIR or ~/.cache/ccache exists.
if(NOT DEFINED TANDEM_CCACHE)
  set(cache OFF)
  find_program(ccache ccache NO_CACHE)
  if(ccache)
    execute_process(COMMAND ${ccache} --get-config cache_dir OUTPUT_VARIABLE folder ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(EXISTS "${folder}")
      set(cache ${ccache})
    endif()
  endif()
  set(TANDEM_CCACHE ${cache} CACHE STRING "What compilers are run through, such as ccache; or OFF")
endif()
# Messages name source files as in the repository: the same program comes from every checkout.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/scripts/compile-cached ${TANDEM_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  else()
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()
find_program(TANDEM_LLD ld.lld)
if(TANDEM_LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_link_options(-fuse-ld=lld)
endif()

# GCC's garbage collection takes an eighth of its time with its default of 128 MB; few units pass this.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=524288")
endif()
# Constants are looked up in the embedded SPIR-V at compile time (gpu_worker/kernels/spirv.h).
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-fconstexpr-steps=500000000)
endif()
# For all, or a precompiled header could not be: it defines a macro.
add_compile_options(-pthread)

# Warnings are an interface library so that generated code is spared them.
add_library(tandem_warnings INTERFACE)
target_compile_options(tandem_warnings INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
# GCC reports copies within the standard library falsely once it has inlined them (GCC bug 105651 and
# its kin; which ones depends on its version).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tandem_warnings INTERFACE
    -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()

if(TANDEM_SANITIZE)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
endif()
# Of the instrumented libraries under fuzz targets, which tests link as well.
if(TANDEM_BUILD_FUZZERS)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
