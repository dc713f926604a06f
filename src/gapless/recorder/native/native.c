/* Frames of programs without Python.
 *
 * Unwinding takes microseconds, and a loop makes the same call from the same place again and again. So an unwound stack is
 * remembered with the places in memory where its return addresses lie; if all of them still hold the same addresses, the
 * call comes through the same callers and nothing is unwound. (Where return addresses lie is known on x86-64; elsewhere each call is
 * unwound.) Symbols and lines are looked up when the program has ended. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

enum { DEPTH = 24, REMEMBERED = 64 };

struct memory { int count; const uint64_t *where[DEPTH]; uint64_t held[DEPTH]; };

struct walk { struct memory *memory; bool whole; };

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *data) {
  struct walk *walk = data;
  struct memory *memory = walk->memory;
  uint64_t address = _Unwind_GetIP(context);
  if (!address || memory->count == DEPTH) return _URC_END_OF_STACK;
  const uint64_t *where = (const uint64_t *)(uintptr_t)(_Unwind_GetCFA(context) - 8);
  memory->where[memory->count] = where;
  memory->held[memory->count++] = address;
#if defined(__x86_64__)
  if (memory->count > 1 && *where != address) walk->whole = false; /* the first is this function's own */
#else
  walk->whole = false;
#endif
  return _URC_NO_REASON;
}

static bool still(const struct memory *memory) {
  for (int i = 1; i < memory->count; i++)
    if (*memory->where[i] != memory->held[i]) return false;
  return memory->count > 1;
}

_Static_assert(sizeof(struct memory) * REMEMBERED <= NATIVE_MEMORY, "too much to remember");

int native_frames(void *kept, struct frame *frames, int room) {
  bool whole = true;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  struct memory *memory = (struct memory *)kept + (here >> 4) % REMEMBERED;
  if (memory->count <= 1 || !still(memory)) {
    struct walk walk = {memory, true};
    memory->count = 0;
    _Unwind_Backtrace(step, &walk);
    whole = walk.whole;
  }
  int count = 0;
  for (int i = 2; i < memory->count && count < room; i++) frames[count++] = (struct frame){0, memory->held[i], 0};
  if (!whole) memory->count = 0;
  return count;
}

static bool machinery(const char *path) {
  static const char *const own[] = {"libcupti.so", "libcuda.so", "libgapless-recorder", "libcudart.so"};
  const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strncmp(name, own[i], strlen(own[i])) == 0) return true;
  return false;
}

void native_describe(const struct frame *frame, struct stack_row *row) {
  Dl_info info;
  struct link_map *map = NULL;
  /* a return address may be the first of the next line: the call itself lies before it */
  if (!dladdr1((void *)(uintptr_t)(frame->at - 1), &info, (void **)&map, RTLD_DL_LINKMAP) || !info.dli_fname) return;
  if (machinery(info.dli_fname)) return;
  const char *name = info.dli_sname ? info.dli_sname : "";
  stacks_names(&row->file, &row->function, info.dli_fname, strlen(info.dli_fname), name, strlen(name));
  row->what = FRAME_NATIVE;
  row->address = frame->at - 1 - (map ? (uint64_t)map->l_addr : 0);
}
