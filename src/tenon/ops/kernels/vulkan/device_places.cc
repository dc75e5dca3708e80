#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "tenon/ops/kernels/vulkan/device_arrange.h"
#include "tenon/ops/kernels/vulkan/device_walks.h"
#include "tenon/ops/kernels/vulkan/launch_sizes.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

constexpr std::uint32_t kShiftsCode[] =
#include "shifts_f32.spv.inc"
    ;
constexpr std::uint32_t kPlacesCode[] =
#include "matmul_places_f32.spv.inc"
    ;
constexpr std::uint32_t kTapsCode[] =
#include "matmul_places_f32_taps.spv.inc"
    ;

constexpr std::int64_t kRows = 32, kColumns = 64;  // of a group of matmul_places.comp
constexpr std::int64_t kMostRounds = 65535;        // of a loop: see may_loop
constexpr std::int64_t kMostSteps = 16384;         // of a launch: long sums of f32 lose places
constexpr std::int64_t kMostPlaces = 1 << 20;      // that matmul_places.comp divides
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

struct ShiftArguments {
  std::uint64_t target;
  std::int32_t first, last;
  std::int32_t planes, height, width;
  std::int32_t shifts, rows, row, places;
  std::int32_t row_step, step, apart, top, left;
};

struct Arguments {
  std::uint64_t target;
  std::int32_t first_a, first_b;
  std::int32_t rows, taps;
  std::int32_t images, fours, row, width;
  std::int32_t kernel_height, kernel_width;
  std::int32_t a_row, a_image, a_group;
  std::int32_t b_image, b_y, b_channel, b_tap_y, b_tap_x, b_last, b_group;
  std::int32_t target_image, target_row, target_y, target_x, target_group;
  std::uint64_t bias;
};

std::int64_t fours_of(std::int64_t size) { return (size + 3) / 4; }

// A part of so many images, of any size, ends where a texel does.
std::int64_t by_texels(std::int64_t images) { return images < 4 ? images : images / 4 * 4; }

// Images [images, channels, height, width] as shifts.comp lays them out.
class Shifted {
 public:
  Shifted(const Walks& w, std::int64_t channels) : w_(w), channels_(channels) {
    if (w.down.taps == 1) {  // rows that no window sees are left out
      rows_ = w.down.places;
      row_step_ = w.down.step;
    } else {
      rows_ = (w.down.places - 1) * w.down.step + (w.down.taps - 1) * w.down.apart + 1;
    }
  }

  std::int64_t row() const { return fours_of(w_.across.places); }
  std::int64_t texels() const { return channels_ * channel(); }  // of an image
  std::int64_t bytes() const { return 16 * texels(); }

  // Undefined where the images have no texels.
  Tensor make(VulkanBackend& backend, const Tensor& images) const {
    const void* place = place_to_read(images);
    const auto first = backend.texel_at(place);
    if (!first) return {};
    if (is_as_it_is()) return images;
    const std::int64_t planes = images.size(0) * channels_;
    const Tensor to = empty({images.size(0) * texels(), 4}, DType::kF32, images.device());
    ShiftArguments u = {};
    u.target = address_to_write(backend, to);
    u.first = word(*first);
    u.last = word(*first + (images.numel() - 1) / 4);
    u.planes = word(planes);
    u.height = word(w_.down.size);
    u.width = word(w_.across.size);
    u.shifts = word(w_.across.taps);
    u.rows = word(rows_);
    u.row = word(row());
    u.places = word(w_.across.places);
    u.row_step = word(row_step_);
    u.step = word(w_.across.step);
    u.apart = word(w_.across.apart);
    u.top = word(w_.down.first);
    u.left = word(w_.across.first);
    launch(backend, {kShiftsCode, {w_.across.step == 1 ? 1u : 0u}, true}, u,
           {groups_for(planes * row(), 8), 1, 1}, {place, place});
    return to;
  }

  // Whether so many images together are not too many for the kernels.
  bool may_make(std::int64_t images) const {
    return images * texels() <= kMost && rows_ <= kMostRounds && w_.across.taps <= kMostRounds &&
           images * channels_ * row() <= 8 * kMostGroups &&
           images * w_.down.places * row() <= kMostPlaces / 4;
  }

  void describe(Arguments& u, std::int64_t groups) const {
    u.fours = word(w_.down.places * row());
    u.row = word(row());
    u.width = word(w_.across.places);
    u.kernel_height = word(w_.down.taps);
    u.kernel_width = word(w_.across.taps);
    u.taps = word(channels_ / groups * w_.down.taps * w_.across.taps);
    u.b_image = word(texels());
    u.b_y = word(w_.down.step / row_step_ * row());
    u.b_channel = word(channel());
    u.b_tap_y = word(w_.down.apart * row());
    u.b_tap_x = word(rows_ * row());
    u.b_last = word((channels_ / groups - 1) * channel() + (w_.down.taps - 1) * u.b_tap_y +
                    (w_.across.taps - 1) * u.b_tap_x);
    u.b_group = word(channels_ / groups * channel());
  }

  // How many images are shifted together.
  std::int64_t images_at_once() const {
    constexpr std::int64_t kMostBytes = std::int64_t{4} << 20;
    return std::max<std::int64_t>(1, by_texels(kMostBytes / bytes()));
  }

 private:
  bool is_as_it_is() const {
    const Walk &y = w_.down, &x = w_.across;
    return x.taps == 1 && x.step == 1 && x.first == 0 && x.size == x.places && x.size % 4 == 0 &&
           y.first == 0 && y.size == rows_ && row_step_ == 1;
  }
  std::int64_t channel() const { return w_.across.taps * rows_ * row(); }

  const Walks w_;
  const std::int64_t channels_;
  std::int64_t rows_, row_step_ = 1;
};

}  // namespace

Walks walks_of(const Windows& w) {
  return {{w.height, w.out_height, w.kernel.height, w.stride.height, w.dilation.height,
           -w.padding.height},
          {w.width, w.out_width, w.kernel.width, w.stride.width, w.dilation.width,
           -w.padding.width}};
}

Tensor in_texels(VulkanBackend& backend, const Tensor& weight, std::int64_t rows) {
  const std::int64_t taps = weight.numel() / rows;
  if (taps % 4 == 0 && backend.texel_at(place_to_read(weight))) return weight;
  return arrange(weight, {.j = {rows, taps}, .x = {taps, 1}, .row = in_fours(taps)});
}

namespace {

// target = the convolution of the images by the weight [filters, channels of a group, taps down,
// taps across].
bool convolve_places(const Tensor& target, const Layout& layout, const Tensor& weight,
                     const Tensor& images, const Walks& w, std::int64_t groups,
                     const Tensor& bias = {}) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const std::int64_t filters = weight.size(0), rows = filters / groups;
  if (takes_groups(w, rows, weight.size(1)) &&
      convolve_groups(target, layout, weight, images, w, groups, bias))
    return true;
  const Shifted shifted(w, images.size(1));
  const std::int64_t most = std::min(images.size(0), shifted.images_at_once());
  if (!shifted.may_make(most) || weight.numel() / filters > kMostRounds || groups > kMostGroups)
    return false;
  const Tensor factors = in_texels(backend, weight, filters);
  if (!factors.defined()) return false;
  const void* place = place_to_read(factors);
  const auto first = backend.texel_at(place);
  if (!first) return false;
  const std::uint64_t begin = address_to_write(backend, target);
  for (std::int64_t done = 0; done < images.size(0); done += most) {
    const std::int64_t count = std::min(most, images.size(0) - done);
    const Tensor planes = shifted.make(backend, images.narrow(0, done, count));
    if (!planes.defined()) return false;
    Arguments u = {};
    shifted.describe(u, groups);
    u.target = begin + sizeof(float) * static_cast<std::uint64_t>(layout.first +
                                                                  done * layout.image);
    u.first_a = word(*first);
    u.first_b = word(*backend.texel_at(place_to_read(planes)));
    u.rows = word(rows);
    u.images = word(count);
    u.a_row = word(fours_of(u.taps));
    u.a_group = word(rows * u.a_row);
    u.target_image = word(layout.image);
    u.target_row = word(layout.filter);
    u.target_y = word(layout.y);
    u.target_x = word(layout.x);
    u.target_group = word(rows * layout.filter);
    if (bias.defined()) u.bias = address_to_read(backend, bias);
    const std::int64_t fours = std::int64_t{u.fours} * count;
    const auto z = static_cast<std::uint32_t>(groups);
    const std::array<const void*, 2> texels = {place, place_to_read(planes)};
    launch(backend,
           {kPlacesCode, {0, u.taps % 4 != 0 ? 1u : 0u, bias.defined() ? 1u : 0u}, true}, u,
           {groups_for(fours, kColumns / 4), groups_for(rows, kRows), z}, texels);
  }
  return true;
}

// Windows of one, over planes as rows.
Windows as_lines(Windows w) {
  w.width = w.out_width = w.height * w.width;
  w.height = w.out_height = 1;
  return w;
}

// Whether these pipelines are worth their making.
bool pays(const Tensor& target, const Tensor& images, const Tensor& weight,
          std::int64_t places) {
  constexpr std::int64_t kLeastWork = 1 << 19;
  return target.dtype() == DType::kF32 && has_lanes(vulkan_backend(target.device().index)) &&
         target.numel() <= kMost && images.numel() <= kMost && weight.numel() <= kMost &&
         images.is_contiguous() &&
         weight.numel() * places * images.size(0) >= kLeastWork;
}

}  // namespace

bool convolve_by_shifts(const Tensor& target, const Tensor& weight, const Tensor& images,
                        Windows w, std::int64_t groups, const Tensor& bias) {
  if (is_one_by_one(w)) w = as_lines(w);
  const std::int64_t places = w.out_height * w.out_width, filters = weight.size(0);
  if (!pays(target, images, weight, places)) return false;
  return convolve_places(target, {0, filters * places, places, w.out_width, 1}, weight, images,
                         walks_of(w), groups, bias);
}

namespace {

// The taps by which one dimension's every step-th element, from `phase` on, is seen: `count` of
// them from `tap` on, `stride` apart, backwards. As a walk over the places of the convolution.
struct Phase {
  std::int64_t tap = 0, stride = 1;
  Walk walk;
};

Phase phase_of(const Walk& w, std::int64_t phase) {
  Phase found;
  found.stride = w.step / std::gcd(w.step, w.apart);
  const auto meets = [&](std::int64_t tap) {
    return (phase - w.first - tap * w.apart) % w.step == 0;
  };
  while (found.tap < w.taps && !meets(found.tap)) ++found.tap;
  Walk& walk = found.walk;
  walk.size = w.places;
  walk.places = (w.size - phase + w.step - 1) / w.step;
  if (found.tap >= w.taps) return found;
  walk.taps = (w.taps - 1 - found.tap) / found.stride + 1;
  walk.apart = found.stride * w.apart / w.step;
  walk.first = (phase - w.first - found.tap * w.apart) / w.step - (walk.taps - 1) * walk.apart;
  return found;
}

// The numbers of a weight [filters, channels of a group, height, width] by which a phase sees, as
// the weight of the convolution back.
Tensor turned(const Tensor& weight, const Phase& down, const Phase& across, std::int64_t groups) {
  const std::int64_t filters = weight.size(0) / groups, channels = weight.size(1);
  const std::int64_t height = down.walk.taps, width = across.walk.taps;
  const IntList s = weight.strides();
  const std::int64_t y = s[2] * down.stride, x = s[3] * across.stride;
  const Tensor found = arrange(
      weight, {.batch = {groups, filters * s[0]},
               .i = {channels, s[1]},
               .j = {filters, s[0]},
               .y = {height, -y},
               .x = {width, -x},
               .row = width,
               .first = down.tap * s[2] + across.tap * s[3] + (height - 1) * y + (width - 1) * x});
  return found.defined() ? found.view({groups * channels, filters, height, width}) : Tensor();
}

}  // namespace

bool convolve_back_by_shifts(const Tensor& target, const Tensor& weight, const Tensor& places,
                             Windows w, std::int64_t groups) {
  if (is_one_by_one(w)) w = as_lines(w);
  const std::int64_t channels = weight.size(1), plane = w.height * w.width;
  if (!pays(target, places, weight, w.out_height * w.out_width)) return false;
  const Walks walks = walks_of(w);
  if (is_three_by_three(w) && groups == 1) {  // and so is the convolution back
    const Tensor taps =
        turned(weight, phase_of(walks.down, 0), phase_of(walks.across, 0), groups);
    if (taps.defined() && convolve(target, taps, places, w)) return true;
  }
  const auto for_phases = [&](auto&& body) {
    for (std::int64_t y = 0; y < std::min(w.stride.height, w.height); ++y)
      for (std::int64_t x = 0; x < std::min(w.stride.width, w.width); ++x)
        if (!body(phase_of(walks.down, y), phase_of(walks.across, x), y * w.width + x))
          return false;
    return true;
  };
  const auto is_seen = [](const Phase& down, const Phase& across, std::int64_t) {
    return down.walk.taps > 0 && across.walk.taps > 0;
  };
  if (!for_phases(is_seen)) fill(target, 0.0);
  return for_phases([&](const Phase& down, const Phase& across, std::int64_t first) {
    if (!is_seen(down, across, first)) return true;
    const Tensor taps = turned(weight, down, across, groups);
    return taps.defined() &&
           convolve_places(target,
                           {first, groups * channels * plane, plane, w.stride.height * w.width,
                            w.stride.width},
                           taps, places, {down.walk, across.walk}, groups);
  });
}

bool correlate_by_shifts(const Tensor& target, const Tensor& gradient, const Tensor& images,
                         Windows w, std::int64_t groups) {
  if (is_one_by_one(w)) w = as_lines(w);
  const std::int64_t filters = target.size(0), rows = filters / groups;
  VulkanBackend& backend = vulkan_backend(target.device().index);
  if (!pays(target, images, target, w.out_height * w.out_width)) return false;
  const Walks walks = walks_of(w);
  if (takes_groups(walks, rows, target.size(1)) &&
      correlate_groups(target, gradient, images, walks, groups))
    return true;
  const Shifted shifted(walks, images.size(1));
  Walks as_is;  // the gradient, with zeros at the ends of its rows
  as_is.down = {w.out_height, w.out_height, 1, 1, 1, 0};
  as_is.across = {w.out_width, w.out_width, 1, 1, 1, 0};
  const Shifted padded(as_is, filters);
  const std::int64_t fours = w.out_height * shifted.row();
  const std::int64_t most =
      std::min({images.size(0), shifted.images_at_once(), by_texels(kMostSteps / fours)});
  if (most == 0 || !shifted.may_make(most) || !padded.may_make(most) || groups > kMostGroups ||
      target.numel() / filters > kMostPlaces)
    return false;
  for (std::int64_t done = 0; done < images.size(0); done += most) {
    const std::int64_t count = std::min(most, images.size(0) - done);
    const Tensor some = gradient.narrow(0, done, count);
    const Tensor left = padded.make(backend, some);
    const Tensor planes = shifted.make(backend, images.narrow(0, done, count));
    if (!left.defined() || !planes.defined()) return false;
    const std::array<const void*, 2> texels = {place_to_read(left), place_to_read(planes)};
    Arguments u = {};
    shifted.describe(u, groups);
    u.target = address_to_write(backend, target);
    u.first_a = word(*backend.texel_at(texels[0]));
    u.first_b = word(*backend.texel_at(texels[1]));
    u.rows = word(rows);
    u.images = word(count);
    u.a_row = word(fours);
    u.a_image = word(filters * fours);
    u.a_group = word(rows * fours);
    u.target_row = u.taps;
    u.target_x = 1;
    u.target_group = word(rows * u.taps);
    const std::uint32_t adds = done == 0 ? 0 : 1;
    const auto z = static_cast<std::uint32_t>(groups);
    launch(backend, {kTapsCode, {adds}, true}, u,
           {groups_for(u.taps, kColumns), groups_for(rows, kRows), z}, texels);
  }
  return true;
}

}  // namespace tenon::vulkan
