# SPDX-License-Identifier: Apache-2.0
"""Tells a whole library file from a damaged one by its own headers; nothing here loads it."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

__all__ = ["file_fault"]

_MAGIC = b"\x7fELF"
# 64 bits, least significant byte first: every machine that the libraries are built for. The loader refuses others.
_CLASS_AND_ORDER = b"\x02\x01"
# e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum of the 64-byte header.
_HEADER_BYTES = 64
_TABLES_OFFSET = 32
_TABLES = struct.Struct("<QQIHHHHH")
# p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz of a program header.
_SEGMENT = struct.Struct("<IIQQQQ")
_PT_LOAD = 1


def file_fault(path: Path) -> str | None:
    """Say what keeps a file from being a whole ELF library, or answer None.

    The system's loader maps what the program headers name without a look at the file's size, and the process dies
    of SIGBUS where it touches what is missing. Tools that rewrite a library (strip, patchelf) keep these headers true,
    so that no size needs to be recorded anywhere.
    """
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "is no regular file"
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(_HEADER_BYTES)
            if not header.startswith(_MAGIC[: len(header)]):
                return "is no ELF file"
            if len(header) < _HEADER_BYTES:
                return f"is truncated (it has {size} bytes, and an ELF header alone has {_HEADER_BYTES})"
            if header[4:6] != _CLASS_AND_ORDER:
                return None
            segments, sections, _, _, segment_bytes, segment_count, section_bytes, section_count = _TABLES.unpack_from(
                header, _TABLES_OFFSET
            )
            end = max(segments + segment_bytes * segment_count, sections + section_bytes * section_count)
            if end <= size and segment_bytes >= _SEGMENT.size:
                file.seek(segments)
                table = file.read(segment_bytes * segment_count)
                for start in range(0, len(table), segment_bytes):
                    kind, _, offset, _, _, length = _SEGMENT.unpack_from(table, start)
                    if kind == _PT_LOAD:
                        end = max(end, offset + length)
    except OSError:
        return None  # the loader's own message says why it cannot be read
    if size < end:
        return f"is truncated (it has {size} bytes, and its headers name {end})"
    return None
