#include "pytorch_errors.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <typeinfo>

#include "old_strings.h"

namespace tenon::torch {
namespace {

// Note [PyTorch's exception without its headers]
//
// A C++ exception is an object and the address of its std::type_info. libc10 exports the class
// c10::Error with its constructor and type information; c10::OutOfMemoryError is that
// class again under another name, with nothing added. So the object is made by c10::Error's own
// constructor, and thrown as of a type named OutOfMemoryError whose base is c10::Error: handlers
// are found by comparing names (Itanium C++ ABI, 2.9.3), and its virtual functions are inherited.
// PyPI's wheels before 2.7 have the string of before C++11, and another constructor for it.
using ErrorConstructor = void (*)(void* object, SourceLocation where, std::string message);

constexpr const char* kConstructor =
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kOldConstructor = "_ZN3c105ErrorC1ENS_14SourceLocationESs";
constexpr const char* kTypeInfo = "_ZTIN3c105ErrorE";
constexpr std::size_t kObjectBytes = 1024;  // c10::Error has some 200, in every version so far

struct Libc10 {
  ErrorConstructor construct = nullptr;
  void* construct_with_old_string = nullptr;
  std::type_info* out_of_memory = nullptr;
};

// By the object's own table of virtual functions, whose first entry is the destructor.
void destroy(void* object) {
  using Destructor = void (*)(void*);
  (*static_cast<Destructor**>(object))[0](object);
}

// What it finds is in the process already; nothing is loaded.
const Libc10* find_libc10() {
  void* library = ::dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = ::dlopen(nullptr, RTLD_NOW);  // linked into the program
  if (library == nullptr) return nullptr;
  static Libc10 found;
  found.construct = reinterpret_cast<ErrorConstructor>(::dlsym(library, kConstructor));
  found.construct_with_old_string = ::dlsym(library, kOldConstructor);
  const auto* base = static_cast<const abi::__class_type_info*>(::dlsym(library, kTypeInfo));
  if (base == nullptr) return nullptr;
  if (found.construct == nullptr && found.construct_with_old_string == nullptr) return nullptr;
  found.out_of_memory = new abi::__si_class_type_info("N3c1016OutOfMemoryErrorE", base);
  return &found;
}

}  // namespace

void throw_out_of_memory(const std::string& message) {
  static const Libc10* const c10 = find_libc10();
  if (c10 == nullptr) throw std::runtime_error(message);
  void* object = abi::__cxa_allocate_exception(kObjectBytes);
  std::memset(object, 0, kObjectBytes);
  const SourceLocation where{"tenon_malloc", "libtenon_torch.so", 0};
  if (c10->construct != nullptr)
    c10->construct(object, where, message);
  else
    construct_with_old_string(c10->construct_with_old_string, object, where, message.c_str());
  abi::__cxa_throw(object, c10->out_of_memory, &destroy);
}

void throw_error(const std::string& message) { throw std::runtime_error(message); }

}  // namespace tenon::torch
