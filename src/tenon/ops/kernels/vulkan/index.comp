// Elements read or added at the places that an index names. An index of another size is told in
// `complaint`, and reads or writes nothing.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 64) in;

layout(constant_id = 0) const uint kAdds = 0;   // 0: target = source[index]; 1: target[index] +=
layout(constant_id = 1) const uint kBytes = 4;  // of an element, where elements are only read

layout(push_constant, std430) uniform Arguments {
  uvec2 target, source, index;  // the index of i64
  uvec2 complaint;              // whether there is one, the operator, its index (two words), size
  uint count;       // elements to read; lines to add
  uint length;      // elements of a line, along the dimension of the index
  uint size;        // what an index is below
  uint what;        // the operator
  uint sizes[4];    // innermost first; where added, without that dimension
  int target_strides[4];  // of the elements, or the lines
  int source_strides[4];
  int index_strides[4];
  int target_step;  // along the dimension
  int source_step;
  int index_step;
};

bool names(int at, out int place) {
  const uvec2 value = Pairs(index).at[at];
  place = int(value.x);
  if (value.y == 0 && value.x < size) return true;
  if (atomicCompSwap(Words(complaint).at[0], 0, 1) == 0) {
    Words(complaint).at[1] = what;
    Words(complaint).at[2] = value.x;
    Words(complaint).at[3] = value.y;
    Words(complaint).at[4] = size;
  }
  return false;
}

void move(int to, int from) {
  switch (kBytes) {
    case 1: set_byte(target, to, byte_of(source, from)); break;
#if WIDE
    case 2: Halves(target).at[to] = Halves(source).at[from]; break;
#endif
    case 4: Words(target).at[to] = Words(source).at[from]; break;
    case 8: Pairs(target).at[to] = Pairs(source).at[from]; break;
    case 16: Fours(target).at[to] = Fours(source).at[from]; break;
  }
}

// Of NUMBER.
void add(int to, int from) {
#if CLASS == 0
  Words(target).at[to] = floatBitsToUint(uintBitsToFloat(Words(target).at[to]) +
                                         uintBitsToFloat(Words(source).at[from]));
#elif CLASS == 1
  Pairs(target).at[to] = unpackDouble2x32(packDouble2x32(Pairs(target).at[to]) +
                                          packDouble2x32(Pairs(source).at[from]));
#else
  Pairs(target).at[to] = unpackUint2x32(packUint2x32(Pairs(target).at[to]) +
                                        packUint2x32(Pairs(source).at[from]));
#endif
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uint rest = i;
    int to = 0, from = 0, names_at = 0;
    for (int d = 0; d < 4; ++d) {
      const int at = int(rest % sizes[d]);
      rest /= sizes[d];
      to += at * target_strides[d];
      from += at * source_strides[d];
      names_at += at * index_strides[d];
    }
    int place;
    if (kAdds == 0) {
      if (names(names_at, place)) move(to, from + place * source_step);
      continue;
    }
    for (uint l = 0; l < length; ++l)
      if (names(names_at + int(l) * index_step, place))
        add(to + place * target_step, from + int(l) * source_step);
  }
}
