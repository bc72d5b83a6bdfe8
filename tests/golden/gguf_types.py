"""Writes gguf/types.gguf: random blocks of every quantised type that is read, each tensor T followed by T.values, the fp32
values that the package `gguf` gives them.  Scales of whole blocks are random fp16 or, for MXFP4, exponents from the smallest
on.

gguf_types.py FILE     exit status 77: no such package
"""
import sys

try:
    import gguf
    import numpy
    from gguf.quants import dequantize
except ImportError:
    sys.exit(77)

# type: places of the fp16 scales in a block
TYPES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
         "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
ROWS, COLUMNS = 3, 256

random = numpy.random.default_rng(16)
writer = gguf.GGUFWriter(sys.argv[1], "llama")
for name, places in TYPES.items():
    kind = gguf.GGMLQuantizationType[name]
    items, size = gguf.GGML_QUANT_SIZES[kind]
    count = ROWS * COLUMNS // items
    blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
    for at in places:
        scale = (random.standard_normal((count, 1)) * 2.0 ** random.integers(-20, 8, (count, 1))).astype(numpy.float16)
        blocks[:, at:at + 2] = scale.view(numpy.uint8)
    if name == "MXFP4":
        blocks[:, 0] = numpy.concatenate([numpy.arange(8), random.integers(100, 253, count - 8)])
    rows = blocks.reshape(ROWS, -1)
    values = dequantize(rows, kind)
    assert values.shape == (ROWS, COLUMNS) and numpy.isfinite(values).all()
    writer.add_tensor(name, rows, raw_dtype=kind)
    writer.add_tensor(name + ".values", values.astype(numpy.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
