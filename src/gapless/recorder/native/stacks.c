/* Source lines: where a watched call was issued.
 *
 * The thread that calls walks its own frames (python.c, native.c) and puts one row into its own ring: the call's
 * correlation and the number of its stack. A stack that was met before is found by its hash in the thread's cache; only a
 * new one takes the lock, and is put into words once. The recorder's thread empties the rings. */
#define _GNU_SOURCE
#include "recorder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { LANES = 256, ROWS = 1 << 16, CACHE = 2048, TABLE = 1 << 16, WORDS = 1 << 16 };

struct callsite { uint32_t correlation, stack; };
struct lane { /* of one thread at a time */
  _Atomic uint32_t written, read, taken;
  uint32_t last, last_of_runtime; /* correlations */
  bool autograd;            /* a thread that works for one of Python's, which waits for it */
  _Atomic uint64_t python;  /* Python's state of the thread, once frames of it were seen */
  struct waiting waiting;
  _Alignas(8) char native[NATIVE_MEMORY];
  struct { uint64_t hash; uint32_t stack; } cache[CACHE];
  struct callsite rows[ROWS];
};

static struct lane *lanes;
static __thread struct lane *mine;
static __thread bool tried;
static pthread_key_t on_thread_end;
static bool with_python, saw_profiler;
static _Atomic int lanes_used; /* lanes from there on were never taken */

/* Under this lock: stacks and words that were met, and what of them is still to be written. */
static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t hash; uint32_t number; } stack_table[TABLE], word_table[WORDS];
static uint32_t stack_count, word_count;
static struct bytes new_words, new_stacks;

static void release(void *lane) {
  memset(((struct lane *)lane)->native, 0, NATIVE_MEMORY); /* where that thread's stack was */
  atomic_store(&((struct lane *)lane)->python, 0);
  atomic_store(&((struct lane *)lane)->taken, 0);
  mine = NULL;
}

static void tell_name(struct lane *lane) { /* while there is one: a thread may have ended when its calls are written */
  char name[17] = "";
  prctl(PR_GET_NAME, name);
  lane->autograd = strncmp(name, "pt_autograd", 11) == 0;
  pthread_mutex_lock(&words_lock);
  bytes_string(&new_words, SPACE_THREAD, thread_number(), name, strlen(name));
  pthread_mutex_unlock(&words_lock);
}

static struct lane *take(void) {
  tried = true;
  for (int i = 0; i < LANES; i++) {
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&lanes[i].taken, &none, 1)) continue;
    pthread_setspecific(on_thread_end, &lanes[i]);
    if (i >= atomic_load(&lanes_used)) atomic_store(&lanes_used, i + 1);
    tell_name(&lanes[i]);
    return mine = &lanes[i];
  }
  return NULL;
}

/* The number of a hash in an open table: known, or new (then *fresh is set). 0: the table is full. */
static uint32_t number_of(void *table, size_t room, uint64_t hash, uint32_t *count, bool *fresh) {
  struct { uint64_t hash; uint32_t number; } *rows = table;
  size_t at = (size_t)hash & (room - 1);
  *fresh = false;
  while (rows[at].number && rows[at].hash != hash) at = (at + 1) & (room - 1);
  if (rows[at].number) return rows[at].number;
  if (*count >= room / 2) return 0;
  *fresh = true;
  rows[at].hash = hash;
  return rows[at].number = ++*count;
}

static uint32_t word(const char *text, size_t length) {
  uint64_t hash = 0xCBF29CE484222325u;
  bool fresh;
  if (!length) return 0;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3u;
  uint32_t number = number_of(word_table, WORDS, hash, &word_count, &fresh);
  if (fresh) bytes_string(&new_words, SPACE_SOURCE, number, text, length);
  return number;
}

static bool ends(const char *text, size_t length, const char *end) {
  return length >= strlen(end) && memcmp(text + length - strlen(end), end, strlen(end)) == 0;
}

/* PyTorch's profilers make calls as they start and stop. */
static bool of_profiler(const char *file, size_t file_bytes, const char *function, size_t function_bytes) {
  if (ends(file, file_bytes, "/torch/profiler/profiler.py")) return true;
  return ends(file, file_bytes, "/torch/autograd/profiler.py") && function_bytes > 8 && memcmp(function, "profile.", 8) == 0;
}

void stacks_names(uint32_t *file, uint32_t *function, const char *file_text, size_t file_bytes, const char *function_text,
                  size_t function_bytes) {
  if (of_profiler(file_text, file_bytes, function_text, function_bytes)) saw_profiler = true;
  *file = word(file_text, file_bytes);
  *function = word(function_text, function_bytes);
}

static uint32_t stack_of(uint64_t hash, const struct frame *frames, int count, bool waiting) {
  bool fresh;
  pthread_mutex_lock(&words_lock);
  uint32_t number = number_of(stack_table, TABLE, hash, &stack_count, &fresh);
  uint32_t depth = 0;
  for (int i = 0; fresh && i < count; i++) {
    struct stack_row row = {.stack = number, .depth = depth, .line = -1};
    if (frames[i].code) python_describe(&frames[i], &row, waiting);
    else native_describe(&frames[i], &row);
    if (!row.file) continue; /* the machinery's own frames */
    bytes_add(&new_stacks, &row, sizeof row);
    depth++;
  }
  pthread_mutex_unlock(&words_lock);
  return number;
}

/* The frames of the one thread that waits for autograd. Where two do, whose work this is cannot be known. */
static int frames_waiting(struct lane *lane, struct frame *frames) {
  int count = 0, used = atomic_load_explicit(&lanes_used, memory_order_relaxed);
  for (int i = 0; i < used; i++) {
    uint64_t thread = atomic_load_explicit(&lanes[i].python, memory_order_relaxed);
    if (!thread || &lanes[i] == lane) continue;
    struct frame found[FRAMES];
    int here = python_frames_waiting(thread, &lane->waiting, found, FRAMES);
    if (here && count) return 0;
    if (here) memcpy(frames, found, (size_t)here * sizeof *found), count = here;
  }
  return count;
}

void stacks_call(CUpti_CallbackDomain domain, uint32_t correlation) {
  struct frame frames[FRAMES];
  struct lane *lane = mine;
  if (!lane && (tried || !(lane = take()))) return;
  if (lane->last == correlation) return; /* a call of the driver within one of the runtime */
  lane->last = correlation;
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) lane->last_of_runtime = correlation;
  int count = with_python ? python_frames(frames, FRAMES) : native_frames(lane->native, frames, FRAMES);
  if (count && with_python && !atomic_load_explicit(&lane->python, memory_order_relaxed)) atomic_store(&lane->python, python_thread());
  bool of_another = !count && with_python && lane->autograd;
  if (of_another) count = frames_waiting(lane, frames);
  if (!count) return;
  uint64_t hash = (uint64_t)count | (uint64_t)of_another << 32;
  for (int i = 0; i < count; i++) {
    hash = (hash ^ frames[i].at ^ (frames[i].code << 20)) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ (hash >> 29) ^ frames[i].check) * 0xBF58476D1CE4E5B9u;
  }
  hash ^= hash >> 32;
  size_t at = (size_t)hash & (CACHE - 1);
  if (lane->cache[at].hash != hash) {
    lane->cache[at].stack = stack_of(hash, frames, count, of_another);
    lane->cache[at].hash = hash;
  }
  if (!lane->cache[at].stack) return;
  uint32_t written = atomic_load_explicit(&lane->written, memory_order_relaxed);
  uint32_t waiting = written - atomic_load_explicit(&lane->read, memory_order_acquire);
  if (waiting >= ROWS) return; /* this call stays without a line */
  lane->rows[written % ROWS] = (struct callsite){correlation, lane->cache[at].stack};
  atomic_store_explicit(&lane->written, written + 1, memory_order_release);
  if (waiting == ROWS / 2) record_wake();
}

uint64_t stacks_asked(void) {
  static uint64_t sum;
  static uint32_t before[LANES];
  if (!lanes) return 0;
  for (int i = 0; i < LANES; i++) {
    uint32_t written = atomic_load_explicit(&lanes[i].written, memory_order_relaxed);
    sum += (uint32_t)(written - before[i]), before[i] = written;
  }
  return sum;
}

static struct lane *ended_by; /* a thread that is in no call while the recording ends */

void stacks_ends_here(void) { ended_by = mine; }

bool stacks_unanswered(uint32_t last) {
  enum { IN_PROGRESS = 64 }; /* numbers of calls that may still run */
  if (ended_by && ended_by->last_of_runtime > last) return true;
  for (int i = 0; lanes && i < atomic_load(&lanes_used); i++)
    if (lanes[i].last_of_runtime > last && lanes[i].last_of_runtime - last > IN_PROGRESS) return true;
  return false;
}

bool stacks_saw_profiler(void) { return saw_profiler; }

void stacks_drain(void) {
  pthread_mutex_lock(&words_lock);
  struct bytes words = new_words, stacks = new_stacks;
  new_words = new_stacks = (struct bytes){0};
  pthread_mutex_unlock(&words_lock);
  if (words.count) file_block(STRINGS, &(struct iovec){words.at, words.count}, 1);
  if (stacks.count) file_block(STACKS, &(struct iovec){stacks.at, stacks.count}, 1);
  free(words.at);
  free(stacks.at);
  for (int i = 0; lanes && i < LANES; i++) {
    struct lane *lane = &lanes[i];
    uint32_t read = atomic_load(&lane->read), written = atomic_load_explicit(&lane->written, memory_order_acquire);
    if (read == written) continue;
    uint32_t first = read % ROWS, count = written - read, straight = count < ROWS - first ? count : ROWS - first;
    struct iovec parts[] = {{&lane->rows[first], straight * sizeof(struct callsite)},
                            {lane->rows, (count - straight) * sizeof(struct callsite)}};
    file_block(CALLSITES, parts, 2);
    atomic_store_explicit(&lane->read, written, memory_order_release);
  }
}

bool stacks_start(void) {
  if (!lanes) {
    lanes = mmap(NULL, sizeof(struct lane) * LANES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (lanes == MAP_FAILED) return lanes = NULL, false;
    pthread_key_create(&on_thread_end, release);
  }
  /* a recording before this one, in this process, told its stacks to another file */
  pthread_mutex_lock(&words_lock);
  memset(stack_table, 0, sizeof stack_table);
  memset(word_table, 0, sizeof word_table);
  stack_count = word_count = 0;
  new_words.count = new_stacks.count = 0;
  saw_profiler = false, ended_by = NULL;
  pthread_mutex_unlock(&words_lock);
  for (int i = 0; i < atomic_load(&lanes_used); i++) {
    memset(lanes[i].cache, 0, sizeof lanes[i].cache);
    lanes[i].last = lanes[i].last_of_runtime = 0;
  }
  const char *why = python_start();
  char version[32];
  with_python = python_version(version, sizeof version);
  if (with_python && why) file_note("no-lines", why);
  if (with_python && why) return false;
  return true;
}
