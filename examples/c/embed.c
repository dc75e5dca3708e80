/* Tenon from C: a device of one's own, a policy over it, streams, statistics, an observer, running
   out of memory, a DLPack tensor, and a recording that is explained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/tenon.h>

/* Any failure that the program does not expect ends it, with Tenon's message. */
static void must(tenon_status status) {
  if (status == TENON_OK) return;
  fprintf(stderr, "%s\n", tenon_last_error());
  exit(1);
}

/* --- The device: 64 MiB, straight from the C library. */

static void* device_allocate(void* context, uint64_t size_bytes) {
  ++*(int*)context;
  return aligned_alloc(4096, (size_bytes + 4095) / 4096 * 4096);
}
static void device_release(void* context, void* base, uint64_t size_bytes) {
  (void)context;
  (void)size_bytes;
  free(base);
}

/* --- An observer: counts. */

static void count_event(void* context, const tenon_event* event) {
  ++((int*)context)[event->kind];
}

int main(void) {
  if (tenon_c_abi() != TENON_C_ABI) {
    fprintf(stderr, "libtenon_c %s is of another generation than the header\n", tenon_version());
    return 1;
  }
  printf("tenon %s\n", tenon_version());

  int driver_calls = 0;
  tenon_device_functions functions = {0};
  functions.struct_bytes = sizeof(functions);
  functions.context = &driver_calls;
  functions.name = "example";
  functions.total_bytes = 64 << 20;
  functions.alignment = 4096;
  functions.host_can_reach = 1;
  functions.allocate = device_allocate;
  functions.release = device_release;
  tenon_backend device = 0;
  must(tenon_backend_custom(&functions, &device));

  tenon_allocator allocator = 0;
  must(tenon_allocator_create(device, "caching", NULL, &allocator));
  int events[TENON_EVENT_ALLOCATION_FAILED + 1] = {0};
  tenon_observer observer = 0;
  must(tenon_observer_add(allocator, count_event, events, &observer));
  tenon_recording recording = 0;
  must(tenon_recording_start("embed_c.csv", &recording));

  /* A thousand blocks of 1 MiB, one after the other: one call of the device. */
  for (int i = 0; i < 1000; ++i) {
    void* block = NULL;
    must(tenon_allocate(allocator, 1 << 20, 0, &block));
    memset(block, i, 1 << 20);
    must(tenon_free(allocator, block));
  }
  printf("1000 blocks, %d calls of the device, %d frees seen\n", driver_calls,
         events[TENON_EVENT_FREED]);

  /* Running out: the program goes on. */
  void* too_large = NULL;
  if (tenon_allocate(allocator, 100 << 20, 0, &too_large) == TENON_OUT_OF_MEMORY) {
    tenon_out_of_memory numbers = {0};
    numbers.struct_bytes = sizeof(numbers);
    must(tenon_last_out_of_memory(&numbers));
    printf("asked for %llu MiB of %llu MiB: %s\n",
           (unsigned long long)(numbers.requested_bytes >> 20),
           (unsigned long long)(numbers.limit_bytes >> 20),
           tenon_status_name(TENON_OUT_OF_MEMORY));
  }
  must(tenon_recording_finish(recording));
  must(tenon_observer_remove(observer));
  must(tenon_allocator_destroy(allocator));
  must(tenon_backend_destroy(device));

  /* A wrong handle is an error like any other. */
  if (tenon_allocator_destroy(allocator) != TENON_INVALID_HANDLE) return 1;

  /* The host's memory as a tensor that NumPy, PyTorch or JAX can take. */
  tenon_backend host = 0;
  must(tenon_backend_host(&host));
  must(tenon_allocator_create(host, "host", NULL, &allocator));
  void* block = NULL;
  must(tenon_allocate(allocator, 6 * sizeof(float), 0, &block));
  const int64_t shape[] = {2, 3};
  struct DLManagedTensorVersioned* tensor = NULL;
  must(tenon_export_dlpack(allocator, block, 2, 32, shape, 2, &tensor));
  if (tenon_allocator_destroy(allocator) != TENON_IN_USE) return 1;
  /* Who takes the tensor calls its deleter: the third word of the structure. */
  ((void (**)(struct DLManagedTensorVersioned*))tensor)[2](tensor);
  must(tenon_allocator_destroy(allocator));

  /* What was recorded, explained: the text of `tenon explain embed_c.csv --json`. */
  tenon_traces traces = 0;
  must(tenon_traces_load("embed_c.csv", &traces));
  tenon_trace_summary summary = {0};
  summary.struct_bytes = sizeof(summary);
  must(tenon_trace_summarize(traces, 0, &summary));
  char* json = NULL;
  must(tenon_explain(traces, &json));
  printf("%llu events, live peak %llu KiB, %zu bytes of explanation\n",
         (unsigned long long)summary.events, (unsigned long long)(summary.live_peak_bytes >> 10),
         strlen(json));
  tenon_string_free(json);
  must(tenon_traces_destroy(traces));
  return summary.live_peak_bytes == 1 << 20 ? 0 : 1;
}
