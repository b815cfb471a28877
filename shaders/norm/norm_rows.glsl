// Which rows add_norm.comp and add_norm_wide.comp take: NormRows of kernels/launches.h.
#ifndef TANDEM_NORM_ROWS_GLSL
#define TANDEM_NORM_ROWS_GLSL
#include "step.glsl"
layout(constant_id = 6) const uint ROWS = 0;

// Where a workgroup's row lies.
struct NormRow {
  bool exists;
  uint source;    // in the rows to norm first
  uint residual;  // in the residual, read and updated
};

NormRow norm_row(uint64_t step) {
  uint index = gl_WorkGroupID.x;
  if (ROWS == kStepRows) return NormRow(index < num_rows(step), index, index);
  if (index >= num_outputs(step)) return NormRow(false, 0, 0);
  uint row = output_row(step, index);
  return NormRow(true, ROWS == kGatheredRows ? row : index, row);
}
#endif
