// The programs that benchmarks/recording.py records: a chunk loop (copy in, kernel, copy out) with one mistake at a time,
// and loops of launches and of steps, timed by themselves. Public CUDA only; nothing here knows that it is recorded.
//
//   loops chunks VARIANT [CHUNKS KIB ROUNDS PASSES]   VARIANT: serial, streams4, trap, trap_nb, pageable, malloc, devsync,
//                                                     streamsync, eventsync, legacy
//   loops launches COUNT PASSES                       COUNT empty kernels, then a wait
//   loops steps COUNT PASSES                          a training-like step: 30 kernels of about 100 us, a copy, a wait
// Each prints the host's nanoseconds a pass, one line each (launches: until the last call returned); launches and steps
// print the core's beside it: see core_ns.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    cudaError_t error = (call);                                                                \
    if (error != cudaSuccess) {                                                                \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));      \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (0)

__global__ void work(float *data, size_t count, int rounds) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    float value = data[i];
    for (int round = 0; round < rounds; ++round) value = value * 1.000001f + 0.5f;
    data[i] = value;
  }
}

__global__ void nothing() {}

using Clock = std::chrono::steady_clock;

static long long since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

// The nanoseconds of a fixed piece of arithmetic: whether this thread has its CPU core to itself. A core serves two hardware
// threads. Six chains in registers keep so many of its units busy at once that the piece takes clearly longer while the
// other thread works, also for another virtual machine, which nothing else shows from here. A launch costs more then.
extern "C" long long core_ns() {
  auto start = Clock::now();
  unsigned long long a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
  for (int i = 0; i < 20000; ++i) {
    a += i, b ^= a + 1, c += b, d ^= i, e += d, f += e ^ i;
    asm volatile("" ::"r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f));  // each round's values are asked for: none is left out
  }
  return since(start);
}

static int number(char **words, int count, int at, int otherwise) { return at < count ? std::atoi(words[at]) : otherwise; }

// The chunk loop with its memory and streams, which all passes use.
class ChunkLoop {
 public:
  ChunkLoop(const std::string &variant, int count, size_t bytes, int rounds)
      : variant(variant), count(count), rounds(rounds), bytes(bytes), streams(variant == "serial" || variant == "legacy" ? 1 : 4) {
    unsigned flags = variant == "trap" ? cudaStreamDefault : cudaStreamNonBlocking;
    if (variant == "pageable") host = (char *)std::malloc(bytes * streams);
    else CHECK(cudaMallocHost(&host, bytes * streams));
    std::memset(host, 0, bytes * streams);
    queue.resize(streams), device.resize(streams);
    CHECK(cudaMalloc(&flag, sizeof word));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (int i = 0; i < streams; ++i) {
      CHECK(cudaStreamCreateWithFlags(&queue[i], flags));
      CHECK(cudaMalloc(&device[i], bytes));
    }
  }

  long long pass() {
    CHECK(cudaDeviceSynchronize());
    auto start = Clock::now();
    for (int i = 0; i < count; ++i) {
      cudaStream_t stream = variant == "legacy" ? nullptr : queue[i % streams];
      float *on_device = device[i % streams];
      char *on_host = host + (i % streams) * bytes;
      if (variant == "malloc") CHECK(cudaMalloc(&on_device, bytes));
      CHECK(cudaMemcpyAsync(on_device, on_host, bytes, cudaMemcpyHostToDevice, stream));
      work<<<132 * 8, 256, 0, stream>>>(on_device, bytes / sizeof(float), rounds);
      CHECK(cudaMemcpyAsync(on_host, on_device, bytes, cudaMemcpyDeviceToHost, stream));
      if (variant == "trap" || variant == "trap_nb") CHECK(cudaMemcpy(flag, &word, sizeof word, cudaMemcpyHostToDevice));
      if (variant == "malloc") CHECK(cudaFree(on_device));
      if (variant == "devsync") CHECK(cudaDeviceSynchronize());
      if (variant == "streamsync") CHECK(cudaStreamSynchronize(stream));
      if (variant == "eventsync") {
        CHECK(cudaEventRecord(done, stream));
        CHECK(cudaEventSynchronize(done));
      }
    }
    CHECK(cudaDeviceSynchronize());
    return since(start);
  }

 private:
  std::string variant;
  int count, rounds;
  size_t bytes;
  int streams, word = 0, *flag;
  char *host;
  cudaEvent_t done;
  std::vector<cudaStream_t> queue;
  std::vector<float *> device;
};

static void chunks(const std::string &variant, int count, size_t bytes, int rounds, int passes) {
  ChunkLoop loop(variant, count, bytes, rounds);
  for (int pass = 0; pass < passes; ++pass) std::printf("%lld\n", loop.pass());
}

// The core is looked at before and after a pass, and the worse of both is printed.
static void printed(long long ns, long long before) { std::printf("%lld %lld\n", ns, std::max(before, core_ns())); }

// A batch that the queue takes without blocking, so that what is timed is the host's own work for a launch.
static long long batch_of_launches(int count) {
  CHECK(cudaDeviceSynchronize());
  auto start = Clock::now();
  for (int i = 0; i < count; ++i) nothing<<<1, 32>>>();
  return since(start);
}

static void launches(int count, int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    long long before = core_ns(), ns = batch_of_launches(count);
    printed(ns, before);
  }
  CHECK(cudaDeviceSynchronize());
}

// For Python, which loads this file as a library.
extern "C" long long launches_ns(int count) { return batch_of_launches(count); }
extern "C" void *chunk_loop_made(const char *variant, int count, int kib, int rounds) {
  return new ChunkLoop(variant, count, (size_t)kib << 10, rounds);
}
extern "C" long long chunk_loop_ns(void *loop) { return ((ChunkLoop *)loop)->pass(); }
extern "C" void chunk_loop(const char *variant, int count, int kib, int rounds, int passes) {
  chunks(variant, count, (size_t)kib << 10, rounds, passes);
}

static void steps(int count, int passes) {
  const size_t elements = 1 << 22;
  float *device, *host;
  CHECK(cudaMalloc(&device, elements * sizeof(float)));
  CHECK(cudaMallocHost(&host, 1 << 20));
  for (int pass = 0; pass < passes; ++pass) {
    CHECK(cudaDeviceSynchronize());
    long long before = core_ns();
    auto start = Clock::now();
    for (int step = 0; step < count; ++step) {
      CHECK(cudaMemcpyAsync(device, host, 1 << 20, cudaMemcpyHostToDevice));
      for (int kernel = 0; kernel < 30; ++kernel) work<<<132 * 8, 256>>>(device, elements, 400);
      CHECK(cudaMemcpy(host, device, 4, cudaMemcpyDeviceToHost));
    }
    long long ns = since(start);
    printed(ns, before);
  }
}

int main(int count, char **words) {
  std::string what = count > 1 ? words[1] : "";
  if (what == "chunks" && count > 2)
    chunks(words[2], number(words, count, 3, 64), (size_t)number(words, count, 4, 4096) << 10, number(words, count, 5, 100),
           number(words, count, 6, 3));
  else if (what == "launches") launches(number(words, count, 2, 500), number(words, count, 3, 200));
  else if (what == "steps") steps(number(words, count, 2, 100), number(words, count, 3, 5));
  else return std::fprintf(stderr, "loops chunks VARIANT | launches COUNT PASSES | steps COUNT PASSES\n"), 2;
  return 0;
}
