/* Loaded by dlopen: allocates in a constructor, hands a block out, frees in a destructor. */
#include <stdlib.h>
#include <string.h>

static char* kept;

__attribute__((constructor)) static void begin(void) {
  kept = malloc(300000);
  memset(kept, 7, 300000);
}
__attribute__((destructor)) static void end(void) { free(kept); }

char* late_block(size_t size) {
  char* block = malloc(size);
  if (block != NULL) memset(block, 9, size);
  return block;
}
