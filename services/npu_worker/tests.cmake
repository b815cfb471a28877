# Tests of the worker over a current XRT on the emulated driver, and over XRT 2.13 on the emulated NPU.
if(TANDEM_NPU_EMULATED_DRIVER)
  include(driver_tests.cmake)
endif()
if(NOT TANDEM_BUILD_TESTS OR NOT TANDEM_NPU_EMULATION)
  return()
endif()
tandem_test(NAME npu_worker_test SRCS npu_worker_test.cc DEPS tandem_npu_worker tandem_testing
  LABELS device)
add_dependencies(npu_worker_test tandem_npu_emulated_xrt tandem_npu_emulated_package)

tandem_test(NAME npu_kv_copy_test SRCS npu_kv_copy_test.cc DEPS tandem_npu_worker tandem_reference tandem_testing
  LABELS device)
add_dependencies(npu_kv_copy_test tandem_npu_emulated_xrt tandem_npu_emulated_package)

tandem_test(NAME npu_process_test SRCS npu_process_test.cc DEPS tandem_npu_worker
  LABELS device)
add_dependencies(npu_process_test tandem-npu-worker tandem_npu_plain_noop)

# One process, and so one ctest entry, for each environment.
add_executable(npu_fault_test npu_fault_test.cc)
target_link_libraries(npu_fault_test PRIVATE
  tandem_npu_worker tandem_testing tandem_test_paths tandem_warnings GTest::gtest GTest::gmock GTest::gtest_main)
tandem_test_units(npu_fault_test)
add_dependencies(npu_fault_test
  tandem_npu_emulated_xrt tandem_npu_emulated_package tandem_npu_plain_noop)
function(npu_fault_test name)
  add_test(NAME npu_fault.${name} COMMAND npu_fault_test --gtest_filter=NpuFaultTest.${name})
  set_tests_properties(npu_fault.${name} PROPERTIES LABELS device TIMEOUT 120
    ENVIRONMENT "${ARGN}" FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()
npu_fault_test(AHangIsUnavailableWithinTheTimeOut
  NPU_EMU_HANG_MS=20000 NPU_EMU_HANG_AFTER=3 NPU_EMU_HANG_COUNT=1)
npu_fault_test(AReloadBringsTheDeviceBack
  NPU_EMU_HANG_MS=1500 NPU_EMU_HANG_AFTER=3 NPU_EMU_HANG_COUNT=1)
npu_fault_test(TheSelfTestRefusesXrtsNoopDevice)
npu_fault_test(TheSelfTestRefusesADeviceThatDoesNothing NPU_EMU_SILENT=1)
npu_fault_test(TheSelfTestRefusesWrongAnswers NPU_EMU_WRONG_ANSWER=1)
npu_fault_test(TheSelfTestRefusesWritesOutsideTheOutput NPU_EMU_OVERRUN=1)
npu_fault_test(MemoryThatXrtRefusesIsCopiedAndTheReportSaysSo NPU_EMU_NO_USER_POINTERS=1)
npu_fault_test(AMissingEmulatorNamesTheFix)
