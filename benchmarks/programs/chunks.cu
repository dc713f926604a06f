// Loops of raw CUDA for the recorded programs: called through ctypes, so that torch.profiler in the same process sees them.
#include <cuda_runtime.h>

#include <vector>

__global__ void work(float *data, size_t count, int rounds) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    float value = data[i];
    for (int round = 0; round < rounds; ++round) value = value * 1.000001f + 0.5f;
    data[i] = value;
  }
}

// Chunks of in_bytes up and out_bytes down, dealt to `streams` streams with a device buffer each.
extern "C" int chunk_loop(int chunks, size_t in_bytes, size_t out_bytes, int rounds, int grid, int streams, int sync_each) {
  static char *up = nullptr, *down = nullptr;
  static std::vector<float *> device;
  static std::vector<cudaStream_t> queue;
  static size_t size = 0;
  if (!up || size < in_bytes) {
    cudaMallocHost(&up, in_bytes * 4);
    cudaMallocHost(&down, in_bytes * 4);
    size = in_bytes;
    for (int i = 0; i < 8; ++i) {
      float *buffer;
      cudaStream_t stream;
      cudaMalloc(&buffer, in_bytes);
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      device.push_back(buffer);
      queue.push_back(stream);
    }
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    int slot = chunk % streams;
    cudaMemcpyAsync(device[slot], up + (chunk % 4) * in_bytes, in_bytes, cudaMemcpyHostToDevice, queue[slot]);
    work<<<grid, 256, 0, queue[slot]>>>(device[slot], in_bytes / sizeof(float), rounds);
    if (out_bytes) cudaMemcpyAsync(down + (chunk % 4) * in_bytes, device[slot], out_bytes, cudaMemcpyDeviceToHost, queue[slot]);
    if (sync_each) cudaStreamSynchronize(queue[slot]);
  }
  for (int slot = 0; slot < streams; ++slot) cudaStreamSynchronize(queue[slot]);
  return cudaGetLastError();
}

// Kernels that fill a part of the SMs, dealt to `streams` streams.
extern "C" int small_kernels(int count, int grid, int rounds, int streams) {
  static std::vector<float *> device;
  static std::vector<cudaStream_t> queue;
  const size_t elements = 1 << 16;
  while (queue.size() < 8) {
    float *buffer;
    cudaStream_t stream;
    cudaMalloc(&buffer, elements * sizeof(float));
    cudaMemset(buffer, 0, elements * sizeof(float));
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    device.push_back(buffer);
    queue.push_back(stream);
  }
  for (int i = 0; i < count; ++i) work<<<grid, 256, 0, queue[i % streams]>>>(device[i % streams], elements, rounds);
  for (int slot = 0; slot < streams; ++slot) cudaStreamSynchronize(queue[slot]);
  return cudaGetLastError();
}
