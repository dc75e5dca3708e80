// Tenon's version. The build reads it from here.
#pragma once

// The version, as numbers and as text. CHANGELOG.md says what may change.
#define TENON_VERSION_MAJOR 0
#define TENON_VERSION_MINOR 1
#define TENON_VERSION_PATCH 0
#define TENON_VERSION "0.1.0"
