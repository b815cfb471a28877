# Finds AMD's XRT: Debian's libxrt-dev (headers under /usr/include/xrt) or AMD's packages
# (/opt/xilinx/xrt).  Defines XRT::coreutil, XRT_NOOP_LIBRARY where the noop device is installed
# (Debian's 2.13), and XRT_VERSION.
find_path(XRT_INCLUDE_DIR xrt/xrt_device.h
  HINTS $ENV{XILINX_XRT}/include /opt/xilinx/xrt/include
  PATH_SUFFIXES xrt)
find_library(XRT_COREUTIL_LIBRARY xrt_coreutil HINTS $ENV{XILINX_XRT}/lib /opt/xilinx/xrt/lib)
find_library(XRT_NOOP_LIBRARY NAMES libxrt_noop.so.2 xrt_noop)
if(XRT_INCLUDE_DIR)
  foreach(header version.h xrt/detail/version.h)
    if(EXISTS ${XRT_INCLUDE_DIR}/${header} AND NOT XRT_VERSION)
      file(STRINGS ${XRT_INCLUDE_DIR}/${header} line REGEX "xrt_build_version\\[\\]")
      string(REGEX MATCH "[0-9]+\\.[0-9]+(\\.[0-9]+)?" XRT_VERSION "${line}")
    endif()
  endforeach()
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
