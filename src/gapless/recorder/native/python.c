/* Frames of Python, read without the interpreter's lock.
 *
 * A thread's chain of frames is changed by that thread alone, and a frame keeps its code object alive. CUPTI calls back on
 * the thread that made the call, in the middle of it: its own chain stands still, whoever holds the lock. So reading is
 * safe then and there; no count of references is touched, no object made, no function of Python called but the one that
 * looks up the thread's own state (a thread-local variable). What is read are fields whose places in memory each Python
 * version fixes; before they are trusted they are tried once in a way that cannot crash (process_vm_readv), and
 * each code object's type is looked at every time. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct places { /* of one Python version with the lock, 64 bits */
  unsigned minor, state, current, code, previous, instruction;
  unsigned filename, qualname, first_line, lines, start, ascii, compact;
};
static const struct places known[] = {
    {11, 56, 8, 32, 48, 56, 112, 128, 72, 136, 184, 48, 72},
    {12, 56, 0, 0, 8, 56, 112, 128, 68, 136, 192, 40, 56},
    {13, 72, ~0u, 0, 8, 56, 112, 128, 68, 136, 200, 40, 56},
};
enum { TYPE = 8, TEXT_LENGTH = 16, TEXT_STATE = 32, BYTES_SIZE = 16, BYTES = 32 };

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

const char *python_start(void) {
  unsigned long version = running();
  places = NULL, trust = UNTRIED;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (version >> 24 == 3 && ((version >> 16) & 255) == known[i].minor) places = &known[i];
  if (!places) return "The source lines of this Python version cannot be read: 3.11, 3.12 and 3.13 are known.";
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
  return try(frame + places->code, &code) && try(code + TYPE, &type) && type == code_type &&
         try(code + places->filename, &name) && try(name + TYPE, &type) && type == text_type &&
         try(code + places->qualname, &name) && try(name + TYPE, &type) && type == text_type &&
         try(code + places->lines, &lines) && try(lines + TYPE, &type) && type == bytes_type &&
         try(frame + places->instruction, &instruction) && try(code + 16, &size) && instruction + 2 >= code + places->start &&
         instruction < code + places->start + size * 2;
}

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
    uint64_t code = at(frame + places->code);
    if (!code || at(code + TYPE) != code_type) continue; /* the interpreter's own frames between C and Python */
    frames[count++] = (struct frame){code, at(frame + places->instruction) - code - places->start,
                                     at(code + places->qualname) ^ (at(code + places->first_line) << 48)};
  }
  return count;
}

/* The line of an instruction: Python's location table (its Objects/locations.md), one entry after the other. */
static int line_of(uint64_t code, uint64_t offset) {
  uint64_t table = at(code + places->lines), size = at(table + BYTES_SIZE), address = 0;
  const unsigned char *byte = (const unsigned char *)(uintptr_t)(table + BYTES), *end = byte + size;
  int line = *(const int *)(uintptr_t)(code + places->first_line);
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
static size_t text_of(uint64_t object, char *to, size_t room) {
  size_t length = (size_t)at(object + TEXT_LENGTH), count = 0;
  uint32_t state = *(const uint32_t *)(uintptr_t)(object + TEXT_STATE);
  unsigned width = (state >> 2) & 7;
  bool compact = (state >> 5) & 1, ascii = (state >> 6) & 1;
  if (!compact || (width != 1 && width != 2 && width != 4)) return 0;
  uint64_t data = object + (ascii ? places->ascii : places->compact);
  for (size_t i = 0; i < length && count + 4 < room; i++) {
    uint32_t c = width == 1   ? *(const uint8_t *)(uintptr_t)(data + i)
                 : width == 2 ? *(const uint16_t *)(uintptr_t)(data + i * 2)
                              : *(const uint32_t *)(uintptr_t)(data + i * 4);
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

void python_describe(const struct frame *frame, struct stack_row *row) {
  char file[4096], function[1024];
  size_t file_bytes = text_of(at(frame->code + places->filename), file, sizeof file);
  size_t function_bytes = text_of(at(frame->code + places->qualname), function, sizeof function);
  if (file_bytes >= 6 && memcmp(file, "<shim>", 6) == 0) return;
  stacks_names(&row->file, &row->function, file, file_bytes, function, function_bytes);
  row->line = line_of(frame->code, frame->at);
  row->what = FRAME_PYTHON;
}
