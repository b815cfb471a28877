# Shader tools: GLSL to SPIR-V, validated, embedded as constexpr arrays.
#
# Cooperative matrices want glslang 13 and Vulkan headers 1.3.255, newer than Debian 12's.
# scripts/fetch-shader-tools fetches both privately into .deps/shader-tools; TANDEM_SHADER_TOOLS says
# which are taken.  The Vulkan loader is always the system's.
set(TANDEM_SHADER_TOOLS "auto" CACHE STRING
    "auto: .deps/shader-tools when fetched, else the system's; system; or a folder with bin/glslangValidator")
set(TANDEM_GLSLANG_MINIMUM 13)
set(TANDEM_VULKAN_HEADERS_MINIMUM 1.3.255)

set(tandem_shader_tools_dir "")
if(TANDEM_SHADER_TOOLS STREQUAL "auto")
  if(EXISTS ${CMAKE_SOURCE_DIR}/.deps/shader-tools/bin/glslangValidator)
    set(tandem_shader_tools_dir ${CMAKE_SOURCE_DIR}/.deps/shader-tools)
  endif()
elseif(NOT TANDEM_SHADER_TOOLS STREQUAL "system")
  set(tandem_shader_tools_dir ${TANDEM_SHADER_TOOLS})
endif()
unset(TANDEM_GLSLANG CACHE)
unset(TANDEM_SPIRV_VAL CACHE)
unset(Vulkan_INCLUDE_DIR CACHE)
if(tandem_shader_tools_dir)
  find_program(TANDEM_GLSLANG glslangValidator PATHS ${tandem_shader_tools_dir}/bin NO_DEFAULT_PATH REQUIRED)
  find_program(TANDEM_SPIRV_VAL spirv-val PATHS ${tandem_shader_tools_dir}/bin NO_DEFAULT_PATH REQUIRED)
  find_path(Vulkan_INCLUDE_DIR vulkan/vulkan.h PATHS ${tandem_shader_tools_dir}/include NO_DEFAULT_PATH)
else()
  find_program(TANDEM_GLSLANG glslangValidator REQUIRED)
  find_program(TANDEM_SPIRV_VAL spirv-val REQUIRED)
endif()

execute_process(COMMAND ${TANDEM_GLSLANG} --version OUTPUT_VARIABLE version_text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "Glslang Version: [0-9]+:([0-9.]+)" matched "${version_text}")
if(NOT matched OR CMAKE_MATCH_1 VERSION_LESS TANDEM_GLSLANG_MINIMUM)
  message(FATAL_ERROR "${TANDEM_GLSLANG} is version '${CMAKE_MATCH_1}', the shaders need at least "
    "${TANDEM_GLSLANG_MINIMUM}: run scripts/fetch-shader-tools and configure again")
endif()
set(TANDEM_GLSLANG_VERSION ${CMAKE_MATCH_1})

find_package(Vulkan REQUIRED)
file(STRINGS ${Vulkan_INCLUDE_DIR}/vulkan/vulkan_core.h header_version REGEX "^#define VK_HEADER_VERSION ")
file(STRINGS ${Vulkan_INCLUDE_DIR}/vulkan/vulkan_core.h header_complete
     REGEX "^#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION")
string(REGEX MATCH "[0-9]+$" header_patch "${header_version}")
string(REGEX MATCH "\\(0, *([0-9]+), *([0-9]+)" matched "${header_complete}")
set(vulkan_headers ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${header_patch})
if(vulkan_headers VERSION_LESS TANDEM_VULKAN_HEADERS_MINIMUM)
  message(FATAL_ERROR "The Vulkan headers in ${Vulkan_INCLUDE_DIR} are ${vulkan_headers}, "
    "${TANDEM_VULKAN_HEADERS_MINIMUM} or newer are needed: run scripts/fetch-shader-tools and configure again")
endif()
message(STATUS "Shaders: glslang ${TANDEM_GLSLANG_VERSION} (${TANDEM_GLSLANG}), Vulkan headers ${vulkan_headers}")

# tandem_shaders(NAME tandem_gpu_shaders
#                VARIANTS "rmsnorm norm/rmsnorm.comp" "matmul_f16 linear/matmul.comp X_F16=1 ...")
# Variants are data: "name file [define ...]".  Each becomes tandem::shaders::kName, a constexpr
# uint32_t array, in generated/shaders/<name>.h; generated/shaders/<NAME>.h includes them all.
function(tandem_shaders)
  cmake_parse_arguments(ARG "" "NAME" "VARIANTS" ${ARGN})
  set(folder ${CMAKE_BINARY_DIR}/generated/shaders)
  file(MAKE_DIRECTORY ${folder})
  set(headers "")
  set(umbrella "// Every shader of ${ARG_NAME}.\n#pragma once\n")
  foreach(variant ${ARG_VARIANTS})
    string(REPLACE " " ";" fields "${variant}")
    list(POP_FRONT fields name file)
    list(TRANSFORM fields PREPEND -D)
    string(REPLACE "_" ";" words "${name}")
    set(symbol k)
    foreach(word ${words})
      string(SUBSTRING ${word} 0 1 head)
      string(SUBSTRING ${word} 1 -1 tail)
      string(TOUPPER ${head} head)
      string(APPEND symbol ${head}${tail})
    endforeach()
    set(spirv ${folder}/${name}.spv)
    set(header ${folder}/${name}.h)
    add_custom_command(OUTPUT ${spirv}
      COMMAND ${TANDEM_GLSLANG} --quiet --target-env vulkan1.3 -I${CMAKE_SOURCE_DIR}/shaders/include -I${CMAKE_SOURCE_DIR} ${fields}
              --depfile ${spirv}.d -o ${spirv} ${CMAKE_CURRENT_SOURCE_DIR}/${file}
      COMMAND ${TANDEM_SPIRV_VAL} --target-env vulkan1.3 --scalar-block-layout ${spirv}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file} DEPFILE ${spirv}.d
      COMMENT "Compiling shader ${name}" VERBATIM)
    add_custom_command(OUTPUT ${header}
      COMMAND ${CMAKE_COMMAND} -DINPUT=${spirv} -DOUTPUT=${header} -DSYMBOL=${symbol}
              -P ${CMAKE_SOURCE_DIR}/cmake/EmbedSpirv.cmake
      DEPENDS ${spirv} ${CMAKE_SOURCE_DIR}/cmake/EmbedSpirv.cmake VERBATIM)
    list(APPEND headers ${header})
    string(APPEND umbrella "#include \"shaders/${name}.h\"  // IWYU pragma: export\n")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/${ARG_NAME}.h CONTENT "${umbrella}" @ONLY)
  add_custom_target(${ARG_NAME}_compile DEPENDS ${headers})
  add_library(${ARG_NAME} INTERFACE)
  add_dependencies(${ARG_NAME} ${ARG_NAME}_compile)
  target_include_directories(${ARG_NAME} INTERFACE ${CMAKE_BINARY_DIR}/generated)
endfunction()
