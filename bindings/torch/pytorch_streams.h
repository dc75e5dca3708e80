// Which streams PyTorch keeps for ever.
#pragma once

#include "tenon/device/cuda/driver_api.h"

namespace tenon::torch {

// Whether the stream is the device's default one, or current in the calling thread and from
// PyTorch's own pool: PyTorch never destroys those. False for a stream of others
// (torch.cuda.ExternalStream), for one that is not current, and where there is no PyTorch.
// Thread-safe; throws nothing.
bool lasts(cu::Stream stream, int device) noexcept;

}  // namespace tenon::torch
