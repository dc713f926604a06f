/* --range NAME: which call of NVTX begins the range that is asked for, and which one ends it.
 *
 * Ranges are pushed and popped, of which each thread and domain has a stack of its own; or started and ended by a number, on
 * whatever threads. CUPTI calls back when the call has been made, so what it returned is known: numbers of ranges, and handles of
 * registered strings, which stand for a name from then on. */
#define _GNU_SOURCE
#include "recorder.h"

#include <cupti_nvtx_cbid.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define CALL(name) CUPTI_CBID_NVTX_##name

enum { MESSAGE_TEXT = 1, MESSAGE_REGISTERED = 3, STRINGS_KNOWN = 256, DEEPEST = 64 };

static __thread int depth; /* of ranges within the one that is recorded, on the thread that pushed it */
static __thread const void *within;
static _Atomic bool started;
static _Atomic uint64_t started_as;

/* Handles of registered strings, and whether they stand for the name. */
static _Atomic uint64_t handles[STRINGS_KNOWN];

static void remember(uint64_t handle, bool is_name) {
  atomic_store_explicit(&handles[(handle >> 4) % STRINGS_KNOWN], handle << 1 | is_name, memory_order_relaxed);
}

/* Does the text at an address, which may be none, equal the name? */
static bool reads(uint64_t address, const char *name) {
  char text[256];
  size_t length = strlen(name) + 1;
  struct iovec here = {text, length}, there = {(void *)(uintptr_t)address, length};
  return length <= sizeof text && address > 4096 && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)length &&
         memcmp(text, name, length) == 0;
}

/* A string may have been registered before the recorder was there (decorators are). Then what the handle points to is looked
 * through, without the risk of a fault: a text there that equals the name is proof enough. */
static bool stands_for(uint64_t handle, const char *name) {
  uint64_t known = atomic_load_explicit(&handles[(handle >> 4) % STRINGS_KNOWN], memory_order_relaxed), word;
  if (known >> 1 == handle) return known & 1;
  bool found = reads(handle, name);
  for (unsigned at = 0; at < DEEPEST && !found; at += 8) {
    struct iovec here = {&word, sizeof word}, there = {(void *)(uintptr_t)(handle + at), sizeof word};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)sizeof word) break;
    found = reads(handle + at, name) || reads(word, name);
  }
  remember(handle, found);
  return found;
}

static bool is_named(const void *attributes, const char *name) { /* an nvtxEventAttributes_t: version, size, ..., message */
  const struct { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type, reserved;
                 uint64_t payload; int32_t message_type; const char *message; } *event = attributes;
  if (!event || !event->message) return false;
  if (event->message_type == MESSAGE_TEXT) return strcmp(event->message, name) == 0;
  return event->message_type == MESSAGE_REGISTERED && stands_for((uint64_t)(uintptr_t)event->message, name);
}

static uint64_t returned(const CUpti_NvtxData *data) {
  uint64_t value = 0;
  if (data->functionReturnValue) memcpy(&value, data->functionReturnValue, sizeof value);
  return value;
}

/* Does this call begin a range of the name? */
bool ranges_begin(CUpti_CallbackId call, const CUpti_NvtxData *data, const char *name) {
  const void *const *params = data->functionParams;
  switch (call) {
    case CALL(nvtxDomainRegisterStringA):
      if (params[1] && returned(data)) remember(returned(data), strcmp(params[1], name) == 0);
      return false;
    case CALL(nvtxRangePushA): case CALL(nvtxRangeStartA): return params[0] && strcmp(params[0], name) == 0;
    case CALL(nvtxRangePushEx): case CALL(nvtxRangeStartEx): return is_named(params[0], name);
    case CALL(nvtxDomainRangePushEx): case CALL(nvtxDomainRangeStartEx): return is_named(params[1], name);
    default: return false;
  }
}

/* The range that this call began is the one. */
void ranges_follow(CUpti_CallbackId call, const CUpti_NvtxData *data) {
  const void *const *params = data->functionParams;
  if (call == CALL(nvtxRangeStartA) || call == CALL(nvtxRangeStartEx) || call == CALL(nvtxDomainRangeStartEx)) {
    atomic_store(&started_as, returned(data));
    atomic_store(&started, true);
  } else depth = 1, within = call == CALL(nvtxDomainRangePushEx) ? params[0] : NULL;
}

/* Does this call end the one? */
bool ranges_end(CUpti_CallbackId call, const CUpti_NvtxData *data) {
  const void *const *params = data->functionParams;
  const void *domain = NULL;
  switch (call) {
    case CALL(nvtxRangeEnd): return atomic_load(&started) && (uint64_t)(uintptr_t)params[0] == atomic_load(&started_as);
    case CALL(nvtxDomainRangeEnd): return atomic_load(&started) && (uint64_t)(uintptr_t)params[1] == atomic_load(&started_as);
    case CALL(nvtxDomainRangePushEx): case CALL(nvtxDomainRangePop): domain = params[0]; break;
    case CALL(nvtxRangePushA): case CALL(nvtxRangePushW): case CALL(nvtxRangePushEx): case CALL(nvtxRangePop): break;
    default: return false;
  }
  if (!depth || domain != within) return false;
  depth += call == CALL(nvtxRangePop) || call == CALL(nvtxDomainRangePop) ? -1 : 1;
  return !depth;
}
