"""Reads an xclbin's kernels (their names, and the memory groups that their arguments are connected to) and columns."""

import struct

HEADER_BYTES = 456
SECTION_BYTES = 40
NUM_SECTIONS_AT = 448
CONNECTIVITY, IP_LAYOUT, GROUP_CONNECTIVITY, AIE_PARTITION = 7, 8, 27, 32


class XclbinError(ValueError):
    pass


def sections(data):
    """The sections' bytes, by kind."""
    if data[:7] != b"xclbin2" or len(data) < HEADER_BYTES:
        raise XclbinError("not an xclbin")
    found = {}
    (count,) = struct.unpack_from("<I", data, NUM_SECTIONS_AT)
    for i in range(count):
        at = HEADER_BYTES + SECTION_BYTES * i
        if at + SECTION_BYTES > len(data):
            raise XclbinError(f"{count} sections do not fit into {len(data)} bytes")
        (kind,) = struct.unpack_from("<I", data, at)
        offset, size = struct.unpack_from("<QQ", data, at + 24)
        if offset + size > len(data):
            raise XclbinError(f"section {kind} ends after the file")
        found.setdefault(kind, data[offset : offset + size])
    return found


def read(path):
    """{kernel: {argument's index: group}}, and the number of columns."""
    with open(path, "rb") as file:
        found = sections(file.read())
    connectivity = found.get(GROUP_CONNECTIVITY, found.get(CONNECTIVITY))
    if IP_LAYOUT not in found or AIE_PARTITION not in found or connectivity is None:
        raise XclbinError("it has no kernels, no connectivity or no columns")
    try:
        (columns,) = struct.unpack_from("<H", found[AIE_PARTITION], 32)
        (count,) = struct.unpack_from("<i", found[IP_LAYOUT])
        # Name and instance: "gemm_q8_0:gemm_q8_0".
        names = [
            struct.unpack_from("<64s", found[IP_LAYOUT], 8 + 80 * i + 16)[0].split(b"\0")[0].decode().split(":")[0]
            for i in range(count)
        ]
        result = {name: {} for name in names}
        (count,) = struct.unpack_from("<i", connectivity)
        for i in range(count):
            argument, kernel, group = struct.unpack_from("<iii", connectivity, 4 + 12 * i)
            result[names[kernel]][argument] = group
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise XclbinError(f"malformed: {error}") from error
    return result, columns
