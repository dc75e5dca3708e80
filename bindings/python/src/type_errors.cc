// The text of a TypeError for arguments that fit no signature. nanobind writes it in its own words,
// over several lines, and has no hook; it raises it by PyErr_SetString, which the linker leads here
// (--wrap). All other errors pass unchanged.
#include <Python.h>

#include <string>
#include <string_view>

extern "C" void __real_PyErr_SetString(PyObject* type, const char* message);

namespace {

constexpr std::string_view kFits =
    "(): incompatible function arguments. The following argument types are supported:\n";
constexpr std::string_view kGiven = "\nInvoked with types: ";

// "tenon._tensor.Tensor" is Tensor to those who use the package; NumPy's names stay whole.
std::string without_modules(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    if (text.starts_with("tenon._"))
      text.remove_prefix(text.find('.', text.find('.') + 1) + 1);
    const std::size_t next = text.find("tenon._", 1);
    plain += text.substr(0, next);
    text.remove_prefix(next == text.npos ? text.size() : next);
  }
  return plain;
}

// "Tensor, kwargs = { dim: str }" as a call has it: "Tensor, dim=str".
std::string arguments_of(std::string_view given) {
  std::string plain = without_modules(given);
  const std::size_t named = plain.find("kwargs = { ");
  if (named == plain.npos) return plain;
  std::string tail = plain.substr(named + 11);
  if (tail.ends_with(" }")) tail.resize(tail.size() - 2);
  for (std::size_t at = 0; (at = tail.find(": ", at)) != tail.npos;) tail.replace(at, 2, "=");
  return plain.substr(0, named) + tail;
}

// The signatures, which come as "    1. sum(...) -> Tensor" in lines.
std::string signatures_of(std::string_view lines) {
  std::string plain;
  while (!lines.empty()) {
    std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(line.size() == lines.size() ? line.size() : line.size() + 1);
    const std::size_t number = line.find(". ");
    if (number == line.npos) continue;
    if (!plain.empty()) plain += ", or ";
    plain += without_modules(line.substr(number + 2));
  }
  return plain;
}

// A property's setter, which has no name: "(self, arg: bool, /) -> None".
std::string value_error(std::string_view signature, std::string_view given) {
  const std::size_t from = signature.find(": ");
  const std::size_t end = signature.find(", /)");
  const std::size_t last = given.rfind(", ");
  if (from == signature.npos || end == signature.npos || last == given.npos) return {};
  return "give " + std::string(signature.substr(from + 2, end - from - 2)) + ", not " +
         std::string(given.substr(last + 2));
}

// Up to the next ", ", which is taken off.
std::string_view take_word(std::string_view& list) {
  const std::string_view word = list.substr(0, list.find(", "));
  list.remove_prefix(word.size() == list.size() ? word.size() : word.size() + 2);
  return word;
}

// Whether "Allocator, int" has an int for each parameter of "allocate(self, nbytes: int) -> Array"
// that it reaches, and no other type: then one of them is out of range.
bool has_only_numbers(std::string_view given, std::string_view signature) {
  const std::size_t open = signature.find('(');
  if (open == signature.npos || !signature.substr(open + 1).starts_with("self, ")) return false;
  std::string_view declared = signature.substr(open + 1);
  declared = declared.substr(0, declared.find(") ->"));
  take_word(declared);
  take_word(given);
  if (given.empty()) return false;
  while (!given.empty()) {
    const std::string_view parameter = take_word(declared);
    if (take_word(given) != "int" || parameter.find(": int") == parameter.npos) return false;
  }
  return true;
}

// Empty: this is another message.
std::string plain_message(std::string_view message) {
  const std::size_t fits = message.find(kFits);
  const std::size_t given = message.rfind(kGiven);
  if (fits == message.npos || given == message.npos) return {};
  const std::string name(message.substr(0, fits));
  const std::string arguments = arguments_of(message.substr(given + kGiven.size()));
  const std::size_t begin = fits + kFits.size();
  const std::string signatures = signatures_of(message.substr(begin, given - begin));
  if (name.empty())
    if (std::string value = value_error(signatures, arguments); !value.empty()) return value;
  const char* const why =
      has_only_numbers(arguments, signatures) ? ": a number is negative or too large" : "";
  return name + ": the arguments (" + arguments + ") do not fit " + signatures + why;
}

}  // namespace

extern "C" void __wrap_PyErr_SetString(PyObject* type, const char* message) {
  std::string plain;
  if (type == PyExc_TypeError) plain = plain_message(message);
  __real_PyErr_SetString(type, plain.empty() ? message : plain.c_str());
}
