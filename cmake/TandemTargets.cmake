# Groups to build by name: scripts/test wants these and no more in its sanitizer build.
add_custom_target(unit_tests)
add_custom_target(fuzzers)

# tandem_library(NAME tandem_base SRCS a.cc DEPS absl::status)
# One library a folder.  Headers are included from the repository root
# ("services/common/base/check.h").  A library with no SRCS is header-only.
function(tandem_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS})
    target_include_directories(${ARG_NAME} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
    target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE tandem_warnings ${ARG_PRIVATE_DEPS})
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_include_directories(${ARG_NAME} INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
    target_link_libraries(${ARG_NAME} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# tandem_executable(NAME tandem-loader SRCS main.cc DEPS ...): lands in build/<preset>/bin.
function(tandem_executable)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_include_directories(${ARG_NAME} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} tandem_warnings)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# tandem_test(NAME kv_block_pool_test SRCS kv_block_pool_test.cc DEPS tandem_kv [LABELS unit] [TIMEOUT 60])
# One ctest entry a binary.  Labels: unit (seconds, default), device (needs a Vulkan
# driver), model (runs a test model), cluster (starts services).
function(tandem_test)
  if(NOT TANDEM_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} tandem_warnings GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${ARG_NAME} PRIVATE
    TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TANDEM_BINARY_DIR="${CMAKE_BINARY_DIR}"
    TANDEM_TEST_DATA_DIR="${TANDEM_TEST_DATA_DIR}")
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(unit_tests ${ARG_NAME})
  endif()
  if(TANDEM_SANITIZE MATCHES "thread")
    list(APPEND ARG_ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp")
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# tandem_fuzzer(NAME gguf_fuzzer SRCS gguf_fuzzer.cc DEPS tandem_formats CORPUS dir)
# Built when TANDEM_BUILD_FUZZERS is on.
function(tandem_fuzzer)
  if(NOT TANDEM_BUILD_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME;CORPUS" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_compile_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} tandem_warnings)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
  add_dependencies(fuzzers ${ARG_NAME})
endfunction()
