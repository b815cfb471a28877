// Instructions of RDNA 3 that are not executed: no compute kernel of RADV has them.  A wave that
// meets one faults with its name.
#include <string_view>

#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

struct Missing {
  std::string_view encoding;
  uint16_t first, last;  // numbers
  const char* name;      // of all of them
};

constexpr Missing kMissing[] = {
    {"SOPK", 22, 22, "s_subvector_loop_begin"},
    {"SOPK", 23, 23, "s_subvector_loop_end"},
    {"SOP1", 74, 74, "s_rfe_b64"},
    {"SOP1", 76, 76, "s_sendmsg_rtn_b32"},
    {"SOPP", 55, 55, "s_sendmsghalt"},
    {"SMEM", 34, 34, "s_atc_probe"},
    {"SMEM", 35, 35, "s_atc_probe_buffer"},
    {"VOP3", 536, 536, "v_mullit_f32"},
    {"VOP3", 570, 570, "v_qsad_pk_u16_u8"},
    {"VOP3", 571, 571, "v_mqsad_pk_u16_u8"},
    {"VOP3", 573, 573, "v_mqsad_u32_u8"},
    {"VOP3", 815, 815, "v_trig_preop_f64"},
    {"GDS", 25, 25, "ds_gws_init"},
    {"GDS", 27, 27, "ds_gws_sema_br"},
    {"GDS", 29, 29, "ds_gws_barrier"},
    {"GDS", 63, 63, "ds_ordered_count"},
    {"GDS", 122, 122, "ds_add_gs_reg_rtn"},
    {"GDS", 123, 123, "ds_sub_gs_reg_rtn"},
    {"DS", 126, 126, "ds_condxchg32_rtn_b64"},
    {"DS", 173, 173, "ds_bvh_stack_rtn_b32"},
    {"FLAT", 40, 40, "global_load_addtid_b32"},
    {"FLAT", 41, 41, "global_store_addtid_b32"},
    {"MUBUF", 0, 3, "buffer_load_format"},
    {"MUBUF", 4, 7, "buffer_store_format"},
    {"MUBUF", 8, 11, "buffer_load_d16_format"},
    {"MUBUF", 12, 15, "buffer_store_d16_format"},
    {"MUBUF", 38, 38, "buffer_load_d16_hi_format_x"},
    {"MUBUF", 39, 39, "buffer_store_d16_hi_format_x"},
    {"MUBUF", 45, 50, "buffer_load_lds"},
    {"MTBUF", 0, 3, "tbuffer_load_format"},
    {"MTBUF", 4, 7, "tbuffer_store_format"},
    {"MTBUF", 8, 11, "tbuffer_load_d16_format"},
    {"MTBUF", 12, 15, "tbuffer_store_d16_format"},
    {"MIMG", 0, 255, "image instruction"},
    {"EXP", 0, 255, "exp"},
    {"VINTERP", 0, 255, "v_interp"},
};

}  // namespace

const char* NameOfMissing(const char* encoding, uint32_t op) {
  for (const Missing& missing : kMissing) {
    if (missing.encoding == encoding && op >= missing.first && op <= missing.last) {
      return missing.name;
    }
  }
  return nullptr;
}

}  // namespace tandem::rdna
