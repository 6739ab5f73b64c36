// A dataset for Assay: random bits, labelled with their parity.

// Turns an exception into a problem with its stack. Without it, an exception is only reported as `unreachable`.
function explained(call) {
  return (...values) => {
    try {
      return call(...values);
    } catch (error) {
      if (!(error instanceof Error)) throw typeof error === "string" ? refusal(error) : error;
      throw { ...refusal(`${error.name}: ${error.message}`), trace: error.stack ?? null };
    }
  };
}

function refusal(message, hint = null, at = null) {
  return { message, hint, at, trace: null };
}

export const plugin = {
  describe() {
    const schema = { type: "object", properties: { length: { type: "integer", minimum: 1, maximum: 1000, default: 12 } } };
    return {
      name: "parity",
      version: "1.0.0",
      description: "Random bits, labelled with their parity.",
      configSchema: JSON.stringify(schema),
    };
  },
};

const SPLITS = ["train", "valid", "test"];

// Mixes a 32-bit state: the finalizer of MurmurHash3.
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

// One instance serves one config, so that its options are kept here.
let length = 12;

export const dataset = {
  open: explained((config) => {
    length = JSON.parse(config || "{}").length ?? 12;
    if (!(Number.isInteger(length) && length >= 1 && length <= 1000)) throw refusal("length is outside 1..=1000", null, "/length");
    return { vocabulary: ["0", "1"], classes: 2, maxLength: length };
  }),

  // The bits of a sequence depend on the seed, the split and its number alone.
  batch: explained((seed, split, first, count) => {
    const tokens = [], offsets = [0], labels = [];
    for (let index = 0; index < count; index++) {
      const number = BigInt(first) + BigInt(index);
      let state = mix(Number(BigInt.asUintN(32, BigInt(seed))) ^ SPLITS.indexOf(split));
      for (const part of [BigInt(seed) >> 32n, number, number >> 32n]) state = mix(state ^ Number(BigInt.asUintN(32, part)));
      let parity = 0;
      for (let place = 0; place < length; place++) {
        state = mix(state + 0x9e3779b9);
        tokens.push(state & 1);
        parity ^= state & 1;
      }
      offsets.push(tokens.length);
      labels.push(parity);
    }
    return { tokens, offsets, labels };
  }),
};
