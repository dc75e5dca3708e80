// A step on a Vulkan device that is recorded once and run many times. A run is O(submissions), and
// O(numbers that change).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tenon/device/device.h"

namespace tenon {

class DeviceAllocator;
class Plan;

namespace vulkan {
struct CaptureState;
}

// What a function queues on the calling thread's current stream of a device, kept to be queued
// again without the function:
//
//   Capture step({DeviceType::kVulkan, 0}, [&] {       // runs once
//     model.zero_grad();
//     loss = ops::cross_entropy(model(images), classes);
//     autograd::backward(loss);
//     adam.step();
//   });
//   for (...) {
//     copy_(images, next_images);                      // other values, same tensors
//     step.run();
//     loss.item<float>();                              // of this run
//   }
//
// A run gives the same bits as the function would. It makes no memory and no pipeline. Numbers of
// optimisers (the number of the step, the learning rate) and random numbers advance from run to
// run; versions of the tensors that it writes, too. A run draws from where the generators are then,
// with the seeds that they have then.
//
// Memory: while the function runs, tensors come from memory of the capture, which serves nothing
// else. Tensors that the function leaves (the loss, gradients) are there, and the memory stays
// until they are gone. Tensors from before that it uses stay alive in the capture. A plan of the
// function's requests (rehearse) gives each its place, which takes about as much as is live at
// once; one of a single stream serves whichever stream the function is on. A pool serves the
// requests that differ from the plan, and all of them without one. A tensor that shares memory with
// a lazy_clone() from before cannot be written: its memory would change.
//
// The function may not read or write values on the host, so every operator in it needs a kernel of
// the device. Numbers that the host gives to operators stay those of the first run. Shapes do too.
// Optimisers and generators that the function uses must outlive the capture.
//
// Not thread-safe; while the function runs, no other thread uses the stream.
class Capture {
 public:
  // Throws InvalidArgument for a device other than Vulkan's, within another capture, and where the
  // function needs the host. Then, as with DeviceError, OutOfMemory and what the function throws,
  // nothing of it has run on the device: what it was to write has no values.
  Capture(Device device, const std::function<void()>& step, const Plan* plan = nullptr);
  // Runs the function as the constructor does, but nothing of it on the device: its tensors get
  // addresses without memory, from the allocator that it is given. A StepMeter before that records
  // the requests, and make_plan (lab/planner.h) makes the plan. What the function changes on the
  // host stays changed: optimisers' numbers of updates, generators, versions. Tensors that it
  // leaves must be gone before rehearse() ends: else it throws InvalidArgument, and they have no
  // memory. Throws as the constructor.
  static void rehearse(Device device, const std::function<void(DeviceAllocator&)>& step);
  // Waits for the device.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Queues the step again. Throws InvalidArgument where a tensor that the function used was freed
  // since, or has other memory; DeviceError.
  void run();

  // What its tensors take.
  std::uint64_t reserved_bytes() const;

 private:
  const std::unique_ptr<vulkan::CaptureState> state_;
};

}  // namespace tenon
