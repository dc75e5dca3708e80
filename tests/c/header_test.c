/* The header is C: it compiles as C99 without a warning, and a C program links with the library. */
#include <stdio.h>
#include <string.h>
#include <tenon/tenon.h>

int main(void) {
  tenon_backend host = 0;
  tenon_allocator allocator = 0;
  void* block = NULL;
  if (tenon_backend_host(&host) != TENON_OK) return 1;
  if (tenon_allocator_create(host, "host", NULL, &allocator) != TENON_OK) return 2;
  if (tenon_allocate(allocator, 1000, 0, &block) != TENON_OK) return 3;
  memset(block, 1, 1000);
  if (tenon_free(allocator, block) != TENON_OK) return 4;
  if (tenon_free(allocator, block) != TENON_INVALID_POINTER) return 5;
  if (strstr(tenon_last_error(), "tenon_free: ") != tenon_last_error()) return 6;
  return tenon_allocator_destroy(allocator) == TENON_OK ? 0 : 7;
}
