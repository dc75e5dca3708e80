/* Tenon for C, and for every language that can call C. Link with libtenon_c.

   Handles are numbers that this library gave out. A handle of another kind, one that was destroyed
   and 0 are refused with TENON_INVALID_HANDLE; they never crash. A number is not used again.

   Failure: every function that can fail returns a tenon_status; what it was to write is left as it
   was. tenon_last_error() has the message of the calling thread's last failure.

   Threads: every function may be called from any thread. A handle must not be destroyed while
   another thread uses it. A child of fork(2) has all objects as they were; it may wait without end
   if another thread was in one of these functions at the fork.

   Strings are UTF-8, 0-terminated. Those that a function hands over are given back by
   tenon_string_free. Structures that begin with struct_bytes must have it set to their sizeof. Later
   versions add fields at their end; a program built with an earlier header goes on as before. */
#ifndef TENON_TENON_H
#define TENON_TENON_H

#include <stddef.h>
#include <stdint.h>

/* Marks what the library exports. */
#if defined(__GNUC__)
#define TENON_C_API __attribute__((visibility("default")))
#else
#define TENON_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- Version and errors. ---------------------------------------------------------------------- */

/* Raised by a change that programs built before cannot work with. */
#define TENON_C_ABI 0

/* "0.1.0" */
TENON_C_API const char* tenon_version(void);
/* The library's TENON_C_ABI, to be compared with the header's. */
TENON_C_API int tenon_c_abi(void);

/* What a call came to. Values are never given another meaning. */
typedef enum tenon_status {
  TENON_OK = 0,
  TENON_INVALID_ARGUMENT = 1, /* a value that cannot be right */
  TENON_INVALID_HANDLE = 2,   /* 0, destroyed, of another kind, or never given out */
  TENON_INVALID_POINTER = 3,  /* no block of this allocator, or freed already */
  TENON_OUT_OF_MEMORY = 4,    /* tenon_last_out_of_memory() has the numbers */
  TENON_DEVICE_ERROR = 5,     /* a driver's */
  TENON_PARSE_ERROR = 6,      /* a file's contents: name, line, column, reason */
  TENON_IO_ERROR = 7,         /* a file that cannot be written */
  TENON_IN_USE = 8,           /* something still depends on it */
  TENON_INTERNAL_ERROR = 9    /* a bug in Tenon */
} tenon_status;

/* "out of memory"; "unknown" for other numbers. */
TENON_C_API const char* tenon_status_name(tenon_status status);

/* The message of the calling thread's last failure; "" before any. Valid until the thread's next
   call that fails. */
TENON_C_API const char* tenon_last_error(void);

/* The numbers of a failed request, in bytes. */
typedef struct tenon_out_of_memory {
  size_t struct_bytes;
  uint64_t requested_bytes;
  uint64_t allocated_bytes;    /* in blocks that are in use */
  uint64_t reserved_bytes;     /* held from the driver */
  uint64_t limit_bytes;        /* capacity or limit in force; 0: none */
  uint64_t largest_free_bytes; /* inside what is reserved */
} tenon_out_of_memory;

/* Of the calling thread's last TENON_OUT_OF_MEMORY. TENON_INVALID_ARGUMENT when it had none. */
TENON_C_API tenon_status tenon_last_out_of_memory(tenon_out_of_memory* out);

/* Gives back a string that a function handed over. Null is ignored. */
TENON_C_API void tenon_string_free(char* text);

/* --- Handles. --------------------------------------------------------------------------------- */

typedef uint64_t tenon_backend;   /* a device's driver */
typedef uint64_t tenon_allocator; /* a policy over a backend */
typedef uint64_t tenon_observer;  /* a callback on an allocator */
typedef uint64_t tenon_recording; /* of all allocators, into a file */
typedef uint64_t tenon_traces;    /* a file that was read */

/* --- Backends: where bytes come from. ---------------------------------------------------------- */

/* The machine's own memory: the same handle at each call. It need not be destroyed. */
TENON_C_API tenon_status tenon_backend_host(tenon_backend* out);

/* A device with a capacity whose streams lag behind the host. */
typedef struct tenon_simulated_device {
  size_t struct_bytes;
  uint64_t capacity_bytes; /* its memory: not 0 */
  uint64_t lag_ns;         /* a stream finishes its work so long after it was queued */
  int real_memory;         /* 0: addresses cannot be read or written, and cost nothing */
} tenon_simulated_device;
/* A new simulated device: addresses are its own, and the same calls give the same ones. */
TENON_C_API tenon_status tenon_backend_simulated(const tenon_simulated_device* device,
                                                 tenon_backend* out);

/* An NVIDIA GPU, by its number. */
TENON_C_API tenon_status tenon_backend_cuda(int index, tenon_backend* out);

/* A device of your own. All functions may be called from any thread, get `context`, and must not
   call back into Tenon. Those of virtual memory may be null, all six together. */
typedef struct tenon_device_functions {
  size_t struct_bytes;
  void* context;
  const char* name;            /* its kind: lower-case letters, digits and _ */
  uint64_t total_bytes;
  uint64_t alignment;          /* of segments: a power of two */
  uint64_t page_granularity;   /* 0: no virtual memory */
  int can_map_twice;           /* the same pages at two addresses at once: `stitched` needs it */
  int host_can_reach;          /* its addresses may be read and written by the processor */

  /* Memory with an address. Null: there is none. */
  void* (*allocate)(void* context, uint64_t size_bytes);
  void (*release)(void* context, void* base, uint64_t size_bytes);

  /* Addresses without memory, and memory without an address. 0: there is none. */
  uint64_t (*reserve_address)(void* context, uint64_t size_bytes);
  void (*release_address)(void* context, uint64_t base, uint64_t size_bytes);
  uint64_t (*create_pages)(void* context, uint64_t size_bytes);
  void (*release_pages)(void* context, uint64_t pages, uint64_t size_bytes);
  /* The whole of `pages`, readable and writable. 0: there is no memory for it. */
  int (*map)(void* context, uint64_t address, uint64_t pages, uint64_t size_bytes);
  void (*unmap)(void* context, uint64_t address, uint64_t pages, uint64_t size_bytes);

  /* Contents. Null where host_can_reach: the processor does it. */
  void (*copy)(void* context, void* dest, const void* src, uint64_t size_bytes);
  void (*fill)(void* context, void* dest, uint8_t value, uint64_t size_bytes);

  /* Waits for all work of the device; null: there is none. */
  void (*synchronize)(void* context);
} tenon_device_functions;
/* A backend over those functions, which are copied; `context` must outlive it. All work on its
   streams counts as done when the call that queued it returns, so tenon_record_stream has nothing
   to wait for. A device that works on while the host goes on needs the next function. */
TENON_C_API tenon_status tenon_backend_custom(const tenon_device_functions* functions,
                                              tenon_backend* out);

/* The streams of a device of your own that works on while the host goes on. Tenon names a stream by
   the number that tenon_stream_create gave, or 0; which queue that is, the program knows. All are
   needed, and `synchronize` too. They get the device's `context`. */
typedef struct tenon_stream_functions {
  size_t struct_bytes;
  /* An event: a point behind all work that has been queued on the stream so far. 0: it failed. */
  uint64_t (*record)(void* context, uint32_t stream);
  /* Not 0: all work before the event is done. */
  int (*is_done)(void* context, uint64_t event);
  /* The host waits for the event. */
  void (*wait)(void* context, uint64_t event);
  /* Work that is queued on the stream from here on waits for the event. */
  void (*stream_wait)(void* context, uint32_t stream, uint64_t event);
  /* The event is not asked for again. */
  void (*release_event)(void* context, uint64_t event);
} tenon_stream_functions;
/* As tenon_backend_custom. `copy` and `fill` are called when the stream's earlier work is done, and
   have finished when they return; `release` is called when all work of the device is done. */
TENON_C_API tenon_status tenon_backend_custom_with_streams(const tenon_device_functions* functions,
                                                           const tenon_stream_functions* streams,
                                                           tenon_backend* out);

/* TENON_IN_USE while an allocator stands on it. */
TENON_C_API tenon_status tenon_backend_destroy(tenon_backend backend);

/* The device's memory, in all and free now. */
TENON_C_API tenon_status tenon_backend_memory(tenon_backend backend, uint64_t* total_bytes,
                                              uint64_t* free_bytes);

/* Streams are numbers of their backend; 0 is the one that every device has. */
TENON_C_API tenon_status tenon_stream_create(tenon_backend backend, uint32_t* out);
/* Its queued work still ends. TENON_IN_USE while there is an allocator that a request on the stream
   or tenon_record_stream named it to, also when all its blocks are freed: destroy that first. */
TENON_C_API tenon_status tenon_stream_destroy(tenon_backend backend, uint32_t stream);
/* Waits until all work of the stream is done. */
TENON_C_API tenon_status tenon_stream_synchronize(tenon_backend backend, uint32_t stream);

/* Copies bytes between two ranges that do not overlap, in stream order. */
TENON_C_API tenon_status tenon_copy(tenon_backend backend, void* dest, const void* src,
                                    uint64_t size_bytes, uint32_t stream);
/* Sets each byte to `value`, in stream order. */
TENON_C_API tenon_status tenon_fill(tenon_backend backend, void* dest, uint8_t value,
                                    uint64_t size_bytes, uint32_t stream);

/* --- Allocators. ------------------------------------------------------------------------------- */

/* The policies by name, in the order of `tenon policies`. Null beyond the last one. */
TENON_C_API const char* tenon_policy_name(size_t index);
/* The policy in one line. Null beyond the last one. */
TENON_C_API const char* tenon_policy_summary(size_t index);

/* What a policy may be told. All fields but the first may be 0 or null. */
typedef struct tenon_allocator_options {
  size_t struct_bytes;
  const char* conf;      /* PyTorch's allocator settings, "key:value,key:value", of `caching`,
                            `expandable` and `stitched`; else null */
  uint64_t limit_bytes;  /* of what it may hold; 0: none */
  uint64_t page_bytes;   /* of `stitched`; 0: its default */
  const char* plan_file; /* of `plan`: what `tenon plan -o` wrote; else null */
} tenon_allocator_options;

/* An allocator over the backend, which cannot be destroyed before it. `options` may be null.
   TENON_INVALID_ARGUMENT for a policy or setting that is not known, and for an option that the
   policy does not use. */
TENON_C_API tenon_status tenon_allocator_create(tenon_backend backend, const char* policy,
                                                const tenon_allocator_options* options,
                                                tenon_allocator* out);
/* TENON_IN_USE while blocks of it live, those that were exported included. */
TENON_C_API tenon_status tenon_allocator_destroy(tenon_allocator allocator);

/* A block on `stream`; null for 0 bytes. */
TENON_C_API tenon_status tenon_allocate(tenon_allocator allocator, uint64_t size_bytes,
                                        uint32_t stream, void** out);
/* Null is ignored. */
TENON_C_API tenon_status tenon_free(tenon_allocator allocator, void* data);
/* The block is also used by work on `stream`: once freed it waits for that work too. On a device of
   your own without tenon_stream_functions all work is done already, and nothing waits. */
TENON_C_API tenon_status tenon_record_stream(tenon_allocator allocator, void* data,
                                             uint32_t stream);
/* Unused memory goes back to the driver. */
TENON_C_API tenon_status tenon_empty_cache(tenon_allocator allocator);

/* Counts of an allocator. Peaks over several streams are approximate. */
typedef struct tenon_statistics {
  size_t struct_bytes;
  int64_t blocks;               /* in use */
  int64_t requested_bytes;      /* by them */
  int64_t requested_peak_bytes;
  int64_t allocated_bytes;      /* after rounding */
  int64_t allocated_peak_bytes;
  int64_t reserved_bytes;       /* held from the driver */
  int64_t reserved_peak_bytes;
  int64_t allocations;          /* ever */
  int64_t retries;              /* requests that needed cached memory to be given back */
  int64_t out_of_memories;
} tenon_statistics;
/* The counts now, over all streams. */
TENON_C_API tenon_status tenon_allocator_statistics(tenon_allocator allocator,
                                                    tenon_statistics* out);
/* All of them, as torch.cuda.memory_stats names them. */
TENON_C_API tenon_status tenon_allocator_statistics_json(tenon_allocator allocator, char** out);
/* Peaks become the current values. */
TENON_C_API tenon_status tenon_reset_peaks(tenon_allocator allocator);

/* What happened. */
typedef enum tenon_event_kind {
  TENON_EVENT_ALLOCATED = 0, /* a block from fresh driver memory */
  TENON_EVENT_RECYCLED = 1,  /* a block from memory that was held already */
  TENON_EVENT_FREED = 2,
  TENON_EVENT_RELEASED = 3,  /* memory went back to the driver */
  TENON_EVENT_MAPPED = 4,
  TENON_EVENT_UNMAPPED = 5,
  TENON_EVENT_ALLOCATION_FAILED = 6
} tenon_event_kind;
/* One event of an allocator. */
typedef struct tenon_event {
  tenon_event_kind kind;
  void* data;          /* null for a failure */
  uint64_t size_bytes; /* as requested, for blocks */
  uint32_t stream;
} tenon_event;
/* Called on the thread that allocates or frees. It may use the allocator and remove the observer;
   to destroy the allocator is TENON_IN_USE until it has returned. */
typedef void (*tenon_event_function)(void* context, const tenon_event* event);

/* Calls `function` with `context` for every event from here on, until it is removed. */
TENON_C_API tenon_status tenon_observer_add(tenon_allocator allocator,
                                            tenon_event_function function, void* context,
                                            tenon_observer* out);
/* Waits until no call of it is in progress on another thread. */
TENON_C_API tenon_status tenon_observer_remove(tenon_observer observer);

/* --- Exchange with array libraries. ------------------------------------------------------------ */

struct DLManagedTensorVersioned;

/* Makes a block a DLPack 1.0 tensor (DLManagedTensorVersioned), contiguous and writable. The tensor
   owns the block from then on: its deleter frees it, on any thread. `code`, `bits`: DLPack's data
   type (2, 32 is float32). The shape must fit into the block. A block of a device of your own is
   the processor's (kDLCPU) where host_can_reach, else TENON_INVALID_ARGUMENT; wait for its work
   first. */
TENON_C_API tenon_status tenon_export_dlpack(tenon_allocator allocator, void* data, uint8_t code,
                                             uint8_t bits, const int64_t* shape, int32_t dimensions,
                                             struct DLManagedTensorVersioned** out);

/* --- Recordings in, answers out. ---------------------------------------------------------------- */

/* Records all allocators of the process from here on, into a file by its ending: .csv, .csv.zst,
   .pickle (PyTorch's snapshot), .json (Perfetto). */
TENON_C_API tenon_status tenon_recording_start(const char* path, tenon_recording* out);
/* Writes the file; the handle is gone whether or not that works. */
TENON_C_API tenon_status tenon_recording_finish(tenon_recording recording);

/* A PyTorch snapshot, a profile of torch.profiler, a CSV trace or RMM's log. */
TENON_C_API tenon_status tenon_traces_load(const char* path, tenon_traces* out);
/* Gives the memory back. */
TENON_C_API tenon_status tenon_traces_destroy(tenon_traces traces);
/* A trace for each device that was recorded. */
TENON_C_API tenon_status tenon_traces_count(tenon_traces traces, size_t* out);
/* What --torch is to the command: tenon_replay and tenon_advise follow this version of PyTorch from
   here on, like "2.13". TENON_INVALID_ARGUMENT for a text that is no version from 2.0 on. Requires:
   no other thread uses these traces meanwhile. */
TENON_C_API tenon_status tenon_traces_follow_torch(tenon_traces traces, const char* version);

/* A trace in figures. */
typedef struct tenon_trace_summary {
  size_t struct_bytes;
  uint64_t events;
  uint64_t live_peak_bytes;
  uint64_t duration_us;
  uint64_t traced_peak_bytes; /* without what was live before the recording began */
  uint32_t device;            /* its number in the recorded program, as the command's --device */
  uint32_t streams;
} tenon_trace_summary;
/* Of the trace with a number below tenon_traces_count. TENON_INVALID_ARGUMENT beyond. */
TENON_C_API tenon_status tenon_trace_summarize(tenon_traces traces, size_t index,
                                               tenon_trace_summary* out);

/* What --device is to the command: keeps one trace, by its number below tenon_traces_count, and
   forgets the others. Its number is 0 then. Requires: no other thread uses these traces meanwhile. */
TENON_C_API tenon_status tenon_traces_keep(tenon_traces traces, size_t index);
/* What `tenon convert FILE PATH` writes: the ending of `path` chooses the format, as for
   tenon_recording_start. */
TENON_C_API tenon_status tenon_traces_save(tenon_traces traces, const char* path);

/* What `tenon explain FILE --json` prints. */
TENON_C_API tenon_status tenon_explain(tenon_traces traces, char** json);
/* The same with --no-replay: where a request failed, other allocators are not tried. */
TENON_C_API tenon_status tenon_explain_without_replay(tenon_traces traces, char** json);

/* What `tenon diff BEFORE AFTER --json` prints; with `ignore_lines`, that of --ignore-lines. */
TENON_C_API tenon_status tenon_diff(tenon_traces before, tenon_traces after, int ignore_lines,
                                    char** json);

/* What is replayed, and what is measured. All fields but the first may be 0 or null. */
typedef struct tenon_replay_options {
  size_t struct_bytes;
  const char* policies;    /* comma-separated; null: the one of plan_file or page_bytes, else all */
  const char* conf;        /* may be null */
  uint64_t capacity_bytes; /* 0: none */
  uint64_t lag_ns;         /* 5000000 is the command's */
  int find_capacity;
  int passes;              /* timed replays, up to 100,000; 0: no times */
  int threads;             /* up to 256; 0: one for each core */
  const char* plan_file;   /* of the policy plan: what tenon_plan wrote; null: a plan is made */
  uint64_t page_bytes;     /* of the policy stitched; 0: its default */
  int serve_failed;        /* requests that failed are served, and freed immediately */
  int pytorch_settings;    /* what the command replays without --policy: the settings that PyTorch
                              can run; `policies` is null then */
} tenon_replay_options;
/* What `tenon replay FILE --json` prints, for these options; null: --policy all --passes 0. */
TENON_C_API tenon_status tenon_replay(tenon_traces traces, const tenon_replay_options* options,
                                      char** json);

/* What `tenon advise FILE --json` prints: for one device, on `threads` threads (up to 256;
   0: one for each core), with `effort` 1 as the command has it. A capacity of 0: none. */
TENON_C_API tenon_status tenon_advise(tenon_traces traces, size_t index, uint64_t capacity_bytes,
                                      double effort, int threads, char** json);

/* What advice is for, and how long it is searched. All fields but the first may be 0 or null. */
typedef struct tenon_advise_options {
  size_t struct_bytes;
  uint64_t capacity_bytes; /* the card's memory; 0: not known, or that of `card` */
  const char* card;        /* "rtx3090", "rtx6000ada" or "other"; null: not known */
  const uint64_t* reserve_for_context_bytes; /* of the card's memory, for the CUDA context, NCCL and
                                                other processes; null: what is known of them */
  uint64_t lag_ns;         /* 5000000 is the command's */
  double effort;           /* 0.01 to 100; 0: 1 */
  int threads;             /* up to 256; 0: one for each core */
} tenon_advise_options;
/* What `tenon advise FILE... --json` prints: one setting for all devices of all files. `options` may
   be null. Of several files that follow a version of PyTorch, the first one's counts. */
TENON_C_API tenon_status tenon_advise_files(const tenon_traces* files, size_t count,
                                            const tenon_advise_options* options, char** json);

/* What `tenon plan FILE --json` prints; the plan itself goes to `plan_file`, unless that is null. */
TENON_C_API tenon_status tenon_plan(tenon_traces traces, size_t index, const char* plan_file,
                                    char** json);

/* What a plan is to be. All fields but the first may be 0 or null. */
typedef struct tenon_plan_options {
  size_t struct_bytes;
  uint64_t capacity_bytes; /* the answer says whether the plan fits into it; 0: none */
  int whole;               /* the whole recording, not one iteration of it */
  int own_memory;          /* each stream has memory of its own, even where sharing needs less */
} tenon_plan_options;
/* As tenon_plan, with options, which may be null. */
TENON_C_API tenon_status tenon_plan_with(tenon_traces traces, size_t index,
                                         const tenon_plan_options* options, const char* plan_file,
                                         char** json);

/* What a report has. All fields but the first may be 0. */
typedef struct tenon_report_options {
  size_t struct_bytes;
  uint64_t capacity_bytes; /* of the device: drawn as a line; 0: none */
  int no_replay;           /* where a request failed, other allocators are not tried */
  int no_advice;           /* settings are not searched */
} tenon_report_options;
/* The page that `tenon report FILE... -o PAGE` writes, and what --json prints: of one file, or of one
   for each rank. `options`, `html` and `json` may be null. */
TENON_C_API tenon_status tenon_report(const tenon_traces* files, size_t count,
                                      const tenon_report_options* options, char** html,
                                      char** json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TENON_TENON_H */
