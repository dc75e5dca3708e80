#include "tenon/device/cuda/stamp_kernels.h"

#include <algorithm>

#include "tenon/device/cuda/cuda_scope.h"

namespace tenon {
namespace {

// Word i of a block is stamp + i * 0x9e3779b97f4a7c15. Each thread takes every (threads * stride)th
// word, from its own on.
constexpr const char* kSource = R"(
.version 6.0
.target sm_50
.address_size 64

.visible .entry tenon_stamp(
  .param .u64 address, .param .u64 words, .param .u64 stride, .param .u64 stamp)
{
  .reg .pred %p;
  .reg .u32 %r<5>;
  .reg .u64 %base, %words, %stride, %stamp, %i, %step, %at, %value;
  ld.param.u64 %base, [address];
  ld.param.u64 %words, [words];
  ld.param.u64 %stride, [stride];
  ld.param.u64 %stamp, [stamp];
  cvta.to.global.u64 %base, %base;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r4, %r0, %r1, %r2;
  mul.wide.u32 %step, %r1, %r3;
  cvt.u64.u32 %i, %r4;
  mul.lo.u64 %i, %i, %stride;
  mul.lo.u64 %step, %step, %stride;
next:
  setp.ge.u64 %p, %i, %words;
  @%p bra done;
  mul.lo.u64 %value, %i, 0x9e3779b97f4a7c15;
  add.u64 %value, %value, %stamp;
  shl.b64 %at, %i, 3;
  add.u64 %at, %at, %base;
  st.global.u64 [%at], %value;
  add.u64 %i, %i, %step;
  bra next;
done:
  ret;
}

.visible .entry tenon_check(
  .param .u64 address, .param .u64 words, .param .u64 stride, .param .u64 stamp,
  .param .u64 wrong)
{
  .reg .pred %p, %q;
  .reg .u32 %r<5>;
  .reg .u64 %base, %words, %stride, %stamp, %wrong, %i, %step, %at, %value, %found;
  ld.param.u64 %base, [address];
  ld.param.u64 %words, [words];
  ld.param.u64 %stride, [stride];
  ld.param.u64 %stamp, [stamp];
  ld.param.u64 %wrong, [wrong];
  cvta.to.global.u64 %base, %base;
  cvta.to.global.u64 %wrong, %wrong;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r4, %r0, %r1, %r2;
  mul.wide.u32 %step, %r1, %r3;
  cvt.u64.u32 %i, %r4;
  mul.lo.u64 %i, %i, %stride;
  mul.lo.u64 %step, %step, %stride;
next:
  setp.ge.u64 %p, %i, %words;
  @%p bra done;
  mul.lo.u64 %value, %i, 0x9e3779b97f4a7c15;
  add.u64 %value, %value, %stamp;
  shl.b64 %at, %i, 3;
  add.u64 %at, %at, %base;
  ld.global.u64 %found, [%at];
  setp.ne.u64 %q, %found, %value;
  @%q red.global.add.u64 [%wrong], 1;
  add.u64 %i, %i, %step;
  bra next;
done:
  ret;
}
)";

constexpr unsigned kThreads = 128;
constexpr std::uint64_t kMostBlocks = 256;

}  // namespace

const char* StampKernels::source() { return kSource; }

StampKernels::StampKernels(CudaBackend& backend) : backend_(backend) {
  const CudaDriver& driver = backend_.driver();
  {
    const CudaScope scope(driver, backend_.context());
    driver.call(driver.module_load_data, &module_, static_cast<const void*>(kSource));
    driver.call(driver.module_get_function, &stamp_, module_, "tenon_stamp");
    driver.call(driver.module_get_function, &check_, module_, "tenon_check");
  }
  const auto segment = backend_.allocate_segment(512);
  if (!segment) throw DeviceError("StampKernels: there is no memory for their count");
  wrong_ = *segment;
  backend_.fill(wrong_.base, 0, 8, Stream{backend_.device(), 0});
  backend_.synchronize();
}

StampKernels::~StampKernels() {
  ignore_refusal([&] { backend_.free_segment(wrong_); });
  ignore_refusal([&] {
    const CudaScope scope(backend_.driver(), backend_.context());
    backend_.driver().module_unload(module_);
  });
}

void StampKernels::launch(cu::Function kernel, Stream stream, std::uint64_t words,
                          std::uint64_t stride, void** parameters) {
  const CudaDriver& driver = backend_.driver();
  const CudaScope scope(driver, backend_.context());
  const std::uint64_t marks = (words + stride - 1) / stride;
  const auto blocks =
      static_cast<unsigned>(std::clamp<std::uint64_t>(marks / kThreads, 1, kMostBlocks));
  driver.call(driver.launch_kernel, kernel, blocks, 1u, 1u, kThreads, 1u, 1u, 0u,
              backend_.stream_handle(stream), parameters, static_cast<void**>(nullptr));
}

void StampKernels::stamp(Stream stream, void* block, std::uint64_t size_bytes, std::uint64_t stamp,
                         std::uint64_t stride) {
  std::uint64_t words = size_bytes / 8;
  if (words == 0) return;
  auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(block));
  void* parameters[] = {&address, &words, &stride, &stamp};
  launch(stamp_, stream, words, stride, parameters);
}

void StampKernels::check(Stream stream, const void* block, std::uint64_t size_bytes,
                         std::uint64_t stamp, std::uint64_t stride) {
  std::uint64_t words = size_bytes / 8;
  if (words == 0) return;
  auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(block));
  auto wrong = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(wrong_.base));
  void* parameters[] = {&address, &words, &stride, &stamp, &wrong};
  launch(check_, stream, words, stride, parameters);
}

std::uint64_t StampKernels::wrong_words() {
  backend_.synchronize();
  std::uint64_t count = 0;
  const Stream stream{backend_.device(), 0};
  backend_.copy(&count, wrong_.base, sizeof(count), stream);
  backend_.synchronize(stream);
  return count;
}

}  // namespace tenon
