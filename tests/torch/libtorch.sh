#!/usr/bin/env bash
# Assembles a libtorch for the processor from three wheels on PyPI, and prints its folder: the value for `LIBTORCH`.
#
#   LIBTORCH=$(tests/torch/libtorch.sh)              into ~/.cache/assay/libtorch-VERSION
#   LIBTORCH=$(tests/torch/libtorch.sh FOLDER)       into FOLDER
#
# PyPI only has PyTorch for Linux with CUDA, which is several gigabytes. The processor needs its include/, libtorch_cpu, libc10 and libgomp,
# and two small CUDA libraries with which libtorch_cpu is linked, although none of their functions is called: 500 MB. The linker also needs
# a libtorch, which is empty here. The script needs python3 with pip, and a C compiler.
set -euo pipefail

version=2.13.0
folder="${1:-$HOME/.cache/assay/libtorch-$version}"
if [ -f "$folder/build-version" ]; then
    echo "$folder"
    exit 0
fi

say() { printf '== %s\n' "$*" >&2; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

say "fetching torch $version and two CUDA libraries (PyPI, 540 MB)"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work/wheels" \
    "torch==$version" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*" >&2

say "putting libtorch together in $folder"
python3 - "$work" <<'EOF'
import pathlib, sys, zipfile

work = pathlib.Path(sys.argv[1])
libraries = {"libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}
for wheel in sorted((work / "wheels").glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = pathlib.PurePosixPath(entry.filename)
            if path.parts[:2] == ("torch", "include") and not entry.is_dir():
                target = work.joinpath("libtorch", *path.parts[1:])
            elif path.name in libraries and "lib" in path.parts:
                target = work / "libtorch" / "lib" / path.name
            else:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, open(target, "wb") as sink:
                while block := source.read(1 << 20):
                    sink.write(block)
EOF

lib="$work/libtorch/lib"
# The linker must not omit the empty library: it depends on the two that are not empty.
"${CC:-cc}" -shared -o "$lib/libtorch.so" -x c /dev/null -Wl,--no-as-needed -L"$lib" -ltorch_cpu -lc10 \
    -Wl,-rpath,'$ORIGIN' -Wl,--allow-shlib-undefined >&2
echo "$version+cpu" > "$work/libtorch/build-version"
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
mv "$work/libtorch" "$folder"
echo "$folder"
