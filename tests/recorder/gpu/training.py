"""Two steps of training with PyTorch; TRAINING.py profiled: the second under torch.profiler."""

import sys
from contextlib import nullcontext

import torch
from torch.profiler import ProfilerActivity, profile

model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
batch = torch.randn(64, 256, device="cuda")


def step() -> None:
    loss = model(batch).square().mean()
    loss.backward()  # backward
    loss.item()  # item


step()
within = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) if sys.argv[1:] else nullcontext()
with within as profiler:
    step()
if profiler:
    print("on the GPU:", sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events()))
step()
