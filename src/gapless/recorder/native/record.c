/* Start and stop. CUDA loads this library into a program when the program first uses CUDA (CUDA_INJECTION64_PATH) and calls
 * InitializeInjection; Python loads it with ctypes and calls gapless_recorder_start. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define SECOND 1000000000u

enum { FLUSH_NS = 250000000, CLOCK_NS = 1000000000, GRACE_NS = 1000000000 };
enum { PATIENCE_S = 5 }; /* how long an end is waited for while nothing comes back from CUPTI */

/* Launches are asked for their source line while they are few. Where a program makes so many that asking would be felt,
 * they are asked a part of the time, and for longer when kernels come up that were not seen before. */
enum { LOOK_NS = 20000000, PAUSE_NS = 230000000, NEW_NS = 100000000, MOST_A_SECOND = 5000 };
static bool launches_watched;
static uint64_t launches_change, launches_since, sites_before;

struct options options;

static enum { OFF, WAITING, RUNNING, ENDING, OVER } state; /* changed under the lock */
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *_Atomic reason;  /* why the recording is to end, or NULL */
static uint64_t began, end_wanted;  /* CLOCK_MONOTONIC */
static _Atomic uint64_t until;      /* CUPTI's time at which what was asked for was over; 0: it never was */
static pthread_t thread;
static _Atomic bool thread_ends;
static sem_t wake;
static CUpti_SubscriberHandle subscriber;

void record_wake(void) { sem_post(&wake); }

static void complain(const char *text) { fprintf(stderr, "gapless: not recording: %s\n", text); }

static void write_clock(void) {
  struct { uint64_t cupti, realtime, monotonic; } row;
  uint64_t before = now_ns(CLOCK_MONOTONIC);
  if (cupti.cuptiGetTimestamp(&row.cupti) != CUPTI_SUCCESS) return;
  row.realtime = now_ns(CLOCK_REALTIME);
  row.monotonic = before + (now_ns(CLOCK_MONOTONIC) - before) / 2;
  file_block(CLOCK, &(struct iovec){&row, sizeof row}, 1);
}

/* --- begin and end */
static bool asks(void) { return options.lines || options.attached; } /* for the line, or the stream, that calls name */

static void begin(void) {
  if (options.attached) older_start();
  if (options.addresses) accesses_watch(subscriber);
  calls_record(true, options.attached);
  options.lines = options.lines && stacks_start();
  began = now_ns(CLOCK_MONOTONIC);
  state = RUNNING;
  if (!asks()) return;
  calls_watch(subscriber);
  calls_watch_launches(subscriber, true);
  launches_watched = true, launches_since = began, launches_change = began + NEW_NS, sites_before = stacks_asked();
}

static void tend_launches(uint64_t now) {
  static uint32_t seen;
  uint32_t kernels = atomic_load(&records_new_kernels);
  uint64_t sites = stacks_asked();
  bool on = launches_watched;
  if (now >= launches_change) {
    bool many = !options.lines || (sites - sites_before) * SECOND > (now - launches_since) * MOST_A_SECOND;
    on = !launches_watched || !many;
    launches_change = now + (on ? LOOK_NS : PAUSE_NS);
    launches_since = now, sites_before = sites;
  }
  if (kernels != seen && !launches_watched) on = true, launches_since = now, sites_before = sites, launches_change = now + NEW_NS;
  seen = kernels;
  if (on != launches_watched) calls_watch_launches(subscriber, launches_watched = on);
}

static void flush(bool whole) {
  records_hold();
  cupti.cuptiActivityFlushAll(whole ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
  if (options.attached) older_drain();
  if (options.lines) stacks_drain();
  if (options.addresses) accesses_drain();
}

static void write_end(const char *why) {
  struct bytes json = {0};
  bytes_text(&json, "{\"reason\": \"%s\", \"records\": %llu, \"dropped\": %llu", why,
             (unsigned long long)atomic_load(&records_written), (unsigned long long)atomic_load(&records_dropped));
  if (atomic_load(&until)) bytes_text(&json, ", \"until\": %llu", (unsigned long long)atomic_load(&until));
  bytes_text(&json, "}");
  file_block(END, &(struct iovec){json.at, json.count}, 1);
  free(json.at);
}

/* Another tool may have come after the recorder: what it did to the recording, or the recording to it, is said. */
static void say_who_else(void) {
  uint32_t last = atomic_load(&records_last_call), none = 0;
  if (records_lent(&none) || (options.lines && stacks_unanswered(last)))
    file_note("records-taken", "Another tool in the program asked for CUPTI's records while it was recorded: what that tool got may be "
                               "missing here. CUPTI serves one at a time.");
  if (options.lines && stacks_saw_profiler())
    file_note("torch-profiler", "The program ran torch.profiler while it was recorded. CUPTI serves one at a time: the recording is "
                                "whole, and torch.profiler got no GPU activity.");
}

/* Under the lock. */
static void end(const char *why) {
  if (state == RUNNING || state == ENDING) {
    flush(true);
    cupti.cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);
    cupti.cuptiEnableDomain(0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
    calls_record(false, options.attached);
    calls_record_births(false);
    flush(true);
  } else if (state == WAITING && options.range) {
    struct bytes text = {0};
    bytes_text(&text, "No NVTX range named %.200s was pushed.", options.range);
    bytes_add(&text, "", 1);
    if (text.at) file_note("range-never", text.at);
    free(text.at);
  }
  if (state == OFF || state == OVER) return;
  if (state != WAITING && !file_full()) say_who_else();
  records_finish();
  write_clock();
  write_end(why);
  cupti.cuptiUnsubscribe(subscriber);
  state = OVER;
}

/* What was asked for is in: the rest of what was launched may still come to its end. */
static void was_all(const char *why) {
  uint64_t now = 0;
  if (atomic_load(&reason)) return;
  cupti.cuptiGetTimestamp(&now);
  atomic_store(&until, now);
  atomic_store(&reason, why);
}

/* Under the lock: what the passing of time asks for. */
static void tend(uint64_t now) {
  static uint64_t clock_written;
  static uint32_t lent;
  if (state == WAITING && !options.range && now >= began + (uint64_t)(options.after * SECOND)) begin();
  if (state == RUNNING || state == ENDING) {
    flush(false);
    if (records_lent(&lent)) calls_record(true, options.attached); /* the other tool may have ended its own */
    if (now - clock_written > CLOCK_NS) write_clock(), clock_written = now;
    if (options.for_seconds > 0 && now >= began + (uint64_t)(options.for_seconds * SECOND)) was_all("for");
    if (asks() && !options.addresses) tend_launches(now); /* arguments are wanted of every launch */
    if (file_full()) atomic_store(&reason, file_full()), end_wanted = 0, state = ENDING;
  }
  if (!atomic_load(&reason)) return;
  if (state == RUNNING) end_wanted = now + GRACE_NS, state = ENDING; /* what was launched comes to its end */
  if (state == ENDING && now >= end_wanted) end(atomic_load(&reason));
}

static uint64_t until_next(uint64_t now) {
  uint64_t next = now + FLUSH_NS, start = began + (uint64_t)(options.after * SECOND);
  if (state == WAITING && !options.range && start > now && start < next) next = start;
  if (state == RUNNING && asks() && !options.addresses && launches_change < next) next = launches_change > now ? launches_change : now;
  return next;
}

static void *run(void *nothing) {
  (void)nothing;
  pthread_setname_np(pthread_self(), "gapless");
  while (!atomic_load(&thread_ends)) {
    struct timespec at;
    uint64_t wait = until_next(now_ns(CLOCK_MONOTONIC)) - now_ns(CLOCK_MONOTONIC), moment = now_ns(CLOCK_REALTIME) + wait;
    at.tv_sec = (time_t)(moment / SECOND), at.tv_nsec = (long)(moment % SECOND);
    while (sem_timedwait(&wake, &at) != 0 && errno == EINTR) {}
    if (atomic_load(&thread_ends)) break;
    pthread_mutex_lock(&state_lock);
    tend(now_ns(CLOCK_MONOTONIC));
    pthread_mutex_unlock(&state_lock);
  }
  return NULL;
}

/* --- calls and ranges, on the program's threads */
static void on_range(CUpti_CallbackId call, const CUpti_NvtxData *data) {
  if (ranges_end(call, data)) was_all("range"), record_wake();
  else if (state == WAITING && ranges_begin(call, data, options.range)) {
    pthread_mutex_lock(&state_lock);
    if (state == WAITING) begin(), ranges_follow(call, data);
    pthread_mutex_unlock(&state_lock);
  }
}

static void on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId call, const void *data) {
  (void)user;
  if (domain == CUPTI_CB_DOMAIN_NVTX) on_range(call, data);
  else if (((const CUpti_CallbackData *)data)->callbackSite == CUPTI_API_ENTER) {
    if (options.attached) older_call(domain, call, data);
    if (options.lines) stacks_call(domain, ((const CUpti_CallbackData *)data)->correlationId);
    if (options.addresses) accesses_call(domain, call, data);
  }
}

/* --- the end: on a thread of its own, so that the program ends whatever happens. CUPTI may never give records back: where another
 * tool in the program gave it functions to call, they may wait for Python's lock, which the ending thread holds. */
static sem_t worked;
static bool stuck;

static void *stop_tending(void *why) {
  atomic_store(&thread_ends, true);
  record_wake();
  pthread_join(thread, NULL);
  sem_post(&worked);
  return why;
}

static void *end_it(void *why) {
  pthread_mutex_lock(&state_lock);
  end(why);
  pthread_mutex_unlock(&state_lock);
  sem_post(&worked);
  return why;
}

/* How it ended for all that is known: a later end replaces it. */
static void *write_all(void *why) {
  pthread_mutex_lock(&state_lock);
  if (state == RUNNING || state == ENDING) flush(true), write_clock(), write_end(why);
  pthread_mutex_unlock(&state_lock);
  sem_post(&worked);
  return why;
}

static uint64_t records_seen(void) { return atomic_load(&records_written) + atomic_load(&records_dropped); }

static bool done_in_time(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_sec += PATIENCE_S;
  while (sem_timedwait(&worked, &at) != 0)
    if (errno != EINTR) return false;
  return true;
}

static void wait_for(void *(*work)(void *), const char *why) {
  pthread_t worker;
  uint64_t before;
  if (stuck) return;
  if (pthread_create(&worker, NULL, work, (void *)why) == 0) pthread_detach(worker);
  else work((void *)why);
  do {
    before = records_seen();
    if (done_in_time()) return;
  } while (before != records_seen());
  stuck = true;
  file_note("stuck", "CUPTI did not give its last records back when the recording ended, so they are missing: another tool in the "
                     "program held it up.");
}

/* --- start and stop */
static void in_forked_child(void) { /* it has no CUDA, no thread of ours, and the file is its parent's */
  records_refuse();
  file_forget();
  state = OVER;
}

static void at_exit(void) {
  if (state == OVER || state == OFF) return;
  stacks_ends_here();
  wait_for(stop_tending, NULL);
  wait_for(end_it, atomic_load(&reason) ? atomic_load(&reason) : "exit");
}

/* Python ends. After Ctrl-C it then ends itself with the signal, and nothing is asked any more; but the program around an
 * interpreter may also go on. So what there is is written. */
static void at_python_exit(void) {
  if (state == RUNNING || state == ENDING) wait_for(write_all, "exit");
}

static bool start(char *problem, size_t room) {
  static bool prepared;
  if (state == WAITING || state == RUNNING || state == ENDING) return snprintf(problem, room, "a recording is running"), false;
  if (!file_open(options.file, options.max_size, problem, room)) return false;
  if (!cupti.cuptiSubscribe && !cupti_open(options.cupti, problem, room)) return file_note("no-cupti", problem), false;
  CUptiResult result = cupti.cuptiSubscribe(&subscriber, on_call, NULL);
  if (result != CUPTI_SUCCESS) {
    bool busy = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    snprintf(problem, room, busy ? "another profiler holds CUPTI, and only one can (%s)" : "CUPTI cannot start (%s)", cupti_error(result));
    return file_note(busy ? "cupti-busy" : "no-cupti", problem), false;
  }
  cupti.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  atomic_store(&records_written, 0);
  atomic_store(&records_dropped, 0);
  atomic_store(&records_last_call, 0);
  atomic_store(&reason, NULL);
  atomic_store(&until, 0);
  atomic_store(&thread_ends, false);
  process_write();
  write_clock();
  if (!records_start()) return snprintf(problem, room, "CUPTI takes no buffers"), file_note("no-cupti", problem), false;
  if (!prepared) sem_init(&wake, 0, 0), sem_init(&worked, 0, 0), pthread_atfork(NULL, NULL, in_forked_child), atexit(at_exit), python_at_exit(at_python_exit);
  prepared = true;
  began = now_ns(CLOCK_MONOTONIC);
  state = WAITING;
  calls_record_births(true); /* also of what the range or the time that is asked for does not hold */
  if (options.range) cupti.cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_NVTX);
  else if (options.after <= 0) begin();
  if (pthread_create(&thread, NULL, run, NULL) != 0) {
    end("stop");
    return snprintf(problem, room, "no thread can be made"), false;
  }
  return true;
}

static const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

EXPORTED int InitializeInjection(void) {
  char problem[512];
  if (!setting("GAPLESS_RECORD_FILE", NULL) || state != OFF) return 1;
  options = (struct options){
      .file = setting("GAPLESS_RECORD_FILE", NULL), .cupti = setting("GAPLESS_RECORD_CUPTI", "libcupti.so"),
      .range = setting("GAPLESS_RECORD_RANGE", NULL), .version = setting("GAPLESS_RECORD_VERSION", ""),
      .after = atof(setting("GAPLESS_RECORD_AFTER", "0")), .for_seconds = atof(setting("GAPLESS_RECORD_FOR", "0")),
      .max_size = strtoull(setting("GAPLESS_RECORD_MAX_SIZE", "0"), NULL, 10),
      .lines = *setting("GAPLESS_RECORD_LINES", "1") != '0',
      .addresses = *setting("GAPLESS_RECORD_ADDRESSES", "0") != '0',
  };
  if (!start(problem, sizeof problem)) complain(problem);
  return 1;
}

/* Gives 0, or 1 and the problem in words. */
EXPORTED int gapless_recorder_start(const char *file, const char *libcupti, const char *version, uint64_t max_size, int lines,
                                    int addresses, char *problem, size_t room) {
  static char kept[3][4096];
  snprintf(kept[0], sizeof kept[0], "%s", file);
  snprintf(kept[1], sizeof kept[1], "%s", libcupti);
  snprintf(kept[2], sizeof kept[2], "%s", version);
  if (state == OFF || state == OVER)
    options = (struct options){.file = kept[0], .cupti = kept[1], .version = kept[2], .max_size = max_size, .attached = true,
                               .lines = lines != 0, .addresses = addresses != 0};
  return start(problem, room) ? 0 : 1;
}

/* Waits for the work of the calling thread's device, so that the recording has it whole. */
EXPORTED int gapless_recorder_stop(void) {
  if (state == OFF || state == OVER) return 1;
  int (*current)(CUcontext *) = (int (*)(CUcontext *))cuda_function("cuCtxGetCurrent");
  int (*synchronize)(void) = (int (*)(void))cuda_function("cuCtxSynchronize");
  CUcontext context = NULL;
  stacks_ends_here();
  wait_for(stop_tending, NULL);
  if (state == RUNNING) was_all("stop"); /* the wait below is not the program's */
  if (current && synchronize && current(&context) == 0 && context) synchronize();
  wait_for(end_it, "stop");
  if (!stuck) file_forget();
  return 0;
}
