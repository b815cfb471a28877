// Push constants of memory/copy_pages.comp.
PUSH_BLOCK(CopyPagesPush)
  uint64_t table;  // address of [num_pages] pairs of addresses: from, to
  uint num_pages;
  uint units;  // of a page, 16 bytes each
PUSH_END
