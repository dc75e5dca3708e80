/* A C program that allocates in every way: tests/preload/CMakeLists.txt runs it over
   libtenon_preload.so. Usage: program CASE [OPERATIONS]. Exit status 0 when all is well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*serves)(const void*); /* libtenon_preload.so's */
static char* from_constructor;

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

enum { kLarge = 64 << 10, kSmall = kLarge - 1 };

__attribute__((constructor)) static void before_main(void) {
  from_constructor = malloc(1 << 20);
  memset(from_constructor, 3, 1 << 20);
}

static int all_are(const char* bytes, size_t size, char value) {
  for (size_t i = 0; i < size; ++i)
    if (bytes[i] != value) return 0;
  return 1;
}

static uint32_t next_random(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* Large blocks are Tenon's, small ones are not. */
static void border(void) {
  char* small = malloc(kSmall);
  char* large = malloc(kLarge);
  CHECK(!serves(small) && serves(large));
  CHECK(serves(from_constructor) && from_constructor[1 << 19] == 3);
  free(small);
  free(large);
  free(from_constructor);
  free(NULL);
  CHECK(!serves(large));
  volatile size_t too_much = (size_t)1 << 62; /* which the compiler must not know */
  CHECK(malloc(too_much) == NULL && errno == ENOMEM);
  CHECK(calloc(too_much, too_much) == NULL);
}

/* Every alignment, of large blocks and small ones. */
static void aligned(void) {
  for (size_t alignment = 8; alignment <= (4 << 20); alignment *= 2)
    for (size_t size = 1; size <= (3 << 20); size = size * 5 + 1) {
      void* block = NULL;
      CHECK(posix_memalign(&block, alignment, size) == 0);
      CHECK((uintptr_t)block % alignment == 0);
      CHECK(serves(block) == (size >= kLarge));
      CHECK(malloc_usable_size(block) >= size);
      memset(block, 1, malloc_usable_size(block));
      void* other = aligned_alloc(alignment, size);
      CHECK(other != NULL && (uintptr_t)other % alignment == 0);
      memset(other, 2, size);
      CHECK(all_are(block, size, 1));
      free(block);
      free(other);
    }
  void* untouched = (void*)1;
  CHECK(posix_memalign(&untouched, 24, 100000) == EINVAL && untouched == (void*)1);
  for (size_t size = 100; size <= 100000; size *= 1000) {  // rounded up to 128, as glibc does
    volatile size_t no_power_of_two = 100;  // so that no compiler refuses it
    void* odd = memalign(no_power_of_two, size);
    CHECK(odd != NULL && (uintptr_t)odd % 128 == 0);
    free(odd);
  }
  void* page = valloc(100000);
  CHECK((uintptr_t)page % 4096 == 0);
  free(page);
}

/* realloc keeps contents across the border, both ways, also from NULL and to nothing. */
static void reallocate(void) {
  static const size_t sizes[] = {100,     70000,   200,       65536, 65535,     1 << 20,
                                 1000000, 600000,  100000000, 10,    (32 << 20), 40000000};
  char* block = NULL;
  size_t size = 0;
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    block = realloc(block, sizes[i]);
    CHECK(block != NULL);
    const size_t kept = size < sizes[i] ? size : sizes[i];
    CHECK(all_are(block, kept, (char)i));
    CHECK(malloc_usable_size(block) >= sizes[i]);
    size = sizes[i];
    memset(block, (int)i + 1, size);
  }
  volatile size_t too_much = (size_t)1 << 62;
  CHECK(realloc(block, too_much) == NULL);
  CHECK(all_are(block, size, 12));
  CHECK(reallocarray(block, too_much, too_much) == NULL);
  free(block);
  void* volatile last = malloc(100000);
  CHECK(realloc(last, 0) == NULL);
}

/* A block that grows step by step moves seldom, and the program never holds it twice. */
static void growing(void) {
  enum { kStep = 64 << 10, kMost = 128 << 20 };
  struct rusage before, after;
  CHECK(getrusage(RUSAGE_SELF, &before) == 0);
  char* block = NULL;
  int moves = 0;
  for (size_t size = kStep; size <= kMost; size += kStep) {
    char* const grown = realloc(block, size);
    CHECK(grown != NULL);
    moves += grown != block;
    block = grown;
    memset(block + size - kStep, (int)(size / kStep), kStep);
  }
  CHECK(serves(block));
  CHECK(moves < 50);
  volatile size_t too_much = SIZE_MAX / 3 * 2 + kStep; /* one and a half times that overflows */
  CHECK(realloc(block, too_much) == NULL);
  for (size_t size = kStep; size <= kMost; size += kStep)
    CHECK(all_are(block + size - kStep, kStep, (char)(size / kStep)));
  CHECK(getrusage(RUSAGE_SELF, &after) == 0);
  CHECK(after.ru_maxrss - before.ru_maxrss < kMost / 1024 * 5 / 4); /* in KiB */
  free(block);
}

/* Under ulimit -v, which the test sets: what was freed serves larger blocks, and small ones. */
static void few_addresses(void) {
  enum { kMost = 100, kBytes = 20 << 20, kSmallBytes = 1000 };
  char* blocks[kMost];
  int count = 0;
  while (count < kMost && (blocks[count] = malloc(kBytes)) != NULL) ++count;
  CHECK(count >= 6 && count < kMost && serves(blocks[0]));
  for (int i = 0; i < count; ++i) free(blocks[i]);
  char* const large = malloc(5 * (size_t)kBytes);
  CHECK(large != NULL);
  free(large);
  char* first = NULL; /* of a list: each has the next one's address */
  for (size_t bytes = 0; bytes < 5 * (size_t)kBytes; bytes += kSmallBytes) {
    char* const small = malloc(kSmallBytes);
    CHECK(small != NULL);
    memcpy(small, &first, sizeof(first));
    first = small;
  }
}

/* How many of the 64 pages from there on are in memory. */
static int resident_pages(const char* from) {
  unsigned char resident[64];
  int pages = 0;
  CHECK(mincore((void*)((uintptr_t)from / 4096 * 4096), sizeof(resident) * 4096, resident) == 0);
  for (size_t i = 0; i < sizeof(resident); ++i) pages += resident[i] & 1;
  return pages;
}

/* calloc's memory is zero, of recycled blocks too, and is not touched where it is large. */
static void zeroed(void) {
  for (int round = 0; round < 3; ++round)
    for (size_t size = 1000; size < (64u << 20); size = size * 3 + 1) {
      char* dirty = malloc(size);
      memset(dirty, 0x5a, size);
      free(dirty);
      char* clean = calloc(1, size);
      CHECK(all_are(clean, size, 0));
      memset(clean, 1, size);
      free(clean);
    }
  const size_t huge = (size_t)1 << 30;
  char* sparse = calloc(huge, 1);
  CHECK(sparse != NULL && serves(sparse));
  CHECK(resident_pages(sparse + huge / 2) == 0);
  free(sparse);
}

/* A zeroed block's pages go back when it is freed, unless its place serves other requests too. */
static char* use_and_free(char* block, size_t size) {
  memset(block, 1, size);
  free(block);
  return block;
}
static void zeroed_places(void) {
  const size_t size = 32 << 20;
  char* const place = use_and_free(calloc(size, 1), size);
  CHECK(resident_pages(place + size / 2) == 0);
  CHECK(use_and_free(malloc(size), size) == place && resident_pages(place + size / 2) == 64);
  CHECK(use_and_free(calloc(size, 1), size) == place && resident_pages(place + size / 2) == 64);
  CHECK(use_and_free(malloc(size), size) == place && resident_pages(place + size / 2) == 64);
  for (int i = 0; i < 2; ++i) CHECK(use_and_free(calloc(size, 1), size) == place);
  CHECK(resident_pages(place + size / 2) == 0);
}

/* A thread that allocates from its destructors on, after others' have run. */
static pthread_key_t key;
static void at_thread_end(void* block) {
  memset(block, 4, 200000);
  free(block);
  char* more = malloc(300000);
  memset(more, 5, 300000);
  free(more);
}
static void* short_lived(void* argument) {
  uint32_t state = (uint32_t)(uintptr_t)argument;
  pthread_setspecific(key, malloc(200000));
  char* kept = NULL;
  for (int i = 0; i < 50; ++i) {
    const size_t size = 1000 + next_random(&state) % 500000;
    char* block = malloc(size);
    memset(block, i, size);
    free(kept);
    kept = block;
    CHECK(all_are(block, size, (char)i));
  }
  return kept; /* freed by main */
}
static void threads(void) {
  CHECK(pthread_key_create(&key, at_thread_end) == 0);
  for (int round = 0; round < 50; ++round) {
    pthread_t running[4];
    for (uintptr_t i = 0; i < 4; ++i)
      CHECK(pthread_create(&running[i], NULL, short_lived, (void*)(i + round * 4 + 1)) == 0);
    for (int i = 0; i < 4; ++i) {
      void* block = NULL;
      CHECK(pthread_join(running[i], &block) == 0);
      free(block);
    }
  }
}

/* fork while other threads allocate; the child allocates, frees its parent's blocks, forks again. */
static volatile int stop;
static void* busy(void* argument) {
  uint32_t state = (uint32_t)(uintptr_t)argument;
  while (!stop) {
    const size_t size = 60000 + next_random(&state) % 300000;
    char* block = malloc(size);
    block[0] = block[size - 1] = 1;
    free(block);
  }
  return NULL;
}
static void forks(void) {
  pthread_t running[3];
  for (uintptr_t i = 0; i < 3; ++i)
    CHECK(pthread_create(&running[i], NULL, busy, (void*)(i + 1)) == 0);
  for (int i = 0; i < 40; ++i) {
    char* mine = malloc(500000);
    memset(mine, 6, 500000);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      CHECK(all_are(mine, 500000, 6));
      mine = realloc(mine, 900000);
      memset(mine, 8, 900000);
      if (i % 10 == 0) {
        const pid_t grandchild = fork();
        if (grandchild == 0) _exit(all_are(mine, 900000, 8) ? 0 : 1);
        int status = 0;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
      }
      free(mine);
      free(malloc(2000000));
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(all_are(mine, 500000, 6));
    free(mine);
  }
  stop = 1;
  for (int i = 0; i < 3; ++i) pthread_join(running[i], NULL);
}

/* Threads that allocate, pass blocks on and end, while the program forks and some requests are
   refused; each child allocates on two threads. The second argument says how many operations. */
static uint64_t wanted_operations = 200000;
enum { kBoxes = 256 };
static char* _Atomic boxes[kBoxes];
static _Atomic uint64_t operations, refused, begun, ended_places;
static void churn(uint32_t* state, int steps) {
  uint64_t failures = 0;
  for (int i = 0; i < steps; ++i) {
    const uint32_t kind = next_random(state) % 512; /* one is more than the limit allows */
    const size_t most = kind < 32 ? 9000000 : 200000;
    const size_t size = kind == 32 ? (size_t)4 << 30 : 20000 + next_random(state) % most;
    char* block = malloc(size);
    if (block == NULL) {
      ++failures;
    } else {
      memcpy(block, &size, sizeof(size));
      block[size - 1] = 7;
    }
    block = atomic_exchange(&boxes[next_random(state) % kBoxes], block);
    if (block == NULL) continue;
    size_t left = 0;
    memcpy(&left, block, sizeof(left));
    CHECK(block[left - 1] == 7);
    free(block);
  }
  atomic_fetch_add(&operations, 2 * (uint64_t)steps - 2 * failures);
  atomic_fetch_add(&refused, failures);
}
static void* short_life(void* argument) {
  uint32_t state = (uint32_t)(uintptr_t)argument;
  churn(&state, 1000);
  return NULL;
}
static void* place(void* argument) {
  while (operations < wanted_operations) {
    pthread_t thread;
    const uint64_t number = atomic_fetch_add(&begun, 1);
    while (pthread_create(&thread, NULL, short_life, (void*)(uintptr_t)(number + 1)) != 0)
      usleep(1000); /* no room for its stack */
    CHECK(pthread_join(thread, NULL) == 0);
  }
  atomic_fetch_add(&ended_places, 1);
  return argument;
}
static void child_lives(void) {
  pthread_t thread;
  uint32_t state = 5;
  alarm(60);
  while (pthread_create(&thread, NULL, short_life, (void*)(uintptr_t)17) != 0) usleep(1000);
  churn(&state, 300);
  CHECK(pthread_join(thread, NULL) == 0);
  _exit(0);
}
static void churns(void) {
  enum { kPlaces = 3 };
  const struct rlimit short_memory = {3u << 30, 3u << 30};
  uint64_t children = 0;
  pthread_t running[kPlaces];
  CHECK(setrlimit(RLIMIT_AS, &short_memory) == 0);
  for (int i = 0; i < kPlaces; ++i) CHECK(pthread_create(&running[i], NULL, place, NULL) == 0);
  for (; ended_places < kPlaces; ++children) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) child_lives();
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) fprintf(stderr, "child %llu: status %#x\n", (unsigned long long)children, status);
    CHECK(status == 0);
    usleep(5000);
  }
  for (int i = 0; i < kPlaces; ++i) CHECK(pthread_join(running[i], NULL) == 0);
  printf("%llu operations, %llu threads, %llu forks, %llu requests refused\n",
         (unsigned long long)operations, (unsigned long long)begun, (unsigned long long)children,
         (unsigned long long)refused);
}

/* A library that comes late, and goes. */
static void late(void) {
  void* library = dlopen(LATE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  char* (*late_block)(size_t) = (char* (*)(size_t))dlsym(library, "late_block");
  CHECK(late_block != NULL);
  char* large = late_block(1 << 20);
  char* small = late_block(100);
  CHECK(serves(large) && !serves(small) && all_are(large, 1 << 20, 9));
  CHECK(dlclose(library) == 0);
  free(large);
  free(small);
}

/* A C++ library that comes late, and brings the C++ library along. */
static void plugin(void) {
  void* library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  int (*use)(void) = (int (*)(void))dlsym(library, "use_operators");
  CHECK(use != NULL);
  CHECK(use() == 0);
}

/* Many blocks at random, with their contents. */
static void random_use(void) {
  enum { kBlocks = 60, kSteps = 30000 };
  static char* blocks[kBlocks];
  static size_t sizes[kBlocks];
  uint32_t state = 42;
  for (int step = 0; step < kSteps; ++step) {
    const unsigned i = next_random(&state) % kBlocks;
    const size_t size = next_random(&state) % (next_random(&state) % 8 == 0 ? 2000000u : 100000u);
    if (blocks[i] != NULL) {
      CHECK(blocks[i][0] == (char)i && blocks[i][sizes[i] - 1] == (char)i);
      CHECK(malloc_usable_size(blocks[i]) >= sizes[i]);
    }
    switch (next_random(&state) % 4) {
      case 0:
        free(blocks[i]);
        blocks[i] = NULL;
        continue;
      case 1:
        free(blocks[i]);
        blocks[i] = malloc(size + 1);
        break;
      case 2:
        free(blocks[i]);
        blocks[i] = calloc(size + 1, 1);
        CHECK(blocks[i][0] == 0 && blocks[i][size / 2] == 0 && blocks[i][size] == 0);
        break;
      default:
        blocks[i] = realloc(blocks[i], size + 1);
    }
    CHECK(blocks[i] != NULL);
    sizes[i] = size + 1;
    blocks[i][0] = blocks[i][size] = (char)i;
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
}

/* Parent and child both end as programs do. */
static void family(void) {
  free(malloc(500000));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    free(malloc(700000));
    return;
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A child that allocates nothing large ends as programs do. */
static void idle_child(void) {
  free(malloc(500000));
  const pid_t child = fork();
  int status = 0;
  CHECK(child >= 0);
  if (child != 0) CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Parent and child ask for what no machine has. */
static void refusals(void) {
  idle_child();
  volatile size_t too_much = (size_t)1 << 46;
  CHECK(malloc(too_much) == NULL);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {{"border", border}, {"aligned", aligned}, {"reallocate", reallocate},
               {"growing", growing}, {"few_addresses", few_addresses},
               {"zeroed", zeroed}, {"zeroed_places", zeroed_places}, {"threads", threads},
               {"forks", forks},   {"late", late},     {"plugin", plugin},
               {"random", random_use}, {"churn", churns}, {"family", family},
               {"idle_child", idle_child}, {"refusals", refusals}};
  *(void**)&serves = dlsym(RTLD_DEFAULT, "tenon_preload_serves");
  if (serves == NULL) {
    fprintf(stderr, "libtenon_preload.so is not preloaded\n");
    return 1;
  }
  if (argc == 3) wanted_operations = strtoull(argv[2], NULL, 10);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
    if (argc >= 2 && strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "usage: program CASE [OPERATIONS]\n");
  return 2;
}
