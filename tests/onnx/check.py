#!/usr/bin/env python3
"""A second opinion on an exported ONNX file: onnxruntime computes what the model computed.

    check.py MODEL.onnx REFERENCE.safetensors [MODEL.onnx REFERENCE.safetensors ...]

REFERENCE is the output `reference` of the step `export`: random inputs and the model's own logits. Needs the packages
numpy, onnx and onnxruntime. The exit code is 0 only if every file is valid, its batch and length are free, and every
logit agrees to the tolerance that the reference names.
"""

import json
import struct
import sys

import numpy
import onnx
import onnxruntime

DTYPES = {"F32": numpy.float32, "U32": numpy.uint32}


def read_safetensors(path):
    """The metadata and the arrays of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    body = data[8 + size :]
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = numpy.frombuffer(body[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return metadata, arrays


def check_file(content):
    """What the ONNX project itself says of the file; complains unless batch and length are free."""
    model = onnx.load_model_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    if opset < 17:
        raise ValueError(f"the opset is {opset}, below 17")
    tokens = next(value for value in model.graph.input if value.name == "tokens")
    names = [dim.dim_param for dim in tokens.type.tensor_type.shape.dim]
    if names != ["batch", "length"]:
        raise ValueError(f"the dimensions of `tokens` are named {names}")


def compare(content, reference):
    """The largest difference of a logit that counts, over all cases, with the tolerance and the number of cases."""
    metadata, arrays = read_safetensors(reference)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    inputs = metadata["assay.inputs"].split(",")
    if [value.name for value in session.get_inputs()] != inputs:
        raise ValueError(f"the inputs are {[value.name for value in session.get_inputs()]}, not {inputs}")
    cases = sorted({name.split(".")[0] for name in arrays})
    worst = 0.0
    for case in cases:
        feed = {name: arrays[f"{case}.{name}"].astype(numpy.int64) for name in inputs}
        (found,) = session.run(["logits"], feed)
        expected, lengths = arrays[f"{case}.logits"], arrays[f"{case}.lengths"]
        if found.shape != expected.shape:
            raise ValueError(f"{case}: logits of shape {found.shape}, not {expected.shape}")
        difference = numpy.abs(found.astype(numpy.float64) - expected)
        if difference.ndim == 3:
            # The logits of a language model at padded positions are meaningless.
            inside = numpy.arange(difference.shape[1])[None, :] < lengths[:, None]
            difference = difference[inside]
        if not numpy.all(numpy.isfinite(difference)):
            raise ValueError(f"{case}: a logit is not finite")
        worst = max(worst, float(difference.max()))
    return worst, float(metadata["assay.tolerance"]), len(cases)


def main(arguments):
    if not arguments or len(arguments) % 2:
        print(__doc__, file=sys.stderr)
        return 2
    failures = 0
    for path, reference in zip(arguments[::2], arguments[1::2]):
        try:
            # By content, not by path: in the store a file has no extension from which to infer its format.
            with open(path, "rb") as file:
                content = file.read()
            check_file(content)
            worst, tolerance, cases = compare(content, reference)
        except Exception as error:  # Whatever a library raises is a finding about this file; the others go on.
            print(f"{path}: {error}")
            failures += 1
            continue
        agrees = worst <= tolerance
        failures += not agrees
        word = "agrees" if agrees else "DISAGREES"
        print(f"{path}: {word} with the model in {cases} cases, largest difference {worst:.2e} (allowed {tolerance:g})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
