// Normalisation of channels that lie side by side, on the host: batches of vectors, and
// channels-last ones.
#pragma once

#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::ops {

using ChannelNumbers = std::vector<double>;  // one for each channel, dimension 1

// Images or volumes whose channels lie side by side, without gaps.
bool is_channels_last(const Tensor& a);

// Dense in the order of rows of channels, of floats, on the host, with elements.
bool has_channel_rows(const Tensor& a);

// The functions require that. They pass over the elements once; 16-bit floats are widened some rows
// at a time. The result is the same on any number of threads.

// Mean and mean of squared deviations of each channel.
void moments_of_channels(const Tensor& a, ChannelNumbers& mean, ChannelNumbers& variance);

// a * factor + shift, in the order of a.
Tensor scale_channels(const Tensor& a, const ChannelNumbers& factor, const ChannelNumbers& shift);

// The gradient of the normalised channels (a - mean) * scale * weight: of a, and of `weight` and
// what is added, by channel. With `own_moments`, mean and scale come of a. `gradient` has a's order
// and dtype.
struct ChannelGradients {
  Tensor input;
  ChannelNumbers weight, bias;
};
ChannelGradients channel_gradients(const Tensor& gradient, const Tensor& a,
                                   const ChannelNumbers& mean, const ChannelNumbers& scale,
                                   const ChannelNumbers& weight, bool own_moments);

}  // namespace tenon::ops
