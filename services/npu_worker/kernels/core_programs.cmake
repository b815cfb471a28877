# The cores' programs, once for each kind of core: what an array design's cores run, for tests of designs.
set(programs attention_64 attention_128 attention_256 gemm_q8_0 gemm_q4_0 gemm_bf16 rows)
set(sources "")
set(declared "")
set(listed "")
foreach(program ${programs})
  string(REGEX REPLACE "_.*" "" kind ${program})
  set(macros "")
  if(kind STREQUAL attention)
    string(REGEX REPLACE ".*_" "" head_dim ${program})
    set(macros "#define TANDEM_HEAD_DIM ${head_dim}\n")
  elseif(kind STREQUAL gemm)
    set(formats_q8_0 80)
    set(formats_q4_0 40)
    set(formats_bf16 16)
    string(REPLACE gemm_ "" format ${program})
    set(macros "#define TANDEM_GEMM_FORMAT ${formats_${format}}\n")
  endif()
  foreach(generation 3 4)
    set(name ${program}_program_${generation})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
    set(text "${macros}#define TANDEM_PROGRAM ${name}_of_core\n#define TANDEM_HOST_PROGRAM ${name}\n")
    if(generation EQUAL 4)
      string(APPEND text "#define AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16\n")
    endif()
    string(APPEND text "#define TANDEM_PROGRAM_SOURCE \"services/npu_worker/kernels/aie/${kind}_program.cc\"\n"
      "#include \"services/npu_worker/kernels/aie_host/core_program.inc\"\n")
    file(CONFIGURE OUTPUT ${source} CONTENT "${text}")
    list(APPEND sources ${source})
    string(APPEND declared "void ${name}(CoreLocks&, std::span<void* const>);\n")
    string(APPEND listed "    {\"${program}_program\", ${generation}, ${name}},\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/core_programs.cc CONTENT
"#include \"services/npu_worker/kernels/aie_host/core_programs.h\"
namespace tandem::npu {
${declared}
CoreProgram FindCoreProgram(std::string_view name, unsigned generation) {
  static constexpr struct {
    std::string_view name;
    unsigned generation;
    CoreProgram program;
  } kPrograms[] = {
${listed}  };
  for (const auto& entry : kPrograms) {
    if (entry.name == name && entry.generation == generation) return entry.program;
  }
  return nullptr;
}
}  // namespace tandem::npu
")
tandem_library(NAME tandem_npu_core_programs
  SRCS ${sources} ${CMAKE_CURRENT_BINARY_DIR}/core_programs.cc)
target_include_directories(tandem_npu_core_programs SYSTEM PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/aie_host)
target_compile_options(tandem_npu_core_programs PRIVATE $<$<CONFIG:Release>:-O3> $<$<CONFIG:RelWithDebInfo>:-O2>
  -Wno-psabi)
set_target_properties(tandem_npu_core_programs PROPERTIES UNITY_BUILD OFF DISABLE_PRECOMPILE_HEADERS ON)
