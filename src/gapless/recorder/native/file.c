/* The file: blocks are appended, one write each, and never touched again. Several processes may append to one file. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct header { char mark[4]; uint16_t type, flags; uint32_t process, thread; uint64_t length, realtime; };
_Static_assert(sizeof(struct header) == 32, "the format says 32 bytes");

enum { PARTS = 6, RESERVE = 256 << 10 }; /* bytes of the limit that are kept for what ends a recording */

static int file = -1;
static char file_path[4096];
static dev_t device;
static ino_t inode;
static uint64_t limit;
static _Atomic(const char *) full;

uint64_t now_ns(int clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t thread_number(void) { return (uint32_t)syscall(SYS_gettid); }

/* Opened with a high number: programs that close all files, or count on the next number, rather have the low ones. A
 * pipe that the program put there would wait for its other end. */
static bool reopen(struct stat *now) {
  int low = open(file_path, O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC);
  file = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 700);
  if (low >= 0 && file >= 0) close(low);
  else if (low >= 0) file = low;
  return file >= 0 && fstat(file, now) == 0;
}

/* The program may have written a file of its own over the recording: nothing is added to that. */
static bool is_recording(const struct stat *now) {
  char start[8];
  return S_ISREG(now->st_mode) && pread(file, start, sizeof start, 0) == (ssize_t)sizeof start &&
         memcmp(start, "\x93GAPLESS", sizeof start) == 0;
}

bool file_open(const char *path, uint64_t most, char *problem, size_t room) {
  struct stat now;
  snprintf(file_path, sizeof file_path, "%s", path);
  if (!reopen(&now)) {
    snprintf(problem, room, "%s cannot be written: %s", path, strerror(errno));
    return false;
  }
  if (!is_recording(&now)) {
    snprintf(problem, room, "%s is no recording any more", path);
    file_forget();
    return false;
  }
  device = now.st_dev, inode = now.st_ino;
  limit = most;
  atomic_store(&full, NULL);
  return true;
}

void file_forget(void) {
  if (file >= 0) close(file);
  file = -1;
}

const char *file_full(void) { return atomic_load(&full); }

/* Writes all parts as one append. A full disk or a limit on file sizes is the recorder's loss, never the program's: the
 * signal that such a limit sends is taken out before it arrives. */
static bool append(struct iovec *parts, int count) {
  sigset_t size_signal, before, pending;
  sigemptyset(&size_signal);
  sigaddset(&size_signal, SIGXFSZ);
  sigpending(&pending);
  bool already = sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &size_signal, &before);
  bool done = true;
  while (count > 0) {
    ssize_t wrote = writev(file, parts, count);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      done = false;
      break;
    }
    while (count > 0 && (size_t)wrote >= parts->iov_len) wrote -= (ssize_t)parts->iov_len, parts++, count--;
    if (count > 0) parts->iov_base = (char *)parts->iov_base + wrote, parts->iov_len -= (size_t)wrote;
  }
  if (!done && !already) sigtimedwait(&size_signal, NULL, &(struct timespec){0, 0});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return done;
}

bool file_block(enum block type, const struct iovec *parts, int count) {
  struct iovec all[PARTS + 1];
  struct header header = {{'G', 'B', 'L', 'K'}, (uint16_t)type, 0, (uint32_t)getpid(), thread_number(), 0,
                          now_ns(CLOCK_REALTIME)};
  if (file < 0) return false;
  for (int i = 0; i < count; i++) all[i + 1] = parts[i], header.length += parts[i].iov_len;
  all[0] = (struct iovec){&header, sizeof header};
  bool vital = type == NOTE || type == END || type == DROPPED || type == CLOCK || type == PROCESS;
  const char *why = atomic_load(&full);
  if (why && (!vital || strcmp(why, "file-full") == 0)) return false;
  /* The program may have closed the number, and it may be a file of its own by now: nothing is written into that. */
  struct stat now;
  if ((fstat(file, &now) != 0 || now.st_ino != inode || now.st_dev != device) &&
      (!reopen(&now) || now.st_ino != inode || now.st_dev != device)) {
    file = -1;
    return false;
  }
  if (!is_recording(&now)) return false;
  if (limit && !vital && (uint64_t)now.st_size + header.length + RESERVE > limit) {
    atomic_store(&full, "max-size");
    record_wake();
    return false;
  }
  if (append(all, count + 1)) return true;
  atomic_store(&full, "file-full");
  record_wake();
  return false;
}

bool file_note(const char *what, const char *text) {
  struct bytes note = {0};
  bytes_text(&note, "{\"what\": \"%s\", \"text\": ", what);
  bytes_json(&note, text, strlen(text));
  bytes_text(&note, "}");
  bool done = file_block(NOTE, &(struct iovec){note.at, note.count}, 1);
  free(note.at);
  return done;
}

static bool make_room(struct bytes *bytes, size_t more) {
  if (bytes->count + more <= bytes->room) return true;
  size_t room = (bytes->count + more) * 2;
  char *moved = realloc(bytes->at, room);
  if (!moved) return false;
  bytes->at = moved, bytes->room = room;
  return true;
}

void bytes_add(struct bytes *bytes, const void *data, size_t count) {
  if (!make_room(bytes, count)) return;
  memcpy(bytes->at + bytes->count, data, count);
  bytes->count += count;
}

void bytes_text(struct bytes *bytes, const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (make_room(bytes, 512)) {
    int wrote = vsnprintf(bytes->at + bytes->count, 512, format, values);
    if (wrote > 0) bytes->count += wrote < 512 ? (size_t)wrote : 511;
  }
  va_end(values);
}

void bytes_json(struct bytes *bytes, const char *text, size_t length) {
  bytes_add(bytes, "\"", 1);
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\' || c < 0x20) bytes_text(bytes, "\\u%04x", c);
    else bytes_add(bytes, &text[i], 1);
  }
  bytes_add(bytes, "\"", 1);
}

void bytes_string(struct bytes *bytes, enum space space, uint64_t key, const char *text, size_t length) {
  struct { uint64_t key; uint32_t space, bytes; } entry = {key, space, (uint32_t)length};
  static const char zeros[8];
  bytes_add(bytes, &entry, sizeof entry);
  bytes_add(bytes, text, length);
  bytes_add(bytes, zeros, (8 - length % 8) % 8);
}
