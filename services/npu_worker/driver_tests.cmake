# The worker over a current XRT, on the emulated driver (emulator/driver/).
set(worker tandem_npu_worker${TANDEM_NPU_CURRENT})
npu_driver_test(NAME npu_driver_worker_test SRCS npu_array_worker_test.cc
  DEPS ${worker} tandem_reference tandem_testing nlohmann_json::nlohmann_json)
npu_driver_run(NAME npu1_driver_worker_test TEST npu_driver_worker_test ENVIRONMENT NPU_EMU_PROFILE=npu1)

npu_driver_test(NAME npu_driver_layer_test SRCS npu_array_layer_test.cc DEPS ${worker} tandem_testing)
npu_driver_run(NAME npu1_driver_layer_test TEST npu_driver_layer_test ENVIRONMENT NPU_EMU_PROFILE=npu1)

# Once more with a context for each operator.
npu_driver_run(NAME npu_driver_separate_layer_test TEST npu_driver_layer_test ENVIRONMENT NPU_DRIVER_PACKAGE=separate)
npu_driver_run(NAME npu1_driver_separate_layer_test TEST npu_driver_layer_test
  ENVIRONMENT NPU_EMU_PROFILE=npu1 NPU_DRIVER_PACKAGE=separate)

# And with control code as ELFs.
npu_driver_run(NAME npu_driver_elf_layer_test TEST npu_driver_layer_test ENVIRONMENT NPU_DRIVER_PACKAGE=elf)
npu_driver_run(NAME npu1_driver_elf_worker_test TEST npu_driver_worker_test
  ENVIRONMENT NPU_EMU_PROFILE=npu1 NPU_DRIVER_PACKAGE=elf)

npu_driver_test(NAME npu_driver_context_test SRCS npu_array_context_test.cc DEPS ${worker} tandem_testing)
npu_driver_run(NAME npu1_driver_context_test TEST npu_driver_context_test ENVIRONMENT NPU_EMU_PROFILE=npu1)

npu_driver_test(NAME npu_driver_kv_copy_test SRCS npu_kv_copy_test.cc DEPS ${worker} tandem_reference tandem_testing)
npu_driver_run(NAME npu1_driver_kv_copy_test TEST npu_driver_kv_copy_test ENVIRONMENT NPU_EMU_PROFILE=npu1)

npu_driver_test(NAME npu_driver_conformance_test SRCS ${CMAKE_SOURCE_DIR}/tests/conformance/npu_array_backend.cc
  DEPS ${worker} tandem_worker_conformance tandem_worker_suite TIMEOUT 900)
npu_driver_run(NAME npu1_driver_conformance_test TEST npu_driver_conformance_test ENVIRONMENT NPU_EMU_PROFILE=npu1
  TIMEOUT 900)

# The program itself takes the emulated driver's NPU for one, and says that its kernels are not.
set(program tandem-npu-worker)
if(TANDEM_NPU_CURRENT)
  set(program npu_worker_current)
endif()
npu_driver_run(NAME npu_driver_probe TEST ${program}
  ARGUMENTS --npu=require --probe --kernels ${CMAKE_BINARY_DIR}/lib/tandem/npu-driver/npu4/package)
set_tests_properties(npu_driver_probe PROPERTIES PASS_REGULAR_EXPRESSION "NPU emulated on the host below XRT 2")

# The program's exit codes and notes.
tandem_test(NAME npu_driver_process_test SRCS npu_driver_process_test.cc DEPS tandem_rpc_socket tandem_base
  LABELS device npu_driver TIMEOUT 240)
target_compile_definitions(npu_driver_process_test PRIVATE NPU_WORKER_PROGRAM="bin/${program}")
add_dependencies(npu_driver_process_test ${program} tandem_npu_emulated_driver tandem_npu_driver_packages)

# One process, and so one ctest entry, for each environment.
add_executable(npu_driver_fault_test npu_driver_fault_test.cc)
target_link_libraries(npu_driver_fault_test PRIVATE
  ${worker} tandem_testing tandem_test_paths tandem_warnings GTest::gtest GTest::gmock GTest::gtest_main)
tandem_test_units(npu_driver_fault_test)
add_dependencies(npu_driver_fault_test tandem_npu_emulated_driver tandem_npu_driver_packages tandem_npu_emulated_package)
function(npu_driver_fault_test name)
  npu_driver_run(NAME npu_driver_fault.${name} TEST npu_driver_fault_test
    ARGUMENTS --gtest_filter=NpuDriverFaultTest.${name} ENVIRONMENT ${ARGN})
endfunction()
npu_driver_fault_test(ACommandOfThreeSecondsIsGivenUpAndTheWorkerRecovers
  NPU_EMU_HANG_MS=3000 NPU_EMU_HANG_AFTER=9 NPU_EMU_HANG_COUNT=1)
npu_driver_fault_test(AHangOfOutIsGivenUpAndTheWorkerRecovers
  NPU_EMU_HANG_MS=3000 NPU_EMU_HANG_AFTER=10 NPU_EMU_HANG_COUNT=1)
npu_driver_fault_test(AHangWithinFfnLeavesTheResidualAndTheWorkerRecovers
  NPU_EMU_HANG_MS=3000 NPU_EMU_HANG_AFTER=12 NPU_EMU_HANG_COUNT=1)
npu_driver_run(NAME npu_driver_fault.AHangWithinFfnOfSeparateContexts TEST npu_driver_fault_test
  ARGUMENTS --gtest_filter=NpuDriverFaultTest.AHangWithinFfnLeavesTheResidualAndTheWorkerRecovers
  ENVIRONMENT NPU_DRIVER_PACKAGE=separate NPU_EMU_HANG_MS=3000 NPU_EMU_HANG_AFTER=10 NPU_EMU_HANG_COUNT=1)
npu_driver_fault_test(AnErrorWithinAListLeavesTheResidualAndTheWorkerRecovers NPU_EMU_ERROR_AFTER=12)
npu_driver_run(NAME npu_driver_fault.AnErrorWithinAListOfElfs TEST npu_driver_fault_test
  ARGUMENTS --gtest_filter=NpuDriverFaultTest.AnErrorWithinAListLeavesTheResidualAndTheWorkerRecovers
  ENVIRONMENT NPU_DRIVER_PACKAGE=elf NPU_EMU_ERROR_AFTER=12)
npu_driver_fault_test(TheWorkersOwnTimeIsOverWithinAList
  NPU_EMU_HANG_MS=3000 NPU_EMU_HANG_AFTER=12 NPU_EMU_HANG_COUNT=1)
npu_driver_fault_test(ADeviceThatIsGoneBeforeAListLeavesTheResidual NPU_EMU_GONE_AFTER=15)
npu_driver_fault_test(TheWorkersOwnTimeIsOverBeforeTheDriversIs
  NPU_EMU_HANG_MS=3000 NPU_EMU_HANG_AFTER=9 NPU_EMU_HANG_COUNT=1)
npu_driver_fault_test(AFailedFirstCheckOfHealthIsTriedAgain
  NPU_EMU_HANG_MS=3000 NPU_EMU_HANG_AFTER=9 NPU_EMU_HANG_COUNT=1)
npu_driver_fault_test(ALostInterruptEndsTheStepAndTheWorkerRecovers NPU_EMU_LOST_INTERRUPT=10)
npu_driver_fault_test(ARefusedStartEndsTheStepAndTheWorkerRecovers NPU_EMU_REFUSE_SUBMIT=9)
npu_driver_fault_test(ACommandThatEndsWithAnErrorEndsTheStepAndTheWorkerRecovers NPU_EMU_ERROR_AFTER=9)
npu_driver_fault_test(ADeviceThatIsGoneIsUnavailable NPU_EMU_GONE_AFTER=10)
npu_driver_fault_test(AFirmwareThatDoesNotAnswerNamesTheFix NPU_EMU_FIRMWARE_TIMEOUT=1)
npu_driver_fault_test(AnotherProcessThatHoldsAllContextsIsNamed NPU_EMU_PROFILE=npu1 NPU_EMU_OTHER_CONTEXTS=6)
npu_driver_fault_test(TheSeventhContextOfNpu1NamesTheFix NPU_EMU_PROFILE=npu1)
npu_driver_fault_test(ContextsOfAnUnloadedPlanAreClosed NPU_EMU_PROFILE=npu1 NPU_DRIVER_PACKAGE=separate)
npu_driver_fault_test(OneContextThatIsLeftIsEnoughForAnXclbinOfAllOperators
  NPU_EMU_PROFILE=npu1 NPU_EMU_OTHER_CONTEXTS=5)
npu_driver_fault_test(AnXclbinForEachOperatorNeedsMoreContexts
  NPU_EMU_PROFILE=npu1 NPU_EMU_OTHER_CONTEXTS=5 NPU_DRIVER_PACKAGE=separate)
npu_driver_fault_test(InstructionsBeyondTheHeapNameTheFix NPU_EMU_PROFILE=npu1)
npu_driver_fault_test(TheSelfTestRefusesAnArrayThatDoesNothing NPU_EMU_SILENT=1)
npu_driver_fault_test(TheSelfTestRefusesListsOfOneKernel NPU_EMU_CHAIN_OF_ONE_KERNEL=1)
npu_driver_fault_test(TheSelfTestRefusesWrongAnswers NPU_EMU_WRONG_ANSWER=1)
npu_driver_fault_test(TheSelfTestRefusesWritesOutsideTheOutput NPU_EMU_OVERRUN=1)
npu_driver_fault_test(APackageForAnotherNpuIsRefusedByName NPU_EMU_PROFILE=npu1)
npu_driver_fault_test(APackageOfTheInterfaceBeforeIsRefusedByName)
