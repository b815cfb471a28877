// Push constants of vision/cut_patches.comp.
PUSH_BLOCK(CutPatchesPush)
  uint64_t pixels;       // float32 [3, image_size, image_size]
  uint64_t destination;  // activations [(image_size / PATCH)^2, stride]
  uint image_size;       // a multiple of PATCH
  uint stride;           // a multiple of 4, 3 PATCH^2 or more
PUSH_END
