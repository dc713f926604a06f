/* The recorder: what runs inside a traced program. docs/recording-format.md says what it writes.
 *
 * Threads of the program do as little as can be: CUPTI asks them for a buffer (a pop from a fixed pool) and tells of a call
 * that is watched for its source line (a walk over the thread's own frames, a row in a ring). Everything else, all
 * writing too, happens on CUPTI's worker thread or on the recorder's own.
 *
 *   record.c   start and stop, options, the recorder's own thread
 *   process.c  what is said of the process
 *   cupti.c    libcupti, opened at run time
 *   records.c  buffers of activity records, on their way to the file
 *   calls.c    which calls are recorded, which are asked for their source line
 *   older.c    devices, contexts and streams that are older than the recording
 *   ranges.c   the NVTX range that is asked for
 *   accesses.c which memory calls touch
 *   stacks.c   source lines: where a call was issued
 *   python.c   frames of Python, read without the interpreter's lock
 *   native.c   frames of C and C++
 *   file.c     the file
 */
#ifndef GAPLESS_RECORDER_H
#define GAPLESS_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cupti_activity.h>
#include <cupti_version.h>

enum block { PROCESS = 1, LAYOUT, STRINGS, RECORDS, CLOCK, STACKS, CALLSITES, ACCESSES, DROPPED, NOTE, END };
enum space { SPACE_POINTER, SPACE_RUNTIME, SPACE_DRIVER, SPACE_SOURCE, SPACE_THREAD };

/* --- cupti.c: the functions of CUPTI that are used; those of the second list may be missing in old versions */
#define CUPTI_NEEDED(F) \
  F(cuptiGetVersion) F(cuptiGetTimestamp) F(cuptiGetResultString) F(cuptiActivityRegisterCallbacks) \
  F(cuptiActivityEnable) F(cuptiActivityDisable) F(cuptiActivityFlushAll) F(cuptiActivityGetNextRecord) \
  F(cuptiActivityGetNumDroppedRecords) F(cuptiSubscribe) F(cuptiUnsubscribe) F(cuptiEnableCallback) \
  F(cuptiEnableDomain) F(cuptiGetCallbackName) F(cuptiSetThreadIdType)
#define CUPTI_WHERE_THERE(F) \
  F(cuptiActivitySetAttribute) F(cuptiActivityEnableDriverApi) F(cuptiActivityEnableRuntimeApi) \
  F(cuptiActivityEnableCudaEventDeviceTimestamps) F(cuptiGetContextId) F(cuptiGetDeviceId) F(cuptiGetStreamIdEx)

struct cupti {
#define F(name) __typeof__(&name) name;
  CUPTI_NEEDED(F)
#undef F
  CUptiResult (*cuptiActivitySetAttribute)(CUpti_ActivityAttribute attribute, size_t *size, void *value);
  CUptiResult (*cuptiActivityEnableDriverApi)(CUpti_CallbackId call, uint8_t enable);
  CUptiResult (*cuptiActivityEnableRuntimeApi)(CUpti_CallbackId call, uint8_t enable);
  CUptiResult (*cuptiActivityEnableCudaEventDeviceTimestamps)(uint8_t enable);
  CUptiResult (*cuptiGetContextId)(CUcontext context, uint32_t *id);
  CUptiResult (*cuptiGetDeviceId)(CUcontext context, uint32_t *id);
  CUptiResult (*cuptiGetStreamIdEx)(CUcontext context, CUstream stream, uint8_t of_thread, uint32_t *id);
};
extern struct cupti cupti;
bool cupti_open(const char *path, char *problem, size_t room);
const char *cupti_error(CUptiResult result);
void *cuda_function(const char *name); /* of the libcuda that is loaded, or NULL */

/* --- file.c */
bool file_open(const char *path, uint64_t limit, char *problem, size_t room);
bool file_block(enum block type, const struct iovec *parts, int count); /* false: there is no room any more */
bool file_note(const char *what, const char *text);
void file_forget(void); /* in a forked child: the file is the parent's */
const char *file_full(void); /* why nothing is written any more ("max-size", "file-full"), or NULL */
uint64_t now_ns(int clock);
uint32_t thread_number(void);

/* Bytes that grow. */
struct bytes { char *at; size_t count, room; };
void bytes_add(struct bytes *bytes, const void *data, size_t count);
void bytes_text(struct bytes *bytes, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bytes_json(struct bytes *bytes, const char *text, size_t length); /* as a JSON string, quotes included */
void bytes_string(struct bytes *bytes, enum space space, uint64_t key, const char *text, size_t length);

/* --- records.c */
bool records_start(void);
void records_finish(void); /* what is said once, at the end: losses, names of threads */
void records_add(uint32_t kind, void *record, uint32_t size); /* one that CUPTI did not make */
void records_refuse(void); /* in a forked child */
void records_hold(void);   /* take CUPTI's records again, where another tool in the program took them */
bool records_lent(uint32_t *before); /* did another tool's buffers come back since? */
extern _Atomic uint64_t records_written, records_dropped;
extern _Atomic uint32_t records_new_kernels; /* counts kernels that were never seen before */
extern _Atomic uint32_t records_last_call;   /* the greatest correlation of a recorded call */

/* --- calls.c */
void calls_record(bool on, bool attached); /* work, calls and waits; says which kinds CUPTI refuses */
void calls_record_births(bool on);         /* first: devices, contexts and streams, as they are made */
bool calls_named(const char *name, const char *plain); /* without version and suffix: cudaMemcpyAsync_ptsz_v7000 */
void calls_watch(CUpti_SubscriberHandle subscriber);
void calls_watch_launches(CUpti_SubscriberHandle subscriber, bool on);

/* --- older.c */
void older_start(void);
void older_call(CUpti_CallbackDomain domain, uint32_t call, const CUpti_CallbackData *data);
void older_drain(void);

/* --- ranges.c */
bool ranges_begin(CUpti_CallbackId call, const CUpti_NvtxData *data, const char *name);
void ranges_follow(CUpti_CallbackId call, const CUpti_NvtxData *data);
bool ranges_end(CUpti_CallbackId call, const CUpti_NvtxData *data);

/* --- accesses.c */
void accesses_watch(CUpti_SubscriberHandle subscriber);
void accesses_call(CUpti_CallbackDomain domain, uint32_t call, const CUpti_CallbackData *data);
void accesses_drain(void);

/* --- stacks.c, python.c, native.c */
enum { FRAMES = 48, FRAME_PYTHON = 0, FRAME_NATIVE = 1, FRAME_WAITING = 2 }; /* the last: of a thread that waits for this one */
struct frame { uint64_t code, at, check; }; /* code object and instruction, or 0 and the return address */
enum { FRAME_BYTES = 64 };
struct waiting { /* the frames of another thread as they were read before */
  uint64_t thread, places[FRAMES];
  int count, given;
  struct frame frames[FRAMES];
  char held[FRAMES][FRAME_BYTES];
};
struct stack_row { uint32_t stack, depth, file, function; int32_t line; uint32_t what; uint64_t address; };

bool stacks_start(void);
void stacks_call(CUpti_CallbackDomain domain, uint32_t correlation);
void stacks_drain(void);
uint64_t stacks_asked(void); /* how many calls were asked for their line so far */
void stacks_ends_here(void); /* the calling thread is in no call, and ends the recording */
bool stacks_unanswered(uint32_t last); /* were many calls, or the last of that thread, after that correlation? */
bool stacks_saw_profiler(void);                   /* was a call made from within torch.profiler? */
void stacks_names(uint32_t *file, uint32_t *function, const char *file_text, size_t file_bytes, const char *function_text,
                  size_t function_bytes);

const char *python_start(void); /* NULL, or why frames cannot be read */
void python_at_exit(void (*function)(void));
bool python_version(char *text, size_t room);
uint64_t python_thread(void); /* Python's state of the calling thread, 0 where it has none */
int python_frames(struct frame *frames, int room);
int python_frames_waiting(uint64_t thread, struct waiting *kept, struct frame *frames, int room);
void python_describe(const struct frame *frame, struct stack_row *row, bool careful);
enum { NATIVE_MEMORY = 32 << 10 }; /* bytes that native.c keeps for a thread */
int native_frames(void *memory, struct frame *frames, int room);
void native_describe(const struct frame *frame, struct stack_row *row);

/* --- process.c */
void process_write(void);

/* --- record.c */
struct options {
  const char *file, *cupti, *range, *version;
  double after, for_seconds;
  uint64_t max_size;
  bool attached, lines, addresses;
};
extern struct options options;
void record_wake(void); /* the recorder's thread has something to do */

#endif
