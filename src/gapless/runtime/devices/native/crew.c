/* A crew in C: threads that copy between pageable and pinned memory, and know nothing of Python.
 *
 * Python's threads can copy as well, but take turns at the interpreter's lock, and each turn takes longer than the copy
 * of a small chunk. A task (the copies of one chunk, in or out) is divided into grains. Whichever thread is free takes
 * the next one of the oldest task: a chunk is through soon, so that few slots suffice and their pinned memory stays in
 * the cache, and a thread that the system holds up holds up one grain. One more thread, the waiter, waits for the
 * events after which results may be copied out, in the order in which it was asked to.
 *
 * Everything of a crew is guarded by its one lock, which is held for less than a microsecond a grain. What the tasks
 * point to is the caller's, and stays until the task is given back or the crew is stopped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define EXPORT __attribute__((visibility("default")))

enum {
    GRAIN = 1 << 20, /* bytes that a thread copies at a time */
    LINE = 64,       /* bytes of a cache line */
    FEW = 4096,      /* bytes that are not worth going past the cache */
};

static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

/* Memory to copy. Without a grid it is contiguous on both sides. A grid holds: the number of dimensions, the bytes of
 * an element, the length of each dimension, the step in bytes of each in the target, and that in the source. */
struct part {
    char *target;
    const char *source;
    int64_t bytes;
    const int64_t *grid;
};

struct task {
    struct task *next;
    uint64_t number; /* by which the caller knows it */
    void *event;     /* that must be over before it, or NULL */
    const struct part *parts;
    int64_t count;
    int64_t bytes;
    int64_t part, offset; /* where the next grain begins: in which part, at which byte of it */
    int64_t working;      /* threads that are at a grain of it */
    int64_t begun, ended; /* ns, on CLOCK_MONOTONIC */
    int64_t worked;       /* ns that threads copied, together */
    int64_t status;       /* what the wait for the event gave */
};

struct queue {
    struct task *first, *last;
};

struct crew {
    pthread_mutex_t lock;
    pthread_cond_t work; /* there is a grain to copy */
    pthread_cond_t wait; /* there is an event to wait for */
    pthread_cond_t news; /* a task is done */
    struct queue waiting, ready, done;
    int64_t idle, woken; /* threads that have nothing to do; those of them that will see in a moment whether they have */
    int stopped, joined;
    int (*synchronize)(void *event);
    int (*enter)(void *context);
    void *context;
    int threads; /* that were started, beside the waiter */
    pthread_t waiter;
    pthread_t thread[];
};

/* What the caller hears of a task that is done. */
struct news {
    uint64_t number;
    int64_t begun, ended, worked, status;
};

/* What one thread copies of a task in one go. */
struct grain {
    int64_t part, offset, bytes;
};

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

#ifdef GAPLESS_DELAYS
static uint64_t chance(void)
{
    static _Thread_local uint64_t state;
    state = (state ? state : (uint64_t)now()) * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 33;
}
#endif

/* For tests: sleep now and then, so that everything comes in another order. */
static void delay(void)
{
#ifdef GAPLESS_DELAYS
    uint64_t much = chance();
    if (much & 1)
        nanosleep(&(struct timespec){0, (long)(much >> 7) % 300000}, NULL);
#endif
}

/* Wake a thread that waits; in tests some wake-ups are lost. */
static void wake(pthread_cond_t *who)
{
#ifdef GAPLESS_DELAYS
    if (chance() % 64 == 0)
        return;
#endif
    pthread_cond_signal(who);
}

static void put(struct queue *queue, struct task *task)
{
    task->next = NULL;
    if (queue->last)
        queue->last->next = task;
    else
        queue->first = task;
    queue->last = task;
}

static struct task *take(struct queue *queue)
{
    struct task *task = queue->first;
    if (task) {
        queue->first = task->next;
        if (!queue->first)
            queue->last = NULL;
    }
    return task;
}

/* ---------------------------------------------------------------------------------------------------- copying */

/* Copy past the cache: a line that is written whole need not be read before, and does not drive out the pinned memory
 * that the device is about to read or write. */
static void stream_bytes(char *target, const char *source, size_t bytes)
{
#ifdef __SSE2__
    if (bytes >= FEW) {
        size_t head = -(uintptr_t)target % LINE;
        memcpy(target, source, head);
        target += head, source += head, bytes -= head;
        for (; bytes >= LINE; target += LINE, source += LINE, bytes -= LINE) {
            const __m128i *from = (const __m128i *)source;
            __m128i *to = (__m128i *)target;
            _mm_prefetch(source + 8 * LINE, _MM_HINT_NTA);
            __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
            __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
            _mm_stream_si128(to, a);
            _mm_stream_si128(to + 1, b);
            _mm_stream_si128(to + 2, c);
            _mm_stream_si128(to + 3, d);
        }
        _mm_sfence();
    }
#endif
    memcpy(target, source, bytes);
}

/* Elements of one size, known to the compiler. */
#define COPY_ELEMENTS(size)                                                                                            \
    for (int64_t i = 0; i < count; i++)                                                                                \
    memcpy(target + i * to, source + i * from, size)

static void copy_elements(char *target, const char *source, int64_t count, int64_t to, int64_t from, int64_t item)
{
    switch (item) {
    case 1: COPY_ELEMENTS(1); break;
    case 2: COPY_ELEMENTS(2); break;
    case 4: COPY_ELEMENTS(4); break;
    case 8: COPY_ELEMENTS(8); break;
    case 16: COPY_ELEMENTS(16); break;
    default: COPY_ELEMENTS((size_t)item); break;
    }
}

static void copy_grid(char *target, const char *source, int64_t dimensions, const int64_t *lengths, const int64_t *to,
                      const int64_t *from, int64_t item, int64_t rows)
{
    if (dimensions == 1) {
        copy_elements(target, source, rows, to[0], from[0], item);
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        copy_grid(target + row * to[0], source + row * from[0], dimensions - 1, lengths + 1, to + 1, from + 1, item,
                  lengths[1]);
}

/* Give the bytes of a part that can only be copied together: of a grid those of a row. */
static int64_t unit(const struct part *part)
{
    return part->grid ? part->bytes / part->grid[2] : 1;
}

static void copy_part(const struct part *part, int64_t offset, int64_t bytes, int past_cache)
{
    if (part->grid) {
        const int64_t *grid = part->grid, dimensions = grid[0], row = unit(part);
        const int64_t *lengths = grid + 2, *to = lengths + dimensions, *from = to + dimensions;
        copy_grid(part->target + offset / row * to[0], part->source + offset / row * from[0], dimensions, lengths, to,
                  from, grid[1], bytes / row);
    } else if (past_cache) {
        stream_bytes(part->target + offset, part->source + offset, (size_t)bytes);
    } else {
        memcpy(part->target + offset, part->source + offset, (size_t)bytes);
    }
}

/* Take the next grain of a task: about GRAIN bytes, of one part or of several small ones. */
static struct grain claim(struct task *task)
{
    struct grain grain = {task->part, task->offset, 0};
    while (task->part < task->count && grain.bytes < GRAIN) {
        const struct part *part = task->parts + task->part;
        int64_t left = part->bytes - task->offset, whole = unit(part);
        int64_t taken = (GRAIN - grain.bytes + whole - 1) / whole * whole;
        if (taken > left)
            taken = left;
        grain.bytes += taken;
        task->offset += taken;
        if (task->offset == part->bytes)
            task->part++, task->offset = 0;
    }
    return grain;
}

/* Copy a grain. What comes from the device goes to memory that nobody looks at soon. */
static void copy(const struct task *task, struct grain grain)
{
    for (const struct part *part = task->parts + grain.part; grain.bytes; part++) {
        int64_t bytes = part->bytes - grain.offset;
        if (bytes > grain.bytes)
            bytes = grain.bytes;
        if (bytes)
            copy_part(part, grain.offset, bytes, task->event != NULL);
        grain.bytes -= bytes;
        grain.offset = 0;
    }
}

/* ---------------------------------------------------------------------------------------------------- threads */

static void end(struct crew *crew, struct task *task)
{
    task->ended = now();
    put(&crew->done, task);
    wake(&crew->news);
}

/* Wake one more thread where there is work for it. Who is woken does the same: to wake all at once would hold up the
 * caller, a system call for each. */
static void wake_another(struct crew *crew)
{
    if (crew->ready.first && crew->idle > crew->woken) {
        crew->woken++;
        wake(&crew->work);
    }
}

/* Let a task be copied. */
static void start(struct crew *crew, struct task *task)
{
    if (!task->bytes) {
        task->begun = now();
        end(crew, task);
        return;
    }
    put(&crew->ready, task);
    wake_another(crew);
    if (task->bytes > GRAIN)
        wake_another(crew);
}

/* Copy grains until the crew is stopped. A task that has been begun is finished then: half of a result is none. */
static void *work(void *given)
{
    struct crew *crew = given;
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        struct task *task = crew->ready.first;
        if (crew->stopped && (!task || !task->begun))
            break;
        if (!task) {
            crew->idle++;
            pthread_cond_wait(&crew->work, &crew->lock);
            crew->idle--;
            if (crew->woken)
                crew->woken--;
            continue;
        }
        struct grain grain = claim(task);
        int last = task->part == task->count;
        if (last)
            take(&crew->ready);
        int64_t start = now();
        if (!task->begun)
            task->begun = start;
        task->working++;
        wake_another(crew);
        pthread_mutex_unlock(&crew->lock);
        delay();
        copy(task, grain);
        delay();
        int64_t worked = now() - start;
        pthread_mutex_lock(&crew->lock);
        task->worked += worked;
        if (!--task->working && task->part == task->count)
            end(crew, task);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static void *wait_for_events(void *given)
{
    struct crew *crew = given;
    if (crew->enter)
        crew->enter(crew->context);
    pthread_mutex_lock(&crew->lock);
    while (!crew->stopped) {
        struct task *task = take(&crew->waiting);
        if (!task) {
            pthread_cond_wait(&crew->wait, &crew->lock);
            continue;
        }
        pthread_mutex_unlock(&crew->lock);
        int status = crew->synchronize(task->event);
        delay();
        pthread_mutex_lock(&crew->lock);
        task->status = status;
        if (status) {
            task->begun = now();
            end(crew, task);
        } else if (crew->stopped) {
            free(task);
        } else {
            start(crew, task);
        }
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------- for Python */

/* Where the words of an array object are, and what they hold; the caller has found that out. */
struct layout {
    int64_t type, is, data, count, lengths, kind, flags, whole;
};

static const char *word_of(const char *object, int64_t number)
{
    const char *word;
    memcpy(&word, object + number * 8, sizeof word);
    return word;
}

static int32_t half_of(const char *object, int64_t number)
{
    int32_t half;
    memcpy(&half, object + number * 8, sizeof half);
    return half;
}

/* Give the addresses that objects hold, if all of them are arrays that are whole and have one shape and kind; else 0. */
EXPORT int gapless_alike(const char *const *objects, int64_t count, const struct layout *at, const char **addresses)
{
    enum { FAR = 16, NEAR = 8 }; /* objects to look ahead: they lie anywhere in memory, and their lengths elsewhere */
    int64_t dimensions = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *object = objects[i], *first = objects[0];
        if (i + FAR < count) {
            __builtin_prefetch(objects[i + FAR]);
            __builtin_prefetch(objects[i + FAR] + LINE);
        }
        if ((int64_t)word_of(object, at->type) != at->is)
            return 0;
        if (!i)
            dimensions = half_of(first, at->count);
        if (half_of(object, at->count) != dimensions || word_of(object, at->kind) != word_of(first, at->kind) ||
            !(half_of(object, at->flags) & at->whole))
            return 0;
        if (i + NEAR < count && (int64_t)word_of(objects[i + NEAR], at->type) == at->is)
            __builtin_prefetch(word_of(objects[i + NEAR], at->lengths));
        if (memcmp(word_of(object, at->lengths), word_of(first, at->lengths), (size_t)dimensions * 8))
            return 0;
        addresses[i] = word_of(object, at->data);
    }
    return 1;
}

/* End all threads; tasks that were not begun are dropped. What is done can still be heard. A second call does nothing. */
EXPORT void gapless_crew_stop(struct crew *crew)
{
    if (crew->joined)
        return;
    crew->joined = 1;
    pthread_mutex_lock(&crew->lock);
    crew->stopped = 1;
    pthread_cond_broadcast(&crew->work);
    pthread_cond_broadcast(&crew->wait);
    pthread_mutex_unlock(&crew->lock);
    pthread_join(crew->waiter, NULL);
    for (int i = 0; i < crew->threads; i++)
        pthread_join(crew->thread[i], NULL);
}

static void discard(struct crew *crew)
{
    struct queue *queues[] = {&crew->waiting, &crew->ready, &crew->done};
    for (int i = 0; i < 3; i++)
        for (struct task *task; (task = take(queues[i]));)
            free(task);
    pthread_cond_destroy(&crew->news);
    pthread_cond_destroy(&crew->wait);
    pthread_cond_destroy(&crew->work);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

/* Give back what a stopped crew holds; its place is NULL then. */
EXPORT void gapless_crew_free(struct crew **place)
{
    struct crew *crew = *place;
    *place = NULL;
    if (crew)
        discard(crew);
}

/* Start a crew of so many threads and the waiter, who first calls *enter* with *context* and calls *synchronize* with
 * each event. Gives 0, or an error where the system gives no memory or no thread. Signals are left to the threads that
 * are there, but for those of faults, which are the thread's own.
 *
 * The crew is put into a place that the caller has already: a Ctrl-C that came meanwhile is raised in Python before
 * what a call gives can be kept, and a crew that nobody knows would stay. */
EXPORT int gapless_crew_open(struct crew **place, int threads, int (*synchronize)(void *), int (*enter)(void *),
                             void *context)
{
    *place = NULL;
    struct crew *crew = calloc(1, sizeof *crew + (size_t)threads * sizeof crew->thread[0]);
    if (!crew)
        return ENOMEM;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->wait, NULL);
    pthread_cond_init(&crew->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    crew->synchronize = synchronize, crew->enter = enter, crew->context = context;
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++)
        sigdelset(&all, FAULTS[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&crew->waiter, NULL, wait_for_events, crew);
    if (failed) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        discard(crew);
        return failed;
    }
    while (crew->threads < threads && !pthread_create(&crew->thread[crew->threads], NULL, work, crew))
        crew->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!crew->threads) {
        gapless_crew_stop(crew);
        discard(crew);
        return EAGAIN;
    }
    *place = crew;
    return 0;
}

/* Add a task, to be begun after *event* where that is not NULL. Gives 0, or ENOMEM. */
EXPORT int gapless_crew_submit(struct crew *crew, uint64_t number, void *event, const struct part *parts, int64_t count)
{
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return ENOMEM;
    task->number = number, task->event = event, task->parts = parts, task->count = count;
    for (int64_t i = 0; i < count; i++)
        task->bytes += parts[i].bytes;
    pthread_mutex_lock(&crew->lock);
    if (event) {
        put(&crew->waiting, task);
        wake(&crew->wait);
    } else {
        start(crew, task);
    }
    pthread_mutex_unlock(&crew->lock);
    return 0;
}

/* The C library may lose a wake-up (glibc before 2.41 does, once in a great while): wake whoever has something to do. */
static void wake_all(struct crew *crew)
{
    if (crew->ready.first) {
        crew->woken = crew->idle;
        pthread_cond_broadcast(&crew->work);
    }
    if (crew->waiting.first)
        pthread_cond_broadcast(&crew->wait);
}

/* Hear of the next task that is done, waiting so many ns for one. Gives whether there was one. */
EXPORT int gapless_crew_next(struct crew *crew, int64_t patience, struct news *news)
{
    pthread_mutex_lock(&crew->lock);
    if (!crew->done.first && patience > 0) {
        int64_t until = now() + patience;
        struct timespec time = {until / INT64_C(1000000000), until % INT64_C(1000000000)};
        while (!crew->done.first && pthread_cond_timedwait(&crew->news, &crew->lock, &time) != ETIMEDOUT)
            ;
        if (!crew->done.first)
            wake_all(crew);
    }
    struct task *task = take(&crew->done);
    pthread_mutex_unlock(&crew->lock);
    if (!task)
        return 0;
    *news = (struct news){task->number, task->begun, task->ended, task->worked, task->status};
    free(task);
    return 1;
}
