// What all uses of oneDNN share, and all that differs between its versions 2 and 3.
#pragma once

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

namespace tenon::ops::cpu {

dnnl::engine& cpu_engine();

// What a primitive of the parts would be; `parts` are in oneDNN's order.
template <typename Primitive, typename... Parts>
typename Primitive::primitive_desc describe(const dnnl::primitive_attr& attributes,
                                            const Parts&... parts) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), parts..., attributes};
#else
  return {{parts...}, attributes, cpu_engine()};
#endif
}
// The same of a gradient, with the description of its forward primitive.
template <typename Primitive, typename Forward, typename... Parts>
typename Primitive::primitive_desc describe_gradient(const dnnl::primitive_attr& attributes,
                                                     const Forward& forward,
                                                     const Parts&... parts) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu_engine(), parts..., forward, attributes};
#else
  return {{parts...}, attributes, cpu_engine(), forward};
#endif
}

dnnl::memory::dims sizes_of(const dnnl::memory::desc& desc);
// How many elements of a dimension a block of the layout has; 1: it is in no block.
std::int64_t block_length(const dnnl::memory::desc& desc, int dimension);

// To be called before a primitive is made: oneDNN 2.6 ends the process with SIGSEGV where the
// system refuses the memory for its code. Throws OutOfMemory unless as much can be mapped.
void require_memory_for_code();

}  // namespace tenon::ops::cpu
