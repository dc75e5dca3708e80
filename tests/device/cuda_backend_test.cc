#include "tenon/device/cuda/cuda_backend.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "support/cuda_stand_in.h"
#include "tenon/base/byte_size.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::StandIn;

constexpr std::uint64_t kPage = 2 * kMiB;

template <typename Error, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// --- The driver.

TEST(CudaDriverTest, AMissingLibrarySaysThatThereIsNoDriver) {
  const std::string text = error_of<DeviceError>([] { CudaDriver::open("libno_such_driver.so"); });
  EXPECT_THAT(text, HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(text, HasSubstr("libno_such_driver.so"));
}

TEST(CudaDriverTest, ALibraryThatIsNoDriverNamesWhatItLacks) {
  EXPECT_THAT(error_of<DeviceError>([] { CudaDriver::open("libm.so.6"); }), HasSubstr("cuInit"));
}

TEST(CudaDriverTest, AnOldDriverSaysItsVersion) {
  const StandIn machine("version=10010");
  const std::string text = error_of<DeviceError>([&] { machine.driver(); });
  EXPECT_THAT(text, HasSubstr("CUDA 10.1"));
  EXPECT_THAT(text, HasSubstr("update"));
}

TEST(CudaDriverTest, AMachineWithoutDevicesSaysSo) {
  const StandIn machine("devices=0");
  EXPECT_THAT(error_of<DeviceError>([&] { machine.driver(); }), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(CudaDriverTest, ADeviceThatIsNotThereIsRefused) {
  const StandIn machine("devices=2");
  EXPECT_THAT(error_of<DeviceError>([&] { machine.backend(2); }), HasSubstr("no cuda:2"));
  EXPECT_THAT(error_of<DeviceError>([&] { machine.backend(-1); }), HasSubstr("2 devices"));
  EXPECT_EQ(machine.backend(1)->device(), (Device{DeviceType::kCuda, 1}));
}

TEST(CudaDriverTest, ErrorsCarryCallArgumentsAndTheDriversText) {
  StandIn machine;
  const auto backend = machine.backend();
  machine.fail("cuMemCreate", 1, 999);
  const std::string text = error_of<CudaError>([&] { backend->create_pages(kPage); });
  EXPECT_THAT(text, HasSubstr("cuMemCreate("));
  EXPECT_THAT(text, HasSubstr("2097152"));
  EXPECT_THAT(text, HasSubstr("CUDA_ERROR_UNKNOWN (999): unknown error"));
}

// --- What it is, and what it leaves alone.

TEST(CudaBackendTest, SaysWhatTheDeviceIs) {
  const StandIn machine;
  const auto backend = machine.backend();
  EXPECT_THAT(backend->description(), HasSubstr("Tenon stand-in 0, 8 GiB, compute 9.0"));
  EXPECT_THAT(backend->description(), HasSubstr("pages of 2 MiB"));
  EXPECT_EQ(backend->memory().total_bytes, 8 * kGiB);
}

TEST(CudaBackendTest, LeavesTheThreadsContextAsItWas) {
  const StandIn machine("devices=2");
  const auto first = machine.backend(0);
  const auto second = machine.backend(1);
  const CudaDriver& driver = first->driver();
  cu::Context current = nullptr;
  driver.call(driver.ctx_get_current, &current);
  EXPECT_EQ(current, nullptr);
  driver.call(driver.ctx_push_current, second->context());
  const auto segment = first->allocate_segment(kPage);
  EXPECT_EQ(machine.used(0), kPage);
  EXPECT_EQ(machine.used(1), 0u);
  driver.call(driver.ctx_get_current, &current);
  EXPECT_EQ(current, second->context());
  first->free_segment(*segment);
  driver.call(driver.ctx_pop_current, &current);
}

TEST(CudaBackendTest, MemoryThatOtherProcessesHoldIsNotThere) {
  StandIn machine("capacity=67108864");
  const auto backend = machine.backend();
  machine.take(0, 63 * kMiB);
  EXPECT_EQ(backend->memory().free_bytes, kMiB);
  EXPECT_FALSE(backend->allocate_segment(2 * kMiB));
  EXPECT_FALSE(backend->create_pages(kPage));
  machine.take(0, 0);
  const auto segment = backend->allocate_segment(2 * kMiB);
  ASSERT_TRUE(segment);
  backend->free_segment(*segment);
}

TEST(CudaBackendTest, GivesBackWhateverIsLeft) {
  const StandIn machine("lazy=1");
  const auto backend = machine.backend();
  const auto range = backend->reserve_address(4 * kPage);
  const auto pages = backend->create_pages(kPage);
  const auto released = backend->create_pages(kPage);
  backend->map(range->base, *pages);
  backend->map(range->base + kPage, *released);
  backend->set_access(range->base, 2 * kPage);
  backend->release_pages(*released);
  const Stream stream = backend->create_stream();
  backend->fill(reinterpret_cast<void*>(range->base), 1, kPage, stream);
  backend->record(stream);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kManaged})
    ASSERT_TRUE(backend->allocate_segment(1000, kind));
}  // the machine's end looks for leaks and faults

// --- Kinds of memory.

TEST(CudaBackendTest, PinnedAndManagedMemoryIsReachedByBoth) {
  const StandIn machine("lazy=1,seed=5");
  const auto backend = machine.backend();
  const Stream stream{backend->device(), 0};
  const auto device = backend->allocate_segment(4096);
  for (const MemoryKind kind : {MemoryKind::kPinned, MemoryKind::kManaged}) {
    const auto segment = backend->allocate_segment(4096, kind);
    ASSERT_TRUE(segment);
    ASSERT_NE(segment->host, nullptr);
    EXPECT_EQ(segment->kind, kind);
    std::memset(segment->host, 'p', 4096);
    backend->copy(device->base, segment->base, 4096, stream);
    backend->synchronize(stream);
    std::memset(segment->host, 0, 4096);
    backend->copy(segment->base, device->base, 4096, stream);
    backend->synchronize(stream);
    EXPECT_EQ(static_cast<char*>(segment->host)[4095], 'p');
    backend->free_segment(*segment);
  }
  backend->free_segment(*device);
  EXPECT_EQ(machine.pinned(), 0u);
  EXPECT_THROW(backend->allocate_segment(4096, MemoryKind::kShared), DeviceError);
}

// --- Streams of others.

TEST(CudaBackendTest, AdoptedStreamsKeepTheirNumberAndTheirOwner) {
  const StandIn machine;
  const auto backend = machine.backend();
  const CudaDriver& driver = backend->driver();
  driver.call(driver.ctx_push_current, backend->context());
  cu::Stream made = nullptr;
  driver.call(driver.stream_create, &made, cu::kStreamNonBlocking);
  const Stream stream = backend->adopt_stream(made);
  EXPECT_EQ(backend->adopt_stream(made), stream);
  EXPECT_EQ(backend->adopt_stream(nullptr).id, 0u);
  EXPECT_EQ(backend->stream_handle(stream), made);
  EXPECT_THROW(backend->adopt_stream(reinterpret_cast<cu::Stream>(cu::kStreamPerThread)),
               InvalidArgument);
  backend->wait(backend->record(stream));
  backend->destroy_stream(stream);  // forgotten, not destroyed
  driver.call(driver.stream_synchronize, made);
  driver.call(driver.stream_destroy, made);
  cu::Context popped = nullptr;
  driver.call(driver.ctx_pop_current, &popped);
}

// Note [Events of a capturing stream]
TEST(CudaBackendTest, EventsOfACapturingStreamCompleteAfterTheCapture) {
  const StandIn machine("lazy=1");
  const auto backend = machine.backend();
  const CudaDriver& driver = backend->driver();
  const Stream stream = backend->create_stream();
  cu::Context popped = nullptr;
  driver.call(driver.ctx_push_current, backend->context());
  driver.call(driver.stream_begin_capture, backend->stream_handle(stream),
              cu::kCaptureModeGlobal);
  EXPECT_TRUE(backend->is_capturing(stream));
  const Event event = backend->record(stream);
  EXPECT_FALSE(backend->query(event));
  EXPECT_THROW(backend->wait(event), DeviceError);
  // What a capture forbids, the backend does in relaxed mode.
  const auto segment = backend->allocate_segment(kPage);
  backend->query(event);
  // What would end the capture is refused before the driver hears of it.
  const Event outside = backend->record(Stream{backend->device(), 0});
  EXPECT_THROW(backend->stream_wait(stream, outside), DeviceError);
  EXPECT_THROW(backend->synchronize(), DeviceError);
  EXPECT_THROW(backend->synchronize(stream), DeviceError);
  cu::Graph graph = nullptr;
  driver.call(driver.stream_end_capture, backend->stream_handle(stream), &graph);
  EXPECT_NE(graph, nullptr);
  EXPECT_FALSE(backend->is_capturing(stream));
  backend->wait(event);
  EXPECT_TRUE(backend->query(event));
  driver.call(driver.graph_destroy, graph);
  driver.call(driver.ctx_pop_current, &popped);
  backend->free_segment(*segment);
}

// --- Peers.

TEST(CudaBackendTest, PeersReachWhatIsMappedAndWhatWillBe) {
  const StandIn machine("devices=2,lazy=1");
  const auto first = machine.backend(0);
  const auto second = machine.backend(1);
  const auto range = first->reserve_address(2 * kPage);
  const auto pages = first->create_pages(kPage);
  const auto later = first->create_pages(kPage);
  first->map(range->base, *pages);
  first->set_access(range->base, kPage);
  first->allow_peer(*second);
  first->map(range->base + kPage, *later);
  first->set_access(range->base + kPage, kPage);
  const auto segment = first->allocate_segment(kPage);
  const Stream stream{second->device(), 0};
  second->fill(reinterpret_cast<void*>(range->base), 7, 2 * kPage, stream);
  second->fill(segment->base, 7, kPage, stream);
  second->synchronize(stream);
  first->free_segment(*segment);
}

TEST(CudaBackendTest, WithoutAPathThereIsNoPeer) {
  const StandIn machine("devices=2,peers=0");
  const auto first = machine.backend(0);
  const auto second = machine.backend(1);
  EXPECT_FALSE(first->can_be_reached_by(*second));
  EXPECT_THROW(first->allow_peer(*second), DeviceError);
  EXPECT_THROW(first->allow_peer(*first), DeviceError);
}

// --- Failures.

TEST(CudaBackendTest, LackOfMemoryIsAValueAtEveryCallThatMayHaveIt) {
  StandIn machine;
  const auto backend = machine.backend();
  const auto range = backend->reserve_address(kPage);
  machine.fail("cuMemAlloc_v2", 1, cu::kErrorOutOfMemory);
  EXPECT_FALSE(backend->allocate_segment(kPage));
  machine.fail("cuMemHostAlloc", 1, cu::kErrorOutOfMemory);
  EXPECT_FALSE(backend->allocate_segment(kPage, MemoryKind::kPinned));
  machine.fail("cuMemAddressReserve", 1, cu::kErrorOutOfMemory);
  EXPECT_FALSE(backend->reserve_address(kPage));
  machine.fail("cuMemCreate", 1, cu::kErrorOutOfMemory);
  EXPECT_FALSE(backend->create_pages(kPage));
  const auto pages = backend->create_pages(kPage);
  machine.fail("cuMemMap", 1, cu::kErrorOutOfMemory);
  EXPECT_FALSE(backend->map(range->base, *pages));
  ASSERT_TRUE(backend->map(range->base, *pages));
  machine.fail("cuMemSetAccess", 1, cu::kErrorOutOfMemory);
  EXPECT_FALSE(backend->set_access(range->base, kPage));
  EXPECT_TRUE(backend->set_access(range->base, kPage));
}

TEST(CudaBackendTest, ALostDeviceIsNamedAndEverythingStillEnds) {
  StandIn machine;
  machine.expect_leaks();  // a lost device takes nothing back
  const auto backend = machine.backend();
  const auto segment = backend->allocate_segment(kPage);
  machine.lose_device(1);
  const std::string text =
      error_of<CudaError>([&] { backend->fill(segment->base, 0, kPage, {backend->device(), 0}); });
  EXPECT_THAT(text, HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
  EXPECT_THAT(text, HasSubstr("lost"));
  EXPECT_THROW(backend->allocate_segment(kPage), CudaError);
  EXPECT_THROW(backend->synchronize(), CudaError);
  backend->free_segment(*segment);  // nobody is told that there is nothing to free
  EXPECT_THROW(backend->free_segment(*segment), DeviceError) << "but misuse";
}

// What static objects free while the process ends.
TEST(CudaBackendTest, FreesAreSilentOnceTheDriverIsGone) {
  StandIn machine;
  machine.expect_leaks();
  const auto backend = machine.backend();
  const auto segment = backend->allocate_segment(kPage);
  const auto range = backend->reserve_address(kPage);
  const auto pages = backend->create_pages(kPage);
  backend->map(range->base, *pages);
  const Stream stream = backend->create_stream();
  machine.end();
  backend->free_segment(*segment);
  backend->unmap(range->base, *pages);
  backend->release_pages(*pages);
  backend->release_address(*range);
  backend->destroy_stream(stream);
  EXPECT_THROW(backend->create_pages(kPage), CudaError);
}

TEST(CudaBackendTest, PagesThatMayNotBeExportedStayInTheProcess) {
  StandIn machine;
  machine.fail("cuMemCreate", 1, cu::kErrorNotSupported);
  const auto backend = machine.backend();
  EXPECT_FALSE(backend->limits().can_export);
  const auto pages = backend->create_pages(kPage);
  ASSERT_TRUE(pages);
  EXPECT_THROW(backend->export_pages(*pages), DeviceError);
  backend->release_pages(*pages);
}

// Network cards register memory only if it was created for that, and not every device can.
TEST(CudaBackendTest, PagesCanBeRegisteredForRdmaWhereTheDeviceCan) {
  for (const bool can : {true, false}) {
    StandIn machine(can ? "rdma=1" : "rdma=0");
    const auto backend = machine.backend();
    const std::uint64_t before = machine.rdma_bytes();
    const auto pages = backend->create_pages(kPage);
    ASSERT_TRUE(pages);
    EXPECT_EQ(machine.rdma_bytes() - before, can ? kPage : 0u);
    backend->release_pages(*pages);
  }
}

TEST(CudaBackendTest, AForkedChildIsToldToSpawn) {
  const StandIn machine;
  const auto backend = machine.backend();
  const auto segment = backend->allocate_segment(kPage);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = error_of<DeviceError>([&] { backend->allocate_segment(kPage); });
    ::_exit(text.find("spawn") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  backend->free_segment(*segment);
}

// --- Between processes.

TEST(CudaBackendTest, SegmentsPassBetweenProcesses) {
  const StandIn machine;
  const auto backend = machine.backend();
  const Stream stream{backend->device(), 0};
  const auto segment = backend->allocate_segment(4096);
  backend->fill(segment->base, 'i', 4096, stream);
  backend->synchronize();
  const CudaIpcSegment shared = backend->export_segment(*segment);
  EXPECT_THROW(backend->import_segment(shared), CudaError) << "not in its own process";
  // A program of its own: this one with a filter, and the handle in its environment.
  const std::string handle(reinterpret_cast<const char*>(&shared), sizeof(shared));
  std::string hex;
  for (const char c : handle) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  const std::string command =
      fmt::format("TENON_TEST_IPC={} {} --gtest_filter=CudaIpcPeer.* "
                  "--gtest_also_run_disabled_tests >/dev/null",
                  hex, std::string(::testing::internal::GetArgvs()[0]));
  EXPECT_EQ(std::system(command.c_str()), 0);
  char seen = 0;
  backend->copy(&seen, segment->base, 1, stream);
  EXPECT_EQ(seen, 'o') << "what the other process wrote";
  const auto pinned = backend->allocate_segment(4096, MemoryKind::kPinned);
  EXPECT_THROW(backend->export_segment(*pinned), DeviceError);
  backend->free_segment(*pinned);
  backend->free_segment(*segment);
}

// Run by the test above, in a process of its own.
TEST(CudaIpcPeer, DISABLED_ReadsAndWritesAnothersSegment) {
  const char* hex = std::getenv("TENON_TEST_IPC");
  ASSERT_NE(hex, nullptr);
  CudaIpcSegment shared;
  auto* bytes = reinterpret_cast<unsigned char*>(&shared);
  ASSERT_EQ(std::strlen(hex), 2 * sizeof(shared));
  for (std::size_t i = 0; i < sizeof(shared); ++i)
    bytes[i] = static_cast<unsigned char>(std::stoi(std::string(hex + 2 * i, 2), nullptr, 16));
  const StandIn machine;
  const auto backend = machine.backend();
  const Segment segment = backend->import_segment(shared);
  const Stream stream{backend->device(), 0};
  char seen = 0;
  backend->copy(&seen, static_cast<char*>(segment.base) + 4095, 1, stream);
  EXPECT_EQ(seen, 'i');
  backend->fill(segment.base, 'o', 4096, stream);
  backend->synchronize();
  EXPECT_THROW(backend->export_segment(segment), DeviceError) << "only the owner may";
  backend->free_segment(segment);
}

}  // namespace
}  // namespace tenon
