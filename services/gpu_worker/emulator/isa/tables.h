// The operations of each encoding, as data.  A decoder looks an operation up by its number.
#pragma once

#include "services/gpu_worker/emulator/isa/vector_alu.h"

namespace tandem::rdna {

// Numbers of VOP3's encoding: compares from 0, VOP2 from 256, VOP1 from 384, VOP3 alone from 512.
inline constexpr int kVop2Base = 256;
inline constexpr int kVop1Base = 384;

Table CompareTable();      // vopc.cc
Table MoveTable();         // vop1_convert.cc
Table FloatTable();        // vop1_float.cc
Table Vop2Table();         // vop2.cc
Table Vop3IntegerTable();  // vop3_integer.cc
Table Vop3ShortTable();    // vop3_integer.cc: 16 bits
Table Vop3FloatTable();    // vop3_float.cc
Table CarryTable();        // vop_carry.cc: operations with a second, scalar result or source
Table LaneTable();         // lanes.cc: operations across lanes

Table PackedTable();   // vop3p.cc
Table HalfDotTable();  // vop3p.cc; numbers of VOP3
Table MatrixTable();   // wmma.cc; numbers of VOP3P

Table Sop1Table();           // sop1.cc
Table Sop2Table();           // sop2.cc
Table SopFloatTable();       // sop_float.cc: of SOP2
Table SopFloatUnaryTable();  // sop_float.cc: of SOP1
Table SopkTable();           // sopk.cc
Table SopcTable();           // sopc.cc
Table SoppTable();           // sopp.cc
Table ScalarLoadTable();     // smem.cc

Table LdsTable();           // ds.cc
Table LdsAtomicTable();     // ds_atomic.cc
Table LdsLaneTable();       // ds_lanes.cc
Table GlobalTable();        // global.cc; of FLAT, scratch and global memory alike
Table GlobalAtomicTable();  // global_atomic.cc
Table BufferTable();        // buffer.cc

// The name of an operation that exists and is not executed; nullptr: there is none.  `encoding` is
// one of VOP3's, DS's, MUBUF's and so on, by its name.
const char* NameOfMissing(const char* encoding, uint32_t op);  // missing.cc

// Executes both halves of a VOPD.
void RunDual(Wave& wave, const Instruction& instruction);
// The name of a VOPD's half; nullptr: not known.
const char* DualName(uint32_t op, bool second);

}  // namespace tandem::rdna
