/* Frames of Python, read without the interpreter's lock.
 *
 * A thread's chain of frames is changed by that thread alone, and a frame keeps its code object alive. CUPTI calls back on
 * the thread that made the call, in the middle of it: its own chain stands still, whoever holds the lock. So reading is
 * safe then and there; no count of references is touched, no object made, no function of Python called but the one that
 * looks up the thread's own state (a thread-local variable). What is read are fields whose places in memory each Python
 * version fixes; since 3.13 the interpreter tells them itself, for debuggers. Before they are trusted they are tried once in a
 * way that cannot crash (process_vm_readv), and each code object's type is looked at every time.
 *
 * A thread of PyTorch's autograd has no frames: it works for one that waits in backward(). That thread's chain stands still
 * while it waits, but when it wakes up is not ours to say. So it is read as what may change at any time: never by a pointer, and
 * believed only when it reads the same twice. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct places { /* of one Python version with the lock, 64 bits: where it does not tell them itself */
  unsigned minor, state, current, code, previous, instruction;
  unsigned filename, qualname, first_line, lines, start, ascii, compact;
};
static const struct places known[] = {
    {11, 56, 8, 32, 48, 56, 112, 128, 72, 136, 184, 48, 72},
    {12, 56, 0, 0, 8, 56, 112, 128, 68, 136, 192, 40, 56},
    {13, 72, ~0u, 0, 8, 56, 112, 128, 68, 136, 200, 40, 56},
    {14, 72, ~0u, 0, 8, 56, 112, 128, 68, 136, 208, 40, 56},
};
enum { TYPE = 8, TEXT_LENGTH = 16, TEXT_STATE = 32, BYTES_SIZE = 16, BYTES = 32, TAGS = 7 };

/* _PyRuntime begins with a mark, the version, whether it has no lock, and then numbers in groups (_Py_DebugOffsets): where
 * the groups begin differs, what they begin with does not. */
static const struct { unsigned minor, thread, frame, code, object, bytes, text; } told_at[] = {
    {13, 19, 28, 34, 44, 64, 67},
    {14, 22, 31, 39, 50, 74, 77},
};

static struct places told; /* by the interpreter */
static const struct places *places;
static uint64_t code_type, text_type, bytes_type;
static void *(*thread_state)(void);
static enum { UNTRIED, TRUSTED, WRONG } trust;

static uint64_t at(uint64_t address) { return *(const uint64_t *)(uintptr_t)address; }

/* Reads a word of this process without the risk of a fault. */
static bool try(uint64_t address, uint64_t *value) {
  struct iovec here = {value, sizeof *value}, there = {(void *)(uintptr_t)address, sizeof *value};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)sizeof *value;
}

static unsigned long running(void) {
  const unsigned long *version = dlsym(RTLD_DEFAULT, "Py_Version");
  return version ? *version : 0;
}

bool python_version(char *text, size_t room) {
  unsigned long version = running();
  *text = 0;
  if (!dlsym(RTLD_DEFAULT, "Py_Initialize")) return false;
  if (version) snprintf(text, room, "%lu.%lu.%lu", version >> 24, (version >> 16) & 255, (version >> 8) & 255);
  else snprintf(text, room, "older than 3.11");
  return true;
}

/* What the interpreter tells; NULL, or why that is of no use. */
static const char *take_told(const uint64_t *all, size_t which) {
  const uint64_t *thread_at = all + told_at[which].thread, *frame = all + told_at[which].frame, *code = all + told_at[which].code,
                 *object = all + told_at[which].object, *bytes = all + told_at[which].bytes, *text = all + told_at[which].text;
  if (all[2]) return "The source lines of a Python without the interpreter's lock (free-threaded) cannot be read.";
  if (object[1] != TYPE || bytes[1] != BYTES_SIZE || bytes[2] != BYTES || text[1] != TEXT_STATE || text[2] != TEXT_LENGTH ||
      frame[1] + 8 > FRAME_BYTES || frame[2] + 8 > FRAME_BYTES || frame[3] + 8 > FRAME_BYTES)
    return "The source lines of this build of Python cannot be read: its objects are laid out in a way of their own.";
  told = (struct places){told_at[which].minor, (unsigned)thread_at[4], ~0u, (unsigned)frame[2], (unsigned)frame[1],
                         (unsigned)frame[3], (unsigned)code[1], (unsigned)code[3], (unsigned)code[5], (unsigned)code[4],
                         (unsigned)code[9], (unsigned)text[3], (unsigned)text[3] + 16};
  places = &told;
  return NULL;
}

/* NULL, or why the places cannot be had. */
static const char *find_places(void) {
  unsigned long version = running();
  unsigned minor = version >> 24 == 3 ? (version >> 16) & 255 : 0;
  const uint64_t *all = dlsym(RTLD_DEFAULT, "_PyRuntime");
  for (size_t i = 0; i < sizeof told_at / sizeof *told_at; i++)
    if (minor == told_at[i].minor && all && memcmp(all, "xdebugpy", 8) == 0 && all[1] == version) return take_told(all, i);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (minor == known[i].minor) return places = &known[i], NULL;
  return "The source lines of this Python version cannot be read: 3.11 to 3.14 are known.";
}

/* Has Python call it when it ends, after the program's own code. */
void python_at_exit(void (*function)(void)) {
  int (*at_exit)(void (*)(void));
  *(void **)&at_exit = dlsym(RTLD_DEFAULT, "Py_AtExit");
  if (at_exit) at_exit(function);
}

const char *python_start(void) {
  places = NULL, trust = UNTRIED;
  const char *why = find_places();
  if (why) return why;
  code_type = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "PyCode_Type");
  text_type = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "PyUnicode_Type");
  bytes_type = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "PyBytes_Type");
  *(void **)&thread_state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  if (!code_type || !text_type || !bytes_type || !thread_state) {
    places = NULL;
    return "The source lines of this Python cannot be read: it hides its symbols.";
  }
  return NULL;
}

/* Is the innermost frame what this version's layout says? A build of Python that lays things out otherwise (without the
 * lock, with extra fields for debugging) fails here. */
static bool proven(uint64_t state) {
  uint64_t frame, code, type, name, lines, instruction, size;
  if (!try(state + places->state, &frame) || (places->current != ~0u && !try(frame + places->current, &frame))) return false;
  return try(frame + places->code, &code) && try((code &= ~(uint64_t)TAGS) + TYPE, &type) && type == code_type &&
         try(code + places->filename, &name) && try(name + TYPE, &type) && type == text_type &&
         try(code + places->qualname, &name) && try(name + TYPE, &type) && type == text_type &&
         try(code + places->lines, &lines) && try(lines + TYPE, &type) && type == bytes_type &&
         try(frame + places->instruction, &instruction) && try(code + 16, &size) && instruction + 2 >= code + places->start &&
         instruction < code + places->start + size * 2;
}

uint64_t python_thread(void) { return places ? (uint64_t)(uintptr_t)thread_state() : 0; }

int python_frames(struct frame *frames, int room) {
  if (trust == WRONG || !places) return 0;
  uint64_t state = (uint64_t)(uintptr_t)thread_state(), frame;
  if (!state) return 0; /* no thread of Python's */
  if (trust == UNTRIED) {
    frame = at(state + places->state);
    if (!frame || (places->current != ~0u && !at(frame + places->current))) return 0; /* before the first frame */
    trust = proven(state) ? TRUSTED : WRONG;
    if (trust == WRONG) {
      file_note("no-lines", "The source lines of this build of Python cannot be read: its frames are laid out in a way of their own.");
      return 0;
    }
  }
  frame = at(state + places->state);
  if (frame && places->current != ~0u) frame = at(frame + places->current);
  int count = 0;
  for (; frame && count < room; frame = at(frame + places->previous)) {
    uint64_t code = at(frame + places->code) & ~(uint64_t)TAGS;
    if (!code || at(code + TYPE) != code_type) continue; /* the interpreter's own frames between C and Python */
    frames[count++] = (struct frame){code, at(frame + places->instruction) - code - places->start,
                                     at(code + places->qualname) ^ (at(code + places->first_line) << 48)};
  }
  return count;
}

/* Reads what is there, or (careful) what may be gone. */
static bool fetch(void *to, uint64_t address, size_t count, bool careful) {
  struct iovec here = {to, count}, there = {(void *)(uintptr_t)address, count};
  if (careful) return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)count;
  memcpy(to, (const void *)(uintptr_t)address, count);
  return true;
}

/* The line of an instruction: Python's location table (its Objects/locations.md), one entry after the other. */
static int line_of(uint64_t code, uint64_t offset, bool careful) {
  static unsigned char copy[1 << 16]; /* one thread at a time puts stacks into words */
  uint64_t table, size, address = 0;
  int line;
  if (!fetch(&table, code + places->lines, sizeof table, careful) || !fetch(&size, table + BYTES_SIZE, sizeof size, careful) ||
      !fetch(&line, code + places->first_line, sizeof line, careful))
    return -1;
  if (careful && (size > sizeof copy || !fetch(copy, table + BYTES, size, true))) return -1;
  const unsigned char *byte = careful ? copy : (const unsigned char *)(uintptr_t)(table + BYTES), *end = byte + size;
  while (byte < end) {
    unsigned form = (*byte >> 3) & 15, units = (*byte & 7) + 1;
    byte++;
    if (form == 13 || form == 14) { /* a change of line of any size: zigzag, six bits a byte */
      unsigned value = 0, shift = 0;
      const unsigned char *from = byte;
      while (from < end && shift < 30) {
        value |= (*from & 63u) << shift, shift += 6;
        if (!(*from++ & 64)) break;
      }
      line += value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
    } else if (form >= 10 && form <= 12) line += (int)form - 10;
    if (offset < address + units * 2) return form == 15 ? -1 : line;
    address += units * 2;
    while (byte < end && !(*byte & 128)) byte++;
  }
  return -1;
}

/* A str as UTF-8; what is longer than the room is cut. */
static size_t text_of(uint64_t object, char *to, size_t room, bool careful) {
  unsigned char raw[4096];
  uint64_t length;
  uint32_t state;
  size_t count = 0;
  if (!fetch(&length, object + TEXT_LENGTH, sizeof length, careful) || !fetch(&state, object + TEXT_STATE, sizeof state, careful)) return 0;
  unsigned width = (state >> 2) & 7;
  bool compact = (state >> 5) & 1, ascii = (state >> 6) & 1;
  if (!compact || (width != 1 && width != 2 && width != 4)) return 0;
  if (length > sizeof raw / width) length = sizeof raw / width;
  if (!fetch(raw, object + (ascii ? places->ascii : places->compact), length * width, careful)) return 0;
  for (size_t i = 0; i < length && count + 4 < room; i++) {
    uint32_t c = 0;
    memcpy(&c, raw + i * width, width);
    if (c < 0x80) to[count++] = (char)c;
    else if (c < 0x800) to[count++] = (char)(0xC0 | c >> 6), to[count++] = (char)(0x80 | (c & 63));
    else if (c < 0x10000)
      to[count++] = (char)(0xE0 | c >> 12), to[count++] = (char)(0x80 | (c >> 6 & 63)), to[count++] = (char)(0x80 | (c & 63));
    else
      to[count++] = (char)(0xF0 | c >> 18), to[count++] = (char)(0x80 | (c >> 12 & 63)),
      to[count++] = (char)(0x80 | (c >> 6 & 63)), to[count++] = (char)(0x80 | (c & 63));
  }
  return count;
}

void python_describe(const struct frame *frame, struct stack_row *row, bool careful) {
  char file[4096], function[1024];
  uint64_t file_at, function_at;
  if (!fetch(&file_at, frame->code + places->filename, sizeof file_at, careful) ||
      !fetch(&function_at, frame->code + places->qualname, sizeof function_at, careful))
    return;
  size_t file_bytes = text_of(file_at, file, sizeof file, careful);
  size_t function_bytes = text_of(function_at, function, sizeof function, careful);
  if (file_bytes >= 6 && memcmp(file, "<shim>", 6) == 0) return;
  stacks_names(&row->file, &row->function, file, file_bytes, function, function_bytes);
  row->line = line_of(frame->code, frame->at, careful);
  row->what = careful ? FRAME_WAITING : FRAME_PYTHON;
}

/* --- frames of another thread */
static uint64_t word_in(const char *frame, unsigned place) {
  uint64_t value;
  memcpy(&value, frame + place, sizeof value);
  return value;
}

static uint64_t innermost(uint64_t thread) {
  uint64_t frame;
  if (!try(thread + places->state, &frame) || (places->current != ~0u && !try(frame + places->current, &frame))) return 0;
  return frame;
}

/* Does it read the same again? One call for all frames. */
static bool still(const struct waiting *kept) {
  char now[FRAMES][FRAME_BYTES];
  struct iovec here = {now, (size_t)kept->count * FRAME_BYTES}, there[FRAMES];
  for (int i = 0; i < kept->count; i++) there[i] = (struct iovec){(void *)(uintptr_t)kept->places[i], FRAME_BYTES};
  return kept->count && innermost(kept->thread) == kept->places[0] &&
         process_vm_readv(getpid(), &here, 1, there, (unsigned long)kept->count, 0) == (ssize_t)here.iov_len &&
         memcmp(now, kept->held, here.iov_len) == 0;
}

static bool waits_for_autograd(uint64_t code) {
  static const char *const functions[] = {"_engine_run_backward", "backward", "grad"}; /* of PyTorch, new and old */
  char file[4096], function[64];
  uint64_t file_at, function_at;
  if (!try(code + places->filename, &file_at) || !try(code + places->qualname, &function_at)) return false;
  function[text_of(function_at, function, sizeof function, true)] = 0;
  file[text_of(file_at, file, sizeof file, true)] = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (strcmp(function, functions[i]) == 0) return strstr(file, "/torch/autograd/") != NULL;
  return false;
}

static bool read_waiting(uint64_t thread, struct waiting *found) {
  found->thread = thread, found->count = found->given = 0;
  for (uint64_t frame = innermost(thread); frame && found->count < FRAMES;) {
    char *held = found->held[found->count];
    uint64_t type, name, line;
    if (!fetch(held, frame, FRAME_BYTES, true)) return false;
    found->places[found->count++] = frame;
    uint64_t code = word_in(held, places->code) & ~(uint64_t)TAGS;
    frame = word_in(held, places->previous);
    if (!code || !try(code + TYPE, &type) || type != code_type) continue;
    if (!found->given && !waits_for_autograd(code)) return false;
    if (!try(code + places->qualname, &name) || !try(code + places->first_line, &line)) return false;
    found->frames[found->given++] = (struct frame){code, word_in(held, places->instruction) - code - places->start, name ^ (line << 48)};
  }
  return found->given > 0;
}

int python_frames_waiting(uint64_t thread, struct waiting *kept, struct frame *frames, int room) {
  if (trust != TRUSTED) return 0;
  if (kept->thread != thread || !still(kept)) {
    struct waiting found;
    if (!read_waiting(thread, &found) || !still(&found)) return 0;
    *kept = found;
  }
  int count = kept->given < room ? kept->given : room;
  memcpy(frames, kept->frames, (size_t)count * sizeof *frames);
  return count;
}
