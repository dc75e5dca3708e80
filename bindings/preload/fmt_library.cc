// fmt's compiled part. Debian has it as a shared library only, which would bring the shared C++
// library into every program; this one keeps both to itself.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
#if FMT_VERSION >= 100000
template void vformat_to(buffer<char>&, string_view, vformat_args<>::type, locale_ref);
#else
template void vformat_to(buffer<char>&, string_view,
                         basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
#endif

}  // namespace detail
FMT_END_NAMESPACE
