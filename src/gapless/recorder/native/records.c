/* Activity records: buffers from a fixed pool, filled by CUPTI, written as they are with what is needed to read them. */
#define _GNU_SOURCE
#include "recorder.h"
#include "kinds.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BUFFER = 256 << 10, BUFFERS = 512, READY = 16, PAGE = 4096, SMALLEST_RECORD = 16, KINDS = 64, CALL_IDS = 2048 };

_Atomic uint64_t records_written, records_dropped;
_Atomic uint32_t records_new_kernels, records_last_call;

/* --- the pool: buffers that are reserved at the start and become real where they are used; the last one given back is
 * the next one given out, so that as few as possible become real. CUPTI would clear each buffer on the thread that asks for
 * it; told that they come clean, it does not. Each is a block of the C library's own: another tool that takes CUPTI's
 * records while one is filled gets it, and frees it as if it were its own. */
static uint8_t *pool[BUFFERS];
static bool is_out[BUFFERS]; /* CUPTI has it, or whoever CUPTI gave it to */
static uint16_t free_buffers[BUFFERS];
static int free_count;
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool refusing;
static _Atomic uint32_t lent; /* buffers of another tool that came back to us */

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *buffer = NULL, *size = 0, *most = 0;
  if (atomic_load(&refusing)) return;
  pthread_mutex_lock(&pool_lock);
  if (free_count) {
    uint16_t next = free_buffers[--free_count];
    *buffer = pool[next], *size = BUFFER, is_out[next] = true;
  }
  pthread_mutex_unlock(&pool_lock);
}

/* Take a buffer back, if it is one of ours. */
static bool give_back(uint8_t *buffer, size_t size, size_t used) {
  int at = 0;
  while (at < BUFFERS && pool[at] != buffer) at++;
  if (at == BUFFERS || size != BUFFER) return false;
  memset(buffer, 0, used);
  pthread_mutex_lock(&pool_lock);
  bool was_out = is_out[at];
  if (was_out) free_buffers[free_count++] = (uint16_t)at, is_out[at] = false;
  pthread_mutex_unlock(&pool_lock);
  return was_out;
}

/* Reserve the pool; false where there is no memory for a single buffer. */
static bool reserve(void) {
  for (int i = BUFFERS; i-- > 0;)
    if ((pool[i] = calloc(1, BUFFER))) free_buffers[free_count++] = (uint16_t)i;
  for (int i = 0; i < READY && pool[i]; i++)
    for (size_t at = 0; at < BUFFER; at += PAGE) ((volatile uint8_t *)pool[i])[at] = 0; /* become real now */
  return free_count > 0;
}

/* --- layouts: what the compiler knows of CUPTI's structs */
#define FORMAT(type, field)                                                                                     \
  _Generic(((type *)0)->field, uint8_t: "|u1", uint16_t: "<u2", uint32_t: "<u4", int32_t: "<i4", int64_t: "<i8", \
           default: "<u8")
static const struct { uint8_t kind; const char *name; } kinds[] = {
#define KIND(kind, label, type) {kind, label},
#define FIELD(kind, type, field)
#define PART(kind, type, field, name, at)
#define TEXT(kind, type, field)
#include "layouts.inc"
#undef KIND
#undef FIELD
#undef PART
};
static const struct { uint8_t kind; const char *name; uint16_t offset, width; const char *format; } fields[] = {
#define KIND(kind, label, type)
#define FIELD(kind, type, field) {kind, #field, offsetof(type, field), sizeof(((type *)0)->field), FORMAT(type, field)},
#define PART(kind, type, field, name, at) {kind, name, offsetof(type, field) + at, 8, "<u8"},
#include "layouts.inc"
#undef FIELD
#undef PART
#undef TEXT
};
static const struct { uint8_t kind; uint16_t offset; } texts[] = {
#define FIELD(kind, type, field)
#define PART(kind, type, field, name, at)
#define TEXT(kind, type, field) {kind, offsetof(type, field)},
#include "layouts.inc"
};

/* Everything below belongs to whoever holds this lock: CUPTI's worker thread, or the recorder's. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static uint32_t sizes[KINDS]; /* of a record as CUPTI was seen to lay it out: newer versions only add at the end */
static struct bytes layouts, strings;

static void describe(uint32_t kind, uint32_t size) {
  sizes[kind] = size;
  const char *name = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (kinds[i].kind == kind) name = kinds[i].name;
  bytes_text(&layouts, "%s\"%u\": {\"name\": \"%s\", \"itemsize\": %u", layouts.count ? ", " : "{\"kinds\": {", kind,
             name ? name : "", size);
  static const char *const parts[] = {"names", "formats", "offsets"};
  for (int part = 0; part < 3; part++) {
    bytes_text(&layouts, ", \"%s\": [", parts[part]);
    const char *comma = "";
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
      if (fields[i].kind != kind || fields[i].offset + fields[i].width > size) continue;
      if (part == 2) bytes_text(&layouts, "%s%u", comma, fields[i].offset);
      else bytes_text(&layouts, "%s\"%s\"", comma, part ? fields[i].format : fields[i].name);
      comma = ", ";
    }
    bytes_text(&layouts, "]");
  }
  bytes_text(&layouts, "}");
}

/* --- text behind pointers: told once, and again where the pointer leads to other text */
struct known { uint64_t key; char *text; };
static struct known *table;
static size_t table_room, table_count;

static struct known *slot(uint64_t key) {
  size_t at = (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & (table_room - 1);
  while (table[at].text && table[at].key != key) at = (at + 1) & (table_room - 1);
  return &table[at];
}

static bool grow(void) {
  struct known *old = table;
  size_t old_room = table_room, room = table_room ? table_room * 2 : 4096;
  struct known *fresh = calloc(room, sizeof *fresh);
  if (!fresh) return false;
  table = fresh, table_room = room;
  for (size_t i = 0; i < old_room; i++)
    if (old[i].text) *slot(old[i].key) = old[i];
  free(old);
  return true;
}

static void tell_text(const char *text, bool of_kernel) {
  if (!text || (table_count * 2 >= table_room && !grow())) return;
  struct known *known = slot((uint64_t)(uintptr_t)text);
  if (known->text && strcmp(known->text, text) == 0) return;
  char *copy = strdup(text);
  if (!copy) return;
  if (of_kernel) atomic_fetch_add(&records_new_kernels, 1);
  if (known->text) free(known->text);
  else table_count++;
  *known = (struct known){(uint64_t)(uintptr_t)text, copy};
  bytes_string(&strings, SPACE_POINTER, known->key, copy, strlen(copy));
}

/* --- names of calls and threads */
static uint64_t calls_told[2][CALL_IDS / 64];
static uint32_t threads[1024]; /* open addressing; more threads than that stay without a name */

static void tell_thread_name(uint32_t thread) {
  char path[64], name[64];
  snprintf(path, sizeof path, "/proc/self/task/%u/comm", thread);
  FILE *comm = fopen(path, "re");
  if (!comm) return;
  size_t length = fread(name, 1, sizeof name, comm);
  fclose(comm);
  while (length && name[length - 1] == '\n') length--;
  bytes_string(&strings, SPACE_THREAD, thread, name, length);
}

static void tell_call(const CUpti_ActivityAPI *call) {
  if (call->correlationId > atomic_load_explicit(&records_last_call, memory_order_relaxed))
    atomic_store_explicit(&records_last_call, call->correlationId, memory_order_relaxed);
  bool runtime = call->kind == CUPTI_ACTIVITY_KIND_RUNTIME;
  uint64_t *told = calls_told[runtime], bit = 1ull << (call->cbid % 64);
  if (call->cbid < CALL_IDS && !(told[call->cbid / 64] & bit)) {
    const char *name = NULL;
    told[call->cbid / 64] |= bit;
    cupti.cuptiGetCallbackName(runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, call->cbid, &name);
    if (name) bytes_string(&strings, runtime ? SPACE_RUNTIME : SPACE_DRIVER, call->cbid, name, strlen(name));
  }
  size_t room = sizeof threads / sizeof *threads, at = call->threadId % room;
  for (size_t tries = 0; tries < 8; tries++, at = (at + 1) % room) {
    if (threads[at] == call->threadId) return;
    if (threads[at]) continue;
    threads[at] = call->threadId;
    tell_thread_name(call->threadId);
    return;
  }
}

static uint64_t streams_met[1 << 8];

/* A stream that kernels had not run in so far: where its launches come from is asked, as of a new kernel. */
static void meet_stream(uint32_t stream) {
  uint64_t bit = 1ull << (stream & 63), *word = &streams_met[stream >> 6 & 255];
  if (!(*word & bit)) atomic_fetch_add(&records_new_kernels, 1);
  *word |= bit;
}

/* --- what is new goes first */
static void tell_texts_of(const void *record, uint32_t kind) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (texts[i].kind == kind)
      tell_text(*(const char *const *)((const uint8_t *)record + texts[i].offset), kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
}

static void write_news(void) {
  if (layouts.count) {
    bytes_text(&layouts, "}}");
    file_block(LAYOUT, &(struct iovec){layouts.at, layouts.count}, 1);
  }
  if (strings.count) file_block(STRINGS, &(struct iovec){strings.at, strings.count}, 1);
  layouts.count = strings.count = 0;
}

static void write_records(void *raw, size_t size, uint8_t *of_kinds, uint32_t count) {
  struct { uint64_t raw; uint32_t count, zero; } head = {size, count, 0};
  struct iovec parts[] = {{&head, sizeof head}, {raw, size}, {of_kinds, count}};
  if (count && file_block(RECORDS, parts, 3)) atomic_fetch_add(&records_written, count);
  else atomic_fetch_add(&records_dropped, count);
}

/* One that the recorder filled in itself, as CUPTI would have. */
void records_add(uint32_t kind, void *record, uint32_t size) {
  pthread_mutex_lock(&writing);
  if (sizes[kind] != size) describe(kind, size);
  tell_texts_of(record, kind);
  write_news();
  write_records(record, size, &(uint8_t){(uint8_t)kind}, 1);
  pthread_mutex_unlock(&writing);
}

/* --- a buffer comes back */
static uint8_t kinds_of[BUFFER / SMALLEST_RECORD];

/* Gives how many bytes of it were written. */
static size_t write_part(uint8_t *buffer, size_t valid) {
  CUpti_Activity *record = NULL, *before = NULL;
  uint32_t count = 0;
  size_t raw = 0;
  while (raw < valid && count < sizeof kinds_of) {
    CUptiResult result = cupti.cuptiActivityGetNextRecord(buffer, valid, &record);
    size_t here = result == CUPTI_SUCCESS ? (size_t)((uint8_t *)record - buffer) : valid;
    if (before) {
      uint32_t size = (uint32_t)(here - raw), kind = (uint32_t)before->kind;
      if (sizes[kind] != size && (result == CUPTI_SUCCESS || result == CUPTI_ERROR_MAX_LIMIT_REACHED)) describe(kind, size);
      if (sizes[kind] != size) break; /* CUPTI itself cannot read on */
      count++, raw = here;
    }
    if (result != CUPTI_SUCCESS || (uint32_t)record->kind >= KINDS) break;
    uint32_t kind = (uint32_t)record->kind;
    kinds_of[count] = (uint8_t)kind;
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER) tell_call((CUpti_ActivityAPI *)record);
    else tell_texts_of(record, kind);
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) meet_stream(((record_10 *)record)->streamId);
    before = record;
  }
  write_news();
  write_records(buffer, raw, kinds_of, count);
  return raw;
}

static void write_buffer(uint8_t *buffer, size_t valid) {
  for (size_t wrote; valid && (wrote = write_part(buffer, valid)); buffer += wrote) valid -= wrote;
}

static void completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  size_t dropped = 0;
  if (!buffer) return;
  if (valid && !atomic_load(&refusing)) {
    pthread_mutex_lock(&writing);
    write_buffer(buffer, valid);
    pthread_mutex_unlock(&writing);
  }
  if (cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS && dropped) {
    struct { uint64_t count; uint32_t context, stream; } row = {dropped, 0, stream};
    file_block(DROPPED, &(struct iovec){&row, sizeof row}, 1);
    atomic_fetch_add(&records_dropped, dropped);
  }
  /* What another tool gave CUPTI is not ours to use again, nor do we know how it would be freed. */
  if (!give_back(buffer, size, valid)) atomic_fetch_add(&lent, 1);
}

void records_hold(void) { cupti.cuptiActivityRegisterCallbacks(requested, completed); }

bool records_lent(uint32_t *before) {
  uint32_t now = atomic_load(&lent);
  bool more = now != *before;
  *before = now;
  return more;
}

bool records_start(void) {
  static bool reserved; /* for all recordings of this process */
  if (!reserved && !(reserved = reserve())) return false;
  atomic_store(&lent, 0);
  uint8_t clean = 1;
  size_t size = sizeof clean;
  if (cupti.cuptiActivitySetAttribute)
    cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &clean);
  return cupti.cuptiActivityRegisterCallbacks(requested, completed) == CUPTI_SUCCESS;
}

/* What a new recording in the same process must tell again. */
static void forget_told(void) {
  for (size_t i = 0; i < table_room; i++) free(table[i].text);
  free(table);
  table = NULL, table_room = table_count = 0;
  memset(sizes, 0, sizeof sizes);
  memset(calls_told, 0, sizeof calls_told);
  memset(threads, 0, sizeof threads);
  memset(streams_met, 0, sizeof streams_met);
}

void records_finish(void) {
  pthread_mutex_lock(&writing);
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
    if (threads[i]) tell_thread_name(threads[i]);
  write_news();
  forget_told();
  pthread_mutex_unlock(&writing);
}

void records_refuse(void) { atomic_store(&refusing, true); }
