"""A Python program that uses the fake CUDA, for tests of source lines: each launch's line says what it is."""

import ctypes
import os
import threading

cuda = ctypes.CDLL(os.environ["FAKE"])  # a CDLL: the interpreter's lock is released in every call
assert cuda.fake_init() == 0


def helper(times):
    for _ in range(times):
        cuda.fake_launch()  # in helper


class Größe:
    def step(self):
        helper(3)  # calls helper
        return (
            cuda.fake_launch(),  # in step
        )


def generator():
    while True:
        cuda.fake_launch()  # in generator
        yield 1


thread = threading.Thread(target=Größe().step)
thread.start()
thread.join()
busy = generator()
next(busy)  # first
next(busy)  # second
launch = lambda value: cuda.fake_launch()  # noqa: E731
max([1, 2], key=launch)  # calls lambda
exec(compile("cuda.fake_launch()", "<made>", "exec"))  # in made code
sorted([3, 1], key=lambda value: helper(1) or value)  # through C
