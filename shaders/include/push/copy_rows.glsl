// Push constants of memory/copy_rows.comp.
PUSH_BLOCK(CopyRowsPush)
  uint64_t count;  // address of the number of rows
  uint64_t source;
  uint64_t destination;
  uint cols;
  uint source_stride;  // elements
  uint destination_stride;
  uint first_row;  // in the destination, subtracted from the count
PUSH_END
