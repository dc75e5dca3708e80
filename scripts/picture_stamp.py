#!/usr/bin/env python3
"""picture_stamp.py [--check] PAGE.html PICTURE.png...: writes into each picture what it was drawn from.

That is a hash of the page's summary (its figures, verdict and outline of live memory) and of the
viewer's sources, in a text chunk of the PNG named "tenon-page". With --check it writes nothing:
prints the pictures that were drawn from another page, and then exits with 1.
"""
import hashlib
import pathlib
import re
import struct
import sys
import zlib

KEY = b"tenon-page\0"
SIGNATURE_BYTES = 8
AFTER_HEADER = SIGNATURE_BYTES + 25  # the signature and the chunk IHDR, which comes first


def stamp_of(page):
    """The hash of what a page of `tenon view` shows."""
    text = page.read_text(encoding="utf-8")
    parts = [re.search(r'<meta name="tenon-sources" content="(\w+)">', text),
             re.search(r'id="tenon-summary"[^>]*>(.*?)</script>', text, re.DOTALL)]
    if None in parts:
        sys.exit(f"{page} is no page of tenon view")
    return hashlib.sha256("\n".join(part[1] for part in parts).encode()).hexdigest().encode()


def chunks(png):
    """(kind, data, whole chunk) for each chunk of a PNG."""
    at = SIGNATURE_BYTES
    while at < len(png):
        end = at + 12 + struct.unpack(">I", png[at:at + 4])[0]
        yield png[at + 4:at + 8], png[at + 8:end - 4], png[at:end]
        at = end


def is_stamp(kind, data):
    return kind == b"tEXt" and data.startswith(KEY)


def stamped(png, stamp):
    """The same picture with this stamp alone."""
    rest = b"".join(whole for kind, data, whole in chunks(png) if not is_stamp(kind, data))
    text = b"tEXt" + KEY + stamp
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    header = AFTER_HEADER - SIGNATURE_BYTES
    return png[:SIGNATURE_BYTES] + rest[:header] + chunk + rest[header:]


def main():
    check = "--check" in sys.argv
    page, *pictures = [pathlib.Path(word) for word in sys.argv[1:] if word != "--check"]
    stamp = stamp_of(page)
    stale = 0
    for picture in pictures:
        png = picture.read_bytes()
        if not check:
            picture.write_bytes(stamped(png, stamp))
        elif KEY + stamp not in [data for kind, data, _ in chunks(png) if is_stamp(kind, data)]:
            print(f"{picture} shows another page than {page}: draw it again by scripts/view_picture.sh")
            stale += 1
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
