"""Adds a key to the file system of DIRECTORY; the directory is encrypted by it if it is empty and was not yet.

    unlock.py DIRECTORY
"""

import fcntl
import os
import struct
import sys

ADD_KEY, SET_POLICY = 0xC0506617, 0x800C6613
BY_IDENTIFIER, VERSION, AES_256_XTS, AES_256_CTS = 2, 2, 1, 4
KEY = bytes(range(64))

directory = os.open(sys.argv[1], os.O_RDONLY)
added = bytearray(struct.pack("II32sII32x", BY_IDENTIFIER, 0, b"", len(KEY), 0) + KEY)
fcntl.ioctl(directory, ADD_KEY, added)
identifier = bytes(added[8:24])
if not os.listdir(directory):
    fcntl.ioctl(directory, SET_POLICY, struct.pack("BBBB4x16s", VERSION, AES_256_XTS, AES_256_CTS, 0, identifier))
