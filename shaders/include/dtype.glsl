// tandem::DType and what belongs to a format, from the files that C++ reads too.
#ifndef TANDEM_DTYPE_GLSL
#define TANDEM_DTYPE_GLSL

const uint
#include "services/common/tensor/dtype_numbers.inc"
    ;

const int kIq4NlValues[16] = {
#include "services/common/tensor/iq4_nl_values.inc"
};
#endif
