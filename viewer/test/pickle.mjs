// Writes plain data as a pickle, protocol 2 and later: snapshots for tests.

export function pickle(value) {
  const parts = [Buffer.from([0x80, 4])];
  put(value, parts);
  parts.push(Buffer.from('.'));
  return Buffer.concat(parts);
}

function put(value, parts) {
  if (typeof value === 'string') {
    const text = Buffer.from(value);
    const head = Buffer.alloc(5);
    head.write('X');
    head.writeUInt32LE(text.length, 1);
    parts.push(head, text);
  } else if (typeof value === 'number' || typeof value === 'bigint') {
    const bytes = Buffer.alloc(11);
    bytes[0] = 0x8a;
    bytes[1] = 9;
    bytes.writeBigUInt64LE(BigInt(value), 2);
    parts.push(bytes);
  } else if (Array.isArray(value)) {
    parts.push(Buffer.from(']('));
    for (const item of value) put(item, parts);
    parts.push(Buffer.from('e'));
  } else {
    parts.push(Buffer.from('}('));
    for (const [key, item] of Object.entries(value)) {
      put(key, parts);
      put(item, parts);
    }
    parts.push(Buffer.from('u'));
  }
}

// A program that asks for more and more, from one frame, until it fails.
export function failingSnapshot(frame, { timed = true } = {}) {
  const kSegment = 64 << 20;
  const frames = [{ name: frame, filename: 'train.py', line: 7 },
                  { name: 'main', filename: 'train.py', line: 99 }];
  const entries = [];
  for (let i = 0; i < 4; ++i) {
    const addr = 0x7000000000 + i * kSegment;
    entries.push({ action: 'segment_alloc', addr, size: kSegment, stream: 0, time_us: 1000 * i, frames },
                 { action: 'alloc', addr, size: kSegment, stream: 0, time_us: 1000 * i + 1, frames });
  }
  entries.push({ action: 'oom', addr: 0, size: kSegment, device_free: 12345678, stream: 0, time_us: 5000,
                 frames },
               { action: 'free_requested', addr: 0x7000000000, size: kSegment, stream: 0, time_us: 6000,
                 frames },
               { action: 'free_completed', addr: 0x7000000000, size: kSegment, stream: 0, time_us: 6001,
                 frames },
               { action: 'segment_free', addr: 0x7000000000, size: kSegment, stream: 0, time_us: 6002,
                 frames });
  const segments = [1, 2, 3].map((i) => {
    const address = 0x7000000000 + i * kSegment;
    return { device: 0, address, total_size: kSegment, allocated_size: kSegment,
             active_size: kSegment, requested_size: kSegment, stream: 0, segment_type: 'large',
             blocks: [{ address, size: kSegment, requested_size: kSegment,
                        state: 'active_allocated', frames }] };
  });
  if (!timed) for (const entry of entries) delete entry.time_us;
  return pickle({ segments, device_traces: [entries] });
}
