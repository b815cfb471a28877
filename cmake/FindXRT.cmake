# Finds AMD's XRT: Debian's libxrt-dev (headers under /usr/include/xrt) or AMD's packages
# (/opt/xilinx/xrt).  Defines XRT::coreutil, XRT_NOOP_LIBRARY where the noop device is installed
# (Debian's 2.13), and XRT_VERSION.
find_path(XRT_INCLUDE_DIR xrt/xrt_device.h
  HINTS $ENV{XILINX_XRT}/include /opt/xilinx/xrt/include
  PATH_SUFFIXES xrt)
find_library(XRT_COREUTIL_LIBRARY xrt_coreutil HINTS $ENV{XILINX_XRT}/lib /opt/xilinx/xrt/lib)
find_library(XRT_NOOP_LIBRARY NAMES libxrt_noop.so.2 xrt_noop)

# The version that the headers in FOLDER name: 2.13 in version.h, later ones in version-slim.h.
function(tandem_xrt_version FOLDER RESULT)
  set(version "")
  foreach(header version.h xrt/detail/version.h xrt/detail/version-slim.h)
    if(EXISTS ${FOLDER}/${header} AND NOT version)
      file(STRINGS ${FOLDER}/${header} line REGEX "xrt_build_version\\[\\]")
      string(REGEX MATCH "[0-9]+\\.[0-9]+(\\.[0-9]+)?" version "${line}")
    endif()
  endforeach()
  set(${RESULT} "${version}" PARENT_SCOPE)
endfunction()
if(XRT_INCLUDE_DIR)
  tandem_xrt_version(${XRT_INCLUDE_DIR} XRT_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(XRT
  REQUIRED_VARS XRT_COREUTIL_LIBRARY XRT_INCLUDE_DIR VERSION_VAR XRT_VERSION)
if(XRT_FOUND AND NOT TARGET XRT::coreutil)
  add_library(XRT::coreutil UNKNOWN IMPORTED)
  set_target_properties(XRT::coreutil PROPERTIES
    IMPORTED_LOCATION ${XRT_COREUTIL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${XRT_INCLUDE_DIR})
endif()

# The first XRT with everything that the NPU worker can use.  XRT_CURRENT: the target of one, XRT::coreutil, or
# XRT::current where scripts/fetch-xrt unpacked it; empty where there is none.  XRT_KERNEL_INCLUDE_DIRS: headers of a
# kernel with the amdxdna driver's interface, for the emulated driver.
set(XRT_CURRENT_MINIMUM 2.18)
set(XRT_CURRENT "")
set(XRT_KERNEL_INCLUDE_DIRS "")
set(private ${CMAKE_SOURCE_DIR}/.deps/xrt)
if(XRT_FOUND AND XRT_VERSION VERSION_GREATER_EQUAL ${XRT_CURRENT_MINIMUM})
  set(XRT_CURRENT XRT::coreutil)
elseif(XRT_FOUND AND EXISTS ${private}/stamp)
  tandem_xrt_version(${private}/include XRT_PRIVATE_VERSION)
  if(NOT TARGET XRT::current)
    add_library(XRT::current SHARED IMPORTED)
    # It needs a newer C library than the linker's.  Programs run with that one: services/npu_worker/emulator/run.sh.
    set_target_properties(XRT::current PROPERTIES
      IMPORTED_LOCATION ${private}/lib/libxrt_coreutil.so.2
      INTERFACE_INCLUDE_DIRECTORIES ${private}/include
      INTERFACE_LINK_LIBRARIES uuid
      INTERFACE_LINK_OPTIONS -Wl,--allow-shlib-undefined)
  endif()
  set(XRT_CURRENT XRT::current)
endif()
if(EXISTS ${private}/kernel/drm/amdxdna_accel.h)
  set(XRT_KERNEL_INCLUDE_DIRS ${private}/kernel ${private}/kernel/${CMAKE_LIBRARY_ARCHITECTURE})
elseif(EXISTS /usr/include/drm/amdxdna_accel.h)
  set(XRT_KERNEL_INCLUDE_DIRS /usr/include)
endif()

# AMD's assembler of control code, a static library of a current XRT: XRT::aiebu.
if(XRT_CURRENT AND NOT TARGET XRT::aiebu)
  if(XRT_CURRENT STREQUAL XRT::current)
    find_library(XRT_AIEBU_LIBRARY libaiebu.a PATHS ${private}/lib NO_DEFAULT_PATH)
    find_path(XRT_AIEBU_INCLUDE_DIR aiebu/aiebu_assembler.h PATHS ${private}/include NO_DEFAULT_PATH)
    # Its C and C++ libraries are newer than the compiler's, too.
    set(aiebu_needs ${private}/lib/libstdc++.so.6 ${private}/lib/libc.so.6)
  else()
    find_library(XRT_AIEBU_LIBRARY libaiebu.a)
    find_path(XRT_AIEBU_INCLUDE_DIR aiebu/aiebu_assembler.h)
    set(aiebu_needs "")
  endif()
  if(XRT_AIEBU_LIBRARY AND XRT_AIEBU_INCLUDE_DIR)
    add_library(XRT::aiebu STATIC IMPORTED)
    set_target_properties(XRT::aiebu PROPERTIES
      IMPORTED_LOCATION ${XRT_AIEBU_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${XRT_AIEBU_INCLUDE_DIR}
      INTERFACE_LINK_LIBRARIES "${aiebu_needs}")
  endif()
endif()
