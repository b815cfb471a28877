// Which XRT this is compiled against.  Private to this folder.
//
// NPU_HAS_HW_CONTEXT: xrt::hw_context (2.14 and later).  NPU_HAS_EXT_BO: xrt::ext and
// xrt::runlist; detected by xrt_ext.h, since 2.13 ships an experimental/xrt_kernel.h as well,
// without runlist.
#pragma once

#if __has_include(<xrt/xrt_hw_context.h>)
#include <xrt/xrt_hw_context.h>
#define NPU_HAS_HW_CONTEXT 1
#else
#define NPU_HAS_HW_CONTEXT 0
#endif

#if __has_include(<xrt/experimental/xrt_ext.h>)
#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/experimental/xrt_kernel.h>
#include <xrt/experimental/xrt_module.h>
#define NPU_HAS_EXT_BO 1
#elif __has_include(<experimental/xrt_ext.h>)
#include <experimental/xrt_elf.h>
#include <experimental/xrt_ext.h>
#include <experimental/xrt_kernel.h>
#include <experimental/xrt_module.h>
#define NPU_HAS_EXT_BO 1
#else
#define NPU_HAS_EXT_BO 0
#endif

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>
#include <xrt/xrt_uuid.h>
#if __has_include(<xrt/experimental/xrt_xclbin.h>)
#include <xrt/experimental/xrt_xclbin.h>
#else
#include <experimental/xrt_xclbin.h>
#endif
