# Precompiled headers: what most units include and is not written here, read once for each kind of target.  Units still
# include all that they use: builds with TANDEM_PRECOMPILED_HEADERS=OFF are without, and so is every target and file
# that is set so by DISABLE_PRECOMPILE_HEADERS or SKIP_PRECOMPILE_HEADERS.
option(TANDEM_PRECOMPILED_HEADERS "Precompile the libraries' headers" ON)

set(standard_headers <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream>
  <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <utility>
  <vector> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/time/clock.h> <absl/time/time.h>)
set(rpc_headers <grpcpp/grpcpp.h> <nlohmann/json.hpp> <tandem/loader/v1/loader.grpc.pb.h>
  <tandem/v1/generation.grpc.pb.h> <tandem/worker/v1/worker.grpc.pb.h>)

# tandem_precompiled(NAME x KIND test TARGETS ... HEADERS <vector> ... DEPS GTest::gtest REST rest): gives those of
# TARGETS that inherit all of DEPS one precompiled header, and sets REST to the others.  TARGETS are all of KIND.
#
# The header is compiled with what DEPS bring, so each of its users inherits the same macros and options, whatever
# these are in this release of a package.  GCC refuses a header with a macro that its user lacks; a user may have more.
function(tandem_precompiled)
  cmake_parse_arguments(ARG "" "NAME;KIND;REST" "TARGETS;HEADERS;DEPS" ${ARGN})
  set(users "")
  set(rest "")
  foreach(target ${ARG_TARGETS})
    tandem_inherited(${target} inherited)
    set(missing ${ARG_DEPS})
    list(REMOVE_ITEM missing ${inherited})
    if(missing)
      list(APPEND rest ${target})
    else()
      list(APPEND users ${target})
    endif()
  endforeach()
  set(${ARG_REST} ${rest} PARENT_SCOPE)
  if(NOT users)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/${ARG_NAME}.cc CONTENT "")
  add_library(${ARG_NAME} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/${ARG_NAME}.cc)
  target_link_libraries(${ARG_NAME} PRIVATE tandem_warnings ${ARG_DEPS})
  cmake_language(CALL tandem_${ARG_KIND}_units ${ARG_NAME})
  target_precompile_headers(${ARG_NAME} PRIVATE ${ARG_HEADERS})
  foreach(target ${users})
    target_precompile_headers(${target} REUSE_FROM ${ARG_NAME})
    # A header that does not fit is read as text: slower, and no reason to stop a build.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-error=invalid-pch)
    endif()
  endforeach()
endfunction()

# Called when every target is of its kind.
function(tandem_precompile_headers)
  if(NOT TANDEM_PRECOMPILED_HEADERS)
    return()
  endif()
  if(TANDEM_BUILD_TESTS)
    set(test_headers <random> <gmock/gmock.h> <gtest/gtest.h>)
    set(test_deps GTest::gtest GTest::gmock)
    set(computing_headers ${test_headers})
    set(computing_deps ${test_deps})
  endif()
  foreach(kind library fuzzed unhurried program test computing)
    get_property(all GLOBAL PROPERTY TANDEM_${kind}_TARGETS)
    set(targets "")
    foreach(target ${all})
      get_target_property(disabled ${target} DISABLE_PRECOMPILE_HEADERS)
      if(NOT disabled)
        list(APPEND targets ${target})
      endif()
    endforeach()
    set(name tandem_precompiled_${kind})
    set(headers ${standard_headers} ${${kind}_headers})
    tandem_precompiled(NAME ${name}_rpc KIND ${kind} TARGETS ${targets} HEADERS ${headers} ${rpc_headers}
      DEPS ${${kind}_deps} tandem_proto_grpc REST plain)
    tandem_precompiled(NAME ${name} KIND ${kind} TARGETS ${plain} HEADERS ${headers} DEPS ${${kind}_deps} REST none)
  endforeach()
endfunction()
