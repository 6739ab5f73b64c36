// A curriculum for Assay: the longest admitted sequence grows by the same amount at each stage.

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
    const schema = { type: "object", properties: { start: { type: "integer", minimum: 1, default: 16 }, every: { type: "integer", minimum: 1, default: 50 } } };
    return {
      name: "ramp",
      version: "1.0.0",
      description: "Admits longer sequences at each stage.",
      configSchema: JSON.stringify(schema),
    };
  },
};

// Strings of ASCII characters as bytes, since there is no TextEncoder.
const encode = (value) => Uint8Array.from(JSON.stringify(value), (c) => c.charCodeAt(0));
const decode = (bytes) => JSON.parse(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

export const curriculum = {
  // All that `next` remembers is its state.
  open: explained((config, seed, lengths) => {
    const { start = 16, every = 50 } = JSON.parse(config || "{}");
    if (!(start >= 1)) throw refusal("start is less than 1", null, "/start");
    if (!(every >= 1)) throw refusal("every is less than 1", null, "/every");
    if (!lengths.length) throw refusal("the training split is empty");
    return encode({ length: Math.max(start, lengths[0]), start, every, longest: lengths[lengths.length - 1] });
  }),

  next: explained((saved, step, seen) => {
    const state = decode(saved);
    const stage = { untilStep: Number(step) + state.every, maxLength: state.length, note: `${seen.length} observations` };
    state.length = Math.min(state.length + state.start, Math.max(state.longest, state.length));
    return [stage, encode(state)];
  }),
};
