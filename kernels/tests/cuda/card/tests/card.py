"""NVRTC and the card in software, for the tests."""

import ctypes
import os
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def package(name):
    for path in sys.path:
        found = pathlib.Path(path) / "nvidia" / name
        if found.is_dir():
            return found
    sys.exit(f"no package nvidia/{name}: pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12")


nvrtc = ctypes.CDLL(str(next((package("cuda_nvrtc") / "lib").glob("libnvrtc.so*"))))
driver = ctypes.CDLL(os.environ["SOFTWARE_CUDA_LIBRARY"])
SUCCESS = 0
for name in ("cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"):
    getattr(driver, name).argtypes = None


def compile(source, arch="sm_90a", options=()):
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), None, 0, None, None)
    flags = [f"--gpu-architecture={arch}", "-lineinfo", *options]
    flags += [f"--include-path={package(name) / 'include'}" for name in ("cuda_runtime", "cuda_nvcc")]
    flags = [flag.encode() for flag in flags]
    failed = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))

    def text(of):
        length = ctypes.c_size_t()
        getattr(nvrtc, f"nvrtcGet{of}Size")(program, ctypes.byref(length))
        found = ctypes.create_string_buffer(length.value)
        getattr(nvrtc, f"nvrtcGet{of}")(program, found)
        return found.value

    if failed:
        raise RuntimeError(text("ProgramLog").decode())
    return text("PTX")


class Card:
    """A module, its kernels, and buffers that are numpy arrays on the host."""

    def __init__(self, source=None, ptx=None, **compile_options):
        assert driver.cuInit(0) == SUCCESS
        self.module = ctypes.c_void_p()
        ptx = ptx or compile(source, **compile_options)
        status = driver.cuModuleLoadData(ctypes.byref(self.module), ctypes.c_char_p(ptx))
        if status != SUCCESS:
            raise RuntimeError(f"the module is not loaded: {status}")

    def launch(self, name, grid, block, *arguments, shared=0):
        """Arrays are copied to the card and back; the status of the synchronisation is returned."""
        grid = (grid,) if isinstance(grid, int) else grid
        block = (block,) if isinstance(block, int) else block
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        function = ctypes.c_void_p()
        assert driver.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()) == SUCCESS, name
        if shared > 48 << 10:
            assert driver.cuFuncSetAttribute(function, 8, shared) == SUCCESS
        values, buffers = [], []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                pointer = ctypes.c_uint64()
                assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(max(argument.nbytes, 1))) == SUCCESS
                host = argument.ctypes.data_as(ctypes.c_void_p)
                driver.cuMemcpyHtoD_v2(pointer, host, ctypes.c_size_t(argument.nbytes))
                buffers.append((pointer, argument))
                values.append(pointer)
            elif isinstance(argument, float):
                values.append(ctypes.c_float(argument))
            elif isinstance(argument, int):
                values.append(ctypes.c_int(argument))
            else:
                values.append(argument)
        pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in values])
        status = driver.cuLaunchKernel(function, *grid, *block, shared, None, pointers, None)
        if status == SUCCESS:
            status = driver.cuCtxSynchronize()
        for pointer, argument in buffers:
            if status == SUCCESS:
                host = argument.ctypes.data_as(ctypes.c_void_p)
                driver.cuMemcpyDtoH_v2(host, pointer, ctypes.c_size_t(argument.nbytes))
            driver.cuMemFree_v2(pointer)
        return status
