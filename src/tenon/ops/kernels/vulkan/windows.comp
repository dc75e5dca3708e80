// Kernels that slide over images [images, all_channels, height, width]: as columns of a matrix, and
// pooling, which takes each plane as an image of one channel.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "numbers.glsl"

layout(local_size_x = 64) in;

layout(constant_id = 0) const uint kWork = 0;      // WindowWork in device_kernels.h
layout(constant_id = 1) const uint kAdaptive = 0;  // 1: places share all elements out among them
layout(constant_id = 2) const uint kCountPadding = 0;
layout(constant_id = 3) const uint kByFours = 0;  // 1: columns are made four places at once

layout(push_constant, std430) uniform Arguments {
  uvec2 target, source, weight;
  uint count;  // elements of the target; of columns, its channels' places or fours of these
  int images, all_channels;
  int first_channel, channels;  // that the columns are of; of a convolution: filters, a group's
  int height, width;
  int kernel_height, kernel_width;
  int stride_height, stride_width;
  int padding_height, padding_width;
  int dilation_height, dilation_width;
  int out_height, out_width;  // places
};

NUMBER at(int i) {
#if CLASS == 0
  return uintBitsToFloat(Words(source).at[i]);
#else
  return packDouble2x32(Pairs(source).at[i]);
#endif
}
NUMBER factor_at(int i) {
#if CLASS == 0
  return uintBitsToFloat(Words(weight).at[i]);
#else
  return packDouble2x32(Pairs(weight).at[i]);
#endif
}
void put(int i, NUMBER x) {
#if CLASS == 0
  Words(target).at[i] = floatBitsToUint(x);
#else
  Pairs(target).at[i] = unpackDouble2x32(x);
#endif
}

// columns[channel, ky, kx; image, y, x]: the elements of one channel that place i looks at, since a
// division costs as much as several of them.
void to_columns(uint i) {
  const int line = int(i) / out_width, x = int(i) - line * out_width;
  const int plane = line / out_height, y = line - plane * out_height;
  const int channel = plane / images, image = plane - channel * images;
  const int row_length = images * out_height * out_width;
  const int from = (image * all_channels + first_channel + channel) * height * width;
  const int up = y * stride_height - padding_height, left = x * stride_width - padding_width;
  int to = int(i) + channel * (kernel_height * kernel_width - 1) * row_length;
  for (int ky = 0; ky < kernel_height; ++ky) {
    const int from_y = up + ky * dilation_height;
    for (int kx = 0; kx < kernel_width; ++kx) {
      const int from_x = left + kx * dilation_width;
      const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
      put(to, inside ? at(from + from_y * width + from_x) : L(0.0lf));
      to += row_length;
    }
  }
}

#if CLASS == 0
float in_row(int row, bool has_row, int x) {
  const float found = at(row + clamp(x, 0, width - 1));
  return has_row && x >= 0 && x < width ? found : 0.0;
}
// The same for four neighbouring places, of rows of a multiple of four. What the first three of a
// step have seen, the next ones see again.
void fours_to_columns(uint i) {
  const int row_of_fours = out_width / 4;
  const int line = int(i) / row_of_fours, x = 4 * (int(i) - line * row_of_fours);
  const int plane = line / out_height, y = line - plane * out_height;
  const int channel = plane / images, image = plane - channel * images;
  const int row_length = images * out_height * row_of_fours;
  const int from = (image * all_channels + first_channel + channel) * height * width;
  const int up = y * stride_height - padding_height, left = x * stride_width - padding_width;
  const bool slides = stride_width == 1 && dilation_width == 1;
  int to = int(i) + channel * (kernel_height * kernel_width - 1) * row_length;
  for (int ky = 0; ky < kernel_height; ++ky) {
    const int from_y = up + ky * dilation_height;
    const bool has_row = from_y >= 0 && from_y < height;
    const int row = from + (has_row ? from_y * width : 0);
    vec4 seen = vec4(0.0);
    for (int kx = 0; kx < kernel_width; ++kx) {
      const int x0 = left + kx * dilation_width;
      if (slides && kx > 0)
        seen = vec4(seen.yzw, in_row(row, has_row, x0 + 3));
      else
        seen = vec4(in_row(row, has_row, x0), in_row(row, has_row, x0 + stride_width),
                    in_row(row, has_row, x0 + 2 * stride_width),
                    in_row(row, has_row, x0 + 3 * stride_width));
      Fours(target).at[to] = floatBitsToUint(seen);
      to += row_length;
    }
  }
}
#endif

// The sum of what came from each element of the group's channels, in the columns' order.
void to_image(uint i) {
  const int x = int(i) % width, y = int(i) / width % height;
  const int channel = int(i) / width / height % channels;
  const int image = int(i) / width / height / channels;
  NUMBER sum = L(0.0lf);
  for (int ky = 0; ky < kernel_height; ++ky) {
    const int down = y + padding_height - ky * dilation_height;
    if (down < 0 || down % stride_height != 0 || down / stride_height >= out_height) continue;
    for (int kx = 0; kx < kernel_width; ++kx) {
      const int across = x + padding_width - kx * dilation_width;
      if (across < 0 || across % stride_width != 0 || across / stride_width >= out_width) continue;
      const int row = (channel * kernel_height + ky) * kernel_width + kx;
      sum += at(((row * images + image) * out_height + down / stride_height) * out_width +
                across / stride_width);
    }
  }
  put(((image * all_channels + first_channel + channel) * height + y) * width + x, sum);
}

// A convolution in groups: what a window's elements are to a filter's.
void weigh(uint i) {
  const int filters = first_channel, line = int(i) / out_width, x = int(i) - line * out_width;
  const int plane = line / out_height, y = line - plane * out_height;
  const int image = plane / filters, of_filter = plane - image * filters;
  const int group = of_filter * (all_channels / channels) / filters;
  const int up = y * stride_height - padding_height, left = x * stride_width - padding_width;
  int from = (image * all_channels + group * channels) * height * width;
  int factor = of_filter * channels * kernel_height * kernel_width;
  NUMBER sum = L(0.0lf);
  for (int channel = 0; channel < channels; ++channel) {
    for (int ky = 0; ky < kernel_height; ++ky) {
      const int from_y = up + ky * dilation_height;
      for (int kx = 0; kx < kernel_width; ++kx, ++factor) {
        const int from_x = left + kx * dilation_width;
        if (from_y >= 0 && from_y < height && from_x >= 0 && from_x < width)
          sum += at(from + from_y * width + from_x) * factor_at(factor);
      }
    }
    from += height * width;
  }
  put(int(i), sum);
}

struct Span {
  int begin, end, nominal;
};
Span span_of(int place, int size, int kernel, int stride, int padding, int places) {
  if (kAdaptive != 0) {
    const int begin = place * size / places, end = ((place + 1) * size + places - 1) / places;
    return Span(begin, end, end - begin);
  }
  const int begin = place * stride - padding;
  const int end = begin + kernel;
  return Span(max(begin, 0), min(end, size), min(end, size + padding) - begin);
}
Span rows_of(int y) {
  return span_of(y, height, kernel_height, stride_height, padding_height, out_height);
}
Span columns_of(int x) {
  return span_of(x, width, kernel_width, stride_width, padding_width, out_width);
}
NUMBER divisor(Span y, Span x) {
  return NUMBER(kCountPadding != 0 ? y.nominal * x.nominal
                                   : (y.end - y.begin) * (x.end - x.begin));
}

void pool(uint i) {
  const Span y = rows_of(int(i) / out_width % out_height), x = columns_of(int(i) % out_width);
  const int plane = int(i) / out_width / out_height * height * width;
  NUMBER held = kWork == 4 ? L(0.0lf) : -infinity();
  int best = y.begin * width + x.begin;
  for (int r = y.begin; r < y.end; ++r)
    for (int c = x.begin; c < x.end; ++c) {
      const NUMBER value = at(plane + r * width + c);
      if (kWork == 4) {
        held += value;
      } else if (value > held || isnan(value)) {
        held = value;
        best = r * width + c;
      }
    }
  if (kWork == 3)
    Pairs(target).at[i] = uvec2(best, 0);
  else
    put(int(i), kWork == 4 ? held / divisor(y, x) : held);
}

// The places that look at an element, from `first` on.
ivec2 places_of(int at, int kernel, int stride, int padding, int places) {
  if (kAdaptive != 0) return ivec2(0, places);
  const int before = at + padding - kernel + 1;
  return ivec2(before <= 0 ? 0 : (before + stride - 1) / stride,
               min((at + padding) / stride + 1, places));
}

// Each place's gradient, shared among the elements that it averages.
void spread(uint i) {
  const int x = int(i) % width, y = int(i) / width % height;
  const int plane = int(i) / width / height * out_height * out_width;
  const ivec2 down = places_of(y, kernel_height, stride_height, padding_height, out_height);
  const ivec2 across = places_of(x, kernel_width, stride_width, padding_width, out_width);
  NUMBER sum = L(0.0lf);
  for (int r = down.x; r < down.y; ++r) {
    const Span rows = rows_of(r);
    if (y < rows.begin || y >= rows.end) continue;
    for (int c = across.x; c < across.y; ++c) {
      const Span columns = columns_of(c);
      if (x >= columns.begin && x < columns.end)
        sum += at(plane + r * out_width + c) / divisor(rows, columns);
    }
  }
  put(int(i), sum);
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    switch (kWork) {
#if CLASS == 0
      case 0:
        if (kByFours != 0)
          fours_to_columns(i);
        else
          to_columns(i);
        break;
#else
      case 0: to_columns(i); break;
#endif
      case 1: to_image(i); break;
      case 5: spread(i); break;
      case 6: weigh(i); break;
      default: pool(i);
    }
  }
}
