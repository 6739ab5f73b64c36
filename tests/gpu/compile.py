#!/usr/bin/env python3
"""Compiles every GPU kernel with the vendors' own compilers, without a GPU: NVRTC to PTX, ptxas to machine code; and
with hipcc for gfx90a and clang 19 for gfx942, where they are.

    compile.py [ARCHITECTURE...]        sm_80, sm_90a and sm_100 by default

Prints registers, shared memory and spills of each kernel for the last architecture of NVIDIA's. The exit code is 0 only if
every source compiles for every architecture and no kernel spills registers to memory. Needs the wheels of requirements.txt
beside this file.
"""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "backends" / "gpu" / "kernels"
HEADERS = [
    "vendor.h", "common.h", "attention.h", "attention_gradient.h", "fragments.h", "online_softmax.h", "warpgroup.h"
]
# Sources whose kernels are only launched on one NVIDIA architecture.
ONLY_FOR = {"attention_warpgroup.cu": "sm_90a"}


def toolkit():
    """The folder in which NVIDIA's wheels lie."""
    for name in ("purelib", "platlib"):
        folder = pathlib.Path(sysconfig.get_path(name)) / "nvidia" / "cu13"
        if folder.is_dir():
            return folder
    sys.exit("nvidia/cu13 is not installed here; install tests/gpu/requirements.txt with --no-deps")


class Nvrtc:
    """The library, as far as it is called here."""

    def __init__(self, folder):
        # NVRTC finds its second library only if it is already loaded.
        ctypes.CDLL(str(next(folder.glob("libnvrtc-builtins.so.*"))), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(folder / "libnvrtc.so.13"))

    def text(self, program, size_of, get):
        size = ctypes.c_size_t()
        getattr(self.library, size_of)(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self.library, get)(program, text)
        return text.value.decode()

    def compile(self, path, architecture):
        """PTX for `architecture`; a program that is refused ends this one with the compiler's log."""
        strings = lambda values: (ctypes.c_char_p * len(values))(*[value.encode() for value in values])
        headers = [(KERNELS / name).read_text() for name in HEADERS]
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(
            ctypes.byref(program), path.read_text().encode(), path.name.encode(), len(HEADERS), strings(headers),
            strings(HEADERS)
        )
        options = [f"--gpu-architecture={architecture.replace('sm', 'compute')}", "--std=c++17"]
        code = self.library.nvrtcCompileProgram(program, len(options), strings(options))
        log = self.text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
        if code != 0:
            sys.exit(f"{path.name} for {architecture}: NVRTC refuses it\n{log}")
        if log.strip():
            print(f"{path.name} for {architecture}:\n{log}")
        return self.text(program, "nvrtcGetPTXSize", "nvrtcGetPTX")


USE = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def assemble(folder, ptx, architecture):
    """What ptxas says of each kernel."""
    with tempfile.TemporaryDirectory() as scratch:
        source = os.path.join(scratch, "kernels.ptx")
        pathlib.Path(source).write_text(ptx)
        command = [str(folder / "bin" / "ptxas"), "-v", f"-arch={architecture}", source, "-o", os.path.join(scratch, "out")]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ptxas refuses the PTX for {architecture}\n{done.stderr}")
    return [match.groupdict() for match in USE.finditer(done.stderr)]


# Debian's hipcc compiles with clang 15, which does not support gfx942.
AMD = {"gfx90a": "hipcc", "gfx942": "clang++-19"}
AMD_USE = re.compile(r"Function Name: (?P<name>\w+).*?VGPRs Spill: (?P<spilled>\d+)", re.DOTALL)


def device_libraries(scratch, architecture):
    """Options with which clang finds AMD's device libraries. Debian's are of ROCm 5.2 and end at gfx940, so that its file, a
    constant that names the instruction set to the others, stands in for that of gfx942."""
    folders = [*pathlib.Path("/usr/lib").glob("*/amdgcn/bitcode"), pathlib.Path("/opt/rocm/amdgcn/bitcode")]
    folder = next((folder for folder in folders if (folder / "ocml.bc").exists()), None)
    if folder is None:
        return None
    for file in folder.glob("*.bc"):
        (scratch / file.name).symlink_to(file)
    own = scratch / f"oclc_isa_version_{architecture.removeprefix('gfx')}.bc"
    if not own.exists():
        own.symlink_to(folder / "oclc_isa_version_940.bc")
    return ["--rocm-path=/usr", f"--rocm-device-lib-path={scratch}"]


def compile_for_amd(architecture, compiler, options):
    """The number of kernels, and a line for each that spills."""
    count, spilling = 0, []
    for path in sorted(KERNELS.glob("*.cu")):
        if path.name in ONLY_FOR:
            continue
        command = [compiler, "-x", "hip", f"--offload-arch={architecture}", "--cuda-device-only", "-O3", "-std=c++17", "-S"]
        # Not `-o /dev/null`: run as root, the compiler may replace the device by a file.
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "kernels.s")
            command += ["-include", "hip/hip_runtime.h", "-Rpass-analysis=kernel-resource-usage", "-o", output, str(path)]
            done = subprocess.run(command + options, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{path.name} for {architecture}: {compiler} refuses it\n{done.stderr}")
        uses = [match.groupdict() for match in AMD_USE.finditer(done.stderr)]
        if not uses:
            sys.exit(f"{path.name} for {architecture}: {compiler} names no kernel")
        count += len(uses)
        spilling += [f"{path.name}, {use['name']} for {architecture}" for use in uses if int(use["spilled"])]
    return count, spilling


def all_for_amd():
    """The architectures that there is a compiler for, and what `compile_for_amd` gives for all of them together."""
    architectures, count, spilling = [], 0, []
    for architecture, compiler in AMD.items():
        with tempfile.TemporaryDirectory() as scratch:
            options = [] if compiler == "hipcc" else device_libraries(pathlib.Path(scratch), architecture)
            if not shutil.which(compiler) or options is None:
                missing = compiler if options is not None else "rocm-device-libs"
                print(f"{missing} is not here, so nothing is compiled for {architecture}")
                continue
            more, spilled = compile_for_amd(architecture, compiler, options)
        architectures, count, spilling = [*architectures, architecture], count + more, spilling + spilled
    return architectures, count, spilling


def main():
    folder = toolkit()
    nvrtc = Nvrtc(folder / "lib")
    architectures = sys.argv[1:] or ["sm_80", "sm_90a", "sm_100"]
    spilling, count = [], 0
    for path in sorted(KERNELS.glob("*.cu")):
        for architecture in architectures:
            if ONLY_FOR.get(path.name, architecture) != architecture:
                continue
            uses = assemble(folder, nvrtc.compile(path, architecture), architecture)
            if not uses:
                sys.exit(f"{path.name} for {architecture}: ptxas names no kernel")
            count += len(uses)
            for use in uses:
                spilled = int(use["stores"]) + int(use["loads"])
                if spilled:
                    spilling.append(f"{path.name}, {use['name']} for {architecture}: {spilled} bytes")
                if architecture == architectures[-1]:
                    shared = re.search(r"(\d+) bytes smem", use["rest"])
                    shared = shared.group(1) if shared else "0"
                    print(f"{use['name']:30} {use['registers']:>4} registers {shared:>6} bytes shared  stack {use['stack']}")
    amd, more, spilled = all_for_amd()
    architectures, count, spilling = [*architectures, *amd], count + more, spilling + spilled
    if spilling:
        sys.exit("these kernels spill registers:\n" + "\n".join(spilling))
    print(f"{count} kernels for {', '.join(architectures)}: none spills")


if __name__ == "__main__":
    main()
