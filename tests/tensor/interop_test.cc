#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory_resource>
#include <vector>

#include "support/refusal.h"
#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/dlpack_abi.h"
#include "tenon/tensor/interop/npy.h"
#include "tenon/tensor/interop/safetensors.h"
#include "tenon/tensor/interop/standard.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFile;

bool equal(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes())) return false;
  return a.numel() == 0 || std::memcmp(contiguous(a).const_data_ptr(),
                                       contiguous(b).const_data_ptr(), a.nbytes()) == 0;
}

std::vector<Tensor> one_of_each() {
  std::vector<Tensor> all;
  for (int i = 0; i < kDTypeCount; ++i)
    if (static_cast<DType>(i) != DType::kQI8)
      all.push_back(to(arange(12), static_cast<DType>(i)).view({3, 4}));
  return all;
}

// --- DLPack
TEST(DLPackTest, GoesOutAndComesBackWithoutCopying) {
  for (const Tensor& t : one_of_each()) {
    const Tensor view = t.t().slice(0, 1, 4, 2);
    for (const Tensor& back :
         {from_dlpack(to_dlpack(view)), from_dlpack(to_dlpack_versioned(view))}) {
      EXPECT_TRUE(equal(back, view));
      EXPECT_EQ(back.const_data_ptr(), view.const_data_ptr());
      EXPECT_EQ(back.strides(), view.strides());
    }
  }
  const Tensor t = zeros({3});
  EXPECT_EQ(t.storage().use_count(), 1u);
  DLManagedTensor* managed = to_dlpack(t);
  EXPECT_EQ(t.storage().use_count(), 2u);
  managed->deleter(managed);
  EXPECT_EQ(t.storage().use_count(), 1u);
}

TEST(DLPackTest, TheExportKeepsTheBytesUntilItsDeleterRuns) {
  const auto check = [](auto&& export_tensor) {
    float values[4] = {3, 3, 3, 3};
    int freed = 0;
    Tensor t = from_blob(
        DataPtr::with_deleter(values, [&](void*) { ++freed; }, Device()), 16, {4}, {1},
        DType::kF32);
    auto* const managed = export_tensor(t);
    t = Tensor();
    EXPECT_EQ(freed, 0);
    EXPECT_EQ(managed->dl_tensor.data, values);
    ASSERT_NE(managed->dl_tensor.strides, nullptr);
    managed->deleter(managed);
    EXPECT_EQ(freed, 1);
  };
  check(&to_dlpack);
  check(&to_dlpack_versioned);
}

int deleted = 0;
DLManagedTensorVersioned foreign(float* data, std::int64_t* shape) {
  deleted = 0;
  DLManagedTensorVersioned managed{};
  managed.version = {kDLPackMajor, 5};
  managed.deleter = [](DLManagedTensorVersioned*) { ++deleted; };
  managed.dl_tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 4};
  return managed;
}

TEST(DLPackTest, ForeignTensorsAreCheckedAndTheirDeletersRunOnce) {
  float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  std::int64_t shape[2] = {2, 3};
  DLManagedTensorVersioned good = foreign(data, shape);
  {
    const Tensor t = from_dlpack(&good);
    EXPECT_EQ(t.select(0, 1).select(0, 2).item<float>(), 6);
    EXPECT_EQ(deleted, 0);
  }
  EXPECT_EQ(deleted, 1);
  using Spoil = void (*)(DLManagedTensorVersioned&);
  for (const Spoil spoil : std::initializer_list<Spoil>{
           [](DLManagedTensorVersioned& m) { m.version.major = 2; },
           [](DLManagedTensorVersioned& m) { m.flags = kDLFlagSubBytePadded; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.dtype.lanes = 4; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.dtype.bits = 4; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.ndim = -1; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.ndim = 1000; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.shape = nullptr; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.shape[0] = -2; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.shape[0] = INT64_MAX; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.data = nullptr; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.byte_offset += 1; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.device = {kDLCUDA, -5}; },
           [](DLManagedTensorVersioned& m) { m.dl_tensor.device = {kDLCUDA, 65536}; },
           [](DLManagedTensorVersioned& m) {
             m.dl_tensor.device.device_type = static_cast<DLDeviceType>(99);
           },
           [](DLManagedTensorVersioned& m) {
             m.dl_tensor.device.device_type = static_cast<DLDeviceType>(0);
           },
           [](DLManagedTensorVersioned& m) {
             m.dl_tensor.shape[0] = 1;
             m.dl_tensor.shape[1] = std::int64_t{1} << 61;
           },
           [](DLManagedTensorVersioned& m) {
             static std::int64_t backwards[2] = {-3, 1};
             m.dl_tensor.strides = backwards;
           }}) {
    std::int64_t own_shape[2] = {2, 3};
    DLManagedTensorVersioned bad = foreign(data, own_shape);
    spoil(bad);
    EXPECT_THROW(from_dlpack(&bad), InvalidArgument);
    EXPECT_EQ(deleted, 1);
  }
}

// The codes of float8 came with version 1.1.
TEST(DLPackTest, TheVersionIsTheFirstThatKnowsTheDtype) {
  for (const Tensor& t : one_of_each()) {
    DLManagedTensorVersioned* const out = to_dlpack_versioned(t);
    const bool is_float8 = t.dtype() == DType::kF8E4M3 || t.dtype() == DType::kF8E5M2;
    EXPECT_EQ(out->version.major, 1u);
    EXPECT_EQ(out->version.minor, is_float8 ? 1u : 0u) << dtype_name(t.dtype());
    out->deleter(out);
  }
}

TEST(DLPackTest, ReadOnlyMemoryIsCopied) {
  float data[8] = {};
  std::int64_t shape[2] = {2, 3};
  DLManagedTensorVersioned managed = foreign(data, shape);
  managed.flags = kDLFlagReadOnly;
  const Tensor t = from_dlpack(&managed);
  EXPECT_EQ(deleted, 1);
  fill_(t, 5);
  EXPECT_EQ(data[3], 0);
}

// 2^40 elements of one float: copying elements would need 4 TiB.
TEST(DLPackTest, AReadOnlyBroadcastCopiesTheBytesThatThereAre) {
  float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::int64_t shape[2] = {std::int64_t{1} << 40, 3};
  std::int64_t strides[2] = {0, 2};
  DLManagedTensorVersioned managed = foreign(data, shape);
  managed.dl_tensor.strides = strides;
  managed.flags = kDLFlagReadOnly;
  const Tensor t = from_dlpack(&managed);
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(t.sizes(), IntList({std::int64_t{1} << 40, 3}));
  EXPECT_EQ(t.storage().impl()->nbytes(), 5 * sizeof(float));
  EXPECT_EQ(t.select(0, 12345).select(0, 2).item<float>(), 6);
  EXPECT_NE(t.const_data_ptr(), data + 1);
}

TEST(DLPackTest, UnknownPlacesAreRefused) {
  EXPECT_THROW(to_dlpack(empty({2}, DType::kF32, Device{DeviceType::kMeta, 0})), InvalidArgument);
  EXPECT_THROW(from_dlpack(static_cast<DLManagedTensor*>(nullptr)), InvalidArgument);
}

// A third party's device: memory that only its own allocator can tell from the host's.
TEST(DLPackTest, ARegisteredDeviceGoesOutAndComesBack) {
  static const DeviceType npu = register_device_type("dlpack_npu");
  struct NpuAllocator final : Allocator {
    DataPtr allocate(std::size_t size) override {
      return DataPtr::with_deleter(std::malloc(size + 1), [](void* p) { std::free(p); },
                                   Device{npu, 2});
    }
    void copy_data(void* to, const void* from, std::size_t size) const override {
      default_copy_data(to, from, size);
    }
  } allocator;
  const Device device{npu, 2};
  const AllocatorGuard guard(device, allocator);
  const Tensor t = full({2, 3}, 1.5, DType::kF32, device);
  EXPECT_THROW(to_dlpack(t), InvalidArgument) << "it has no number yet";
  EXPECT_THROW(set_dlpack_device_type(DeviceType::kCuda, 16), InvalidArgument);
  EXPECT_THROW(set_dlpack_device_type(npu, kDLCUDA), InvalidArgument);
  set_dlpack_device_type(npu, 16);
  set_dlpack_device_type(npu, 16);
  EXPECT_THROW(set_dlpack_device_type(npu, 17), InvalidArgument);
  EXPECT_THROW(set_dlpack_device_type(register_device_type("dlpack_other"), 16), InvalidArgument);

  DLManagedTensorVersioned* const out = to_dlpack_versioned(t);
  EXPECT_EQ(static_cast<int>(out->dl_tensor.device.device_type), 16);
  EXPECT_EQ(out->dl_tensor.device.device_id, 2);
  const Tensor back = from_dlpack(out);
  EXPECT_EQ(back.device(), device);
  EXPECT_EQ(back.const_data_ptr(), t.const_data_ptr());
  const Tensor unversioned = from_dlpack(to_dlpack(back));
  EXPECT_EQ(to(unversioned, Device{}).select(0, 1).select(0, 2).item<float>(), 1.5f);
}

// --- npy
TEST(NpyTest, EveryDTypeSurvivesTheFile) {
  const TemporaryFile file(".npy");
  for (const Tensor& t : one_of_each()) {
    if (t.dtype() == DType::kBF16 || is_float8(t.dtype())) {
      EXPECT_THROW(save_npy(file.path(), t), InvalidArgument);
      continue;
    }
    for (const Tensor& shaped : {t, t.t(), t.select(0, 1), t.slice(0, 0, 0), t.view({3, 1, 4})}) {
      save_npy(file.path(), shaped);
      EXPECT_TRUE(equal(load_npy(file.path()), shaped));
    }
  }
  save_npy(file.path(), full({}, 2.5));
  EXPECT_EQ(load_npy(file.path()).item<float>(), 2.5f);
}

std::string npy(const std::string& dictionary, const std::string& data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  bytes += static_cast<char>(dictionary.size() & 0xff);
  bytes += static_cast<char>(dictionary.size() >> 8);
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + dictionary + data;
}

TEST(NpyTest, ReadsOtherOrdersAndVersions) {
  const std::string data("\0\1\0\2\0\3\0\4\0\5\0\6", 12);
  for (const char version : {1, 2, 3}) {
    const Tensor t = parse_npy(
        npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", data, version), "memory");
    EXPECT_EQ(t.sizes(), (IntList{2, 3}));
    EXPECT_EQ(t.select(0, 0).select(0, 1).item<int>(), 3);
    EXPECT_EQ(t.select(0, 1).select(0, 2).item<int>(), 6);
  }
}

TEST(NpyTest, DamagedFilesAreRefused) {
  const std::string good =
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "12345678");
  EXPECT_EQ(parse_npy(good, "memory").numel(), 2);
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(parse_npy(std::string_view(good).substr(0, length), "memory"), ParseError);
  for (const char* bad :
       {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (2,), }", "{'shape': (2,), }", "", "{"})
    EXPECT_THROW(parse_npy(npy(bad, "12345678"), "memory"), ParseError) << bad;
}

TEST(NpyTest, ABoolIsZeroOrOne) {
  const std::string header = "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_EQ(parse_npy(npy(header, {"\0\1", 2}), "memory").numel(), 2);
  EXPECT_THROW(parse_npy(npy(header, {"\0\2", 2}), "memory"), ParseError);
}

TEST(NpyTest, AMessageQuotesLittleOfTheFile) {
  for (const char* begin : {"{'", "{'descr': '"}) {
    try {
      parse_npy(npy(begin + std::string(60000, 'x') + "'}", ""), "memory");
      FAIL() << begin;
    } catch (const ParseError& error) {
      EXPECT_LT(std::string(error.what()).size(), 200u);
    }
  }
}

// --- safetensors
TEST(SafeTensorsTest, EveryDTypeSurvivesTheFileWithoutACopy) {
  const TemporaryFile file(".safetensors");
  std::map<std::string, Tensor> saved;
  for (const Tensor& t : one_of_each())
    if (t.dtype() != DType::kC128) saved[std::string(dtype_name(t.dtype()))] = t.t();
  saved["scalar"] = full({}, 3);
  saved["nothing"] = empty({0, 4});
  save_safetensors(file.path(), saved, {{"made by", "a test"}});
  const SafeTensors loaded = load_safetensors(file.path());
  EXPECT_EQ(loaded.metadata.at("made by"), "a test");
  ASSERT_EQ(loaded.tensors.size(), saved.size());
  for (const auto& [name, tensor] : saved)
    EXPECT_TRUE(equal(loaded.tensors.at(name), tensor)) << name;
  EXPECT_EQ(loaded.tensors.at("float32").storage().allocator(), nullptr);  // the file's pages
  fill_(loaded.tensors.at("float32"), 1);
  EXPECT_TRUE(equal(load_safetensors(file.path()).tensors.at("float32"), saved.at("float32")));
  EXPECT_THROW(save_safetensors(file.path(), {{"c", zeros({1}, DType::kC128)}}), InvalidArgument);
}

std::string safe(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(data_bytes, 'x');
}

TEST(SafeTensorsTest, HostileFilesAreRefused) {
  const auto one = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string("{\"a\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  EXPECT_EQ(parse_safetensors(safe(one("F32", "[2]", "[0,8]") + "   ", 8), "memory").tensors.size(),
            1u);
  EXPECT_EQ(parse_safetensors(safe("{}", 0), "memory").tensors.size(), 0u);
  for (const std::string& bad : {
           safe(one("F32", "[2]", "[0,8]"), 9),    // bytes left over
           safe(one("F32", "[2]", "[0,8]"), 7),    // cut off
           safe(one("F32", "[2]", "[1,9]"), 9),    // a gap
           safe(one("F32", "[2]", "[8,0]"), 8),    // backwards
           safe(one("F32", "[3]", "[0,8]"), 8),    // another size
           safe(one("F32", "[-2]", "[0,8]"), 8),   // a negative size
           safe(one("F32", "[2.0]", "[0,8]"), 8),  // no integer
           safe(one("F31", "[2]", "[0,8]"), 8),    // no dtype
           safe(one("F32", "[9223372036854775807,4]", "[0,8]"), 8),
           safe(one("F32", "[4611686018427387904,4]", "[0,0]"), 0),
           safe(one("F32", "[2]", "[0,8,8]"), 8),
           safe(" {}", 0),
           safe("[]", 0),
           safe("{", 0),
           safe("", 0),
           safe("{\"__metadata__\":{\"a\":1}}", 0),
           safe("{\"a\":" + one("F32", "[2]", "[0,8]").substr(5, 50) + "}", 8),
           safe("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                8),
           safe("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                8),
           safe("{\"a\":" + std::string(100000, '['), 0),
           safe(one("BOOL", "[2]", "[0,2]"), 2),  // bytes of 'x'
           std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
           std::string("short"),
       })
    EXPECT_THROW(parse_safetensors(bad, "memory"), ParseError) << bad.substr(8, 120);
}

TEST(SafeTensorsTest, NamesThatNoHeaderMayHaveAreRefused) {
  const TemporaryFile file("names.safetensors");
  const Tensor one = ones({2});
  const auto message = [&](const char* name, const char* key, const char* value) {
    return testing::refusal([&] { save_safetensors(file.path(), {{name, one}}, {{key, value}}); });
  };
  EXPECT_THAT(message("__metadata__", "k", "v"), HasSubstr("a tensor named __metadata__"));
  EXPECT_THAT(message("a\xff", "k", "v"), HasSubstr("the name \"a\\ufffd\" is not UTF-8"));
  EXPECT_THAT(message("a", "\xff", "v"), HasSubstr("the metadata's key"));
  EXPECT_THAT(message("a", "k", "\xff"), HasSubstr("the metadata's value"));
  EXPECT_THAT(message("\u00e9", "k", "v"), HasSubstr("no InvalidArgument"));
  EXPECT_THAT(testing::refusal([&] { save_safetensors(file.path(), {{"a", Tensor()}}); }),
              HasSubstr("save_safetensors: \"a\": an undefined tensor"));
}

TEST(SafeTensorsTest, RandomDamageNeverDoesMoreThanFail) {
  const TemporaryFile file(".safetensors");
  save_safetensors(file.path(), {{"a", arange(4)}, {"b", zeros({2, 3})}}, {{"k", "v"}});
  const std::string good = file.contents();
  Random random(11);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (std::uint64_t n = random.between(1, 4); n > 0; --n)
      bytes[random.below(good.size())] = static_cast<char>(random.next());
    if (random.chance(0.2)) bytes.resize(random.below(bytes.size()));
    try {
      for (const auto& [name, tensor] : parse_safetensors(bytes, "memory").tensors)
        EXPECT_LE(tensor.nbytes(), bytes.size());
    } catch (const ParseError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(FilesTest, MissingFilesAreNamed) {
  EXPECT_THROW(load_npy("/nonexistent/a.npy"), ParseError);
  EXPECT_THROW(load_safetensors("/nonexistent/a"), ParseError);
  EXPECT_THROW(load_safetensors("/"), ParseError);
  EXPECT_THROW(save_npy("/nonexistent/a.npy", zeros({1})), std::runtime_error);
}

// --- the standard library
TEST(StandardTest, SpansSeeTheElements) {
  const Tensor t = zeros({2, 3});
  as_span<float>(t)[4] = 7;
  EXPECT_EQ(t.select(0, 1).select(0, 1).item<float>(), 7);
  EXPECT_EQ(as_const_span<float>(t).size(), 6u);
  EXPECT_THROW(as_span<double>(t), InvalidArgument);
  EXPECT_THROW(as_span<float>(t.t()), InvalidArgument);
}

TEST(StandardTest, ContainersUseAnAllocatorsMemory) {
  const std::int64_t before = get_default_cpu_allocator()->stats().allocation[0].current;
  {
    AllocatorResource resource(*get_default_cpu_allocator());
    std::pmr::vector<double> numbers(&resource);
    for (int i = 0; i < 1000; ++i) numbers.push_back(i);
    EXPECT_EQ(numbers[999], 999);
    EXPECT_GT(get_default_cpu_allocator()->stats().allocation[0].current, before);
    EXPECT_TRUE(resource.is_equal(AllocatorResource(*get_default_cpu_allocator())));
  }
  EXPECT_EQ(get_default_cpu_allocator()->stats().allocation[0].current, before);
}

// The JSON library's parser with a callback takes time in the square of the names: minutes here.
TEST(SafeTensors, MayHaveAHundredThousandNames) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  header += "}";
  const std::uint64_t length = header.size();
  const std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  EXPECT_EQ(parse_safetensors(bytes + header, "many.safetensors").tensors.size(), 100'000u);
}

}  // namespace
}  // namespace tenon
