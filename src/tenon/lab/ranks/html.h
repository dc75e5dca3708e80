// Text from files inside a web page.
#pragma once

#include <string>
#include <string_view>

namespace tenon {

// Text that a browser shows as it is and never reads as markup: & < > " ' become references.
// Control characters, what is not UTF-8, and marks that reverse the direction of writing become
// U+FFFD.
std::string html_text(std::string_view text);

}  // namespace tenon
