#!/usr/bin/env python3
"""failed_snapshot.py SNAPSHOT GIB OUT: what a recorded program would have left on a smaller card.

Reads a snapshot of PyTorch whose history begins with the process, and ends it at the first segment
that a card on which PyTorch may have GIB GiB cannot give: wholly free segments go back first, as
PyTorch does, then the request fails. Segments and blocks are worked out from the history. The file
is no recording of such a card.
"""
import pickle
import sys


def main(source, gib, target):
    with open(source, "rb") as file:
        snapshot = pickle.load(file)
    trace = max(snapshot["device_traces"], key=len)
    device = snapshot["device_traces"].index(trace)
    limit = int(float(gib) * 2**30)
    segments, live, reserved = {}, {}, 0
    for at, entry in enumerate(trace):
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "segment_alloc":
            if reserved + size > limit:
                break
            segments[address] = entry
            reserved += size
        elif action == "segment_free":
            del segments[address]
            reserved -= size
        elif action == "alloc":
            live[address] = entry
        elif action == "free_completed":
            live.pop(address, None)
    else:
        sys.exit(f"{source}: nothing fails on {gib} GiB")
    history = trace[:at]
    failed = trace[at]
    for address, segment in sorted(segments.items()):
        if not any(address <= block < address + segment["size"] for block in live):
            history.append({**failed, "action": "segment_free", "addr": address, "size": segment["size"]})
            reserved -= segment["size"]
            del segments[address]
    if reserved + failed["size"] <= limit:
        sys.exit(f"{source}: the card of {gib} GiB can give that segment after a release")
    request = next(entry for entry in trace[at:] if entry["action"] == "alloc")
    failure = {**failed, "action": "oom", "size": request["size"], "frames": request["frames"],
               "device_free": limit - reserved}
    del failure["addr"]
    history.append(failure)
    snapshot["device_traces"][device] = history
    snapshot["external_annotations"] = [note for note in snapshot["external_annotations"]
                                        if note["time_us"] <= failed["time_us"]]
    snapshot["segments"] = [layout(device, segment, live) for _, segment in sorted(segments.items())]
    with open(target, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)


def layout(device, segment, live):
    """A segment with its blocks: those in use, and what is free between them."""
    start, end = segment["addr"], segment["addr"] + segment["size"]
    blocks, at = [], start

    def block(address, size, requested, state, frames):
        blocks.append({"address": address, "size": size, "requested_size": requested, "state": state,
                       "frames": frames})

    for address, entry in sorted(live.items()):
        if not start <= address < end:
            continue
        if address > at:
            block(at, address - at, 0, "inactive", [])
        size = -(-entry["size"] // 512) * 512  # PyTorch rounds up to 512 bytes
        block(address, size, entry["size"], "active_allocated", entry["frames"])
        at = address + size
    if at < end:
        block(at, end - at, 0, "inactive", [])
    used = [one for one in blocks if one["state"] != "inactive"]
    total = sum(one["size"] for one in used)
    return {"device": device, "address": start, "total_size": segment["size"], "allocated_size": total,
            "active_size": total, "requested_size": sum(one["requested_size"] for one in used),
            "stream": segment["stream"], "segment_type": "small" if segment["size"] == 2 << 20 else "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": segment["frames"],
            "blocks": blocks}


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
