// A searcher for Assay: random values first, then the best trial with one of its parameters changed.

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
    const schema = { type: "object", properties: { rounds: { type: "integer", minimum: 1, default: 3 } } };
    return {
      name: "climb",
      version: "1.0.0",
      description: "Changes one parameter of the best trial at a time.",
      configSchema: JSON.stringify(schema),
    };
  },
};

// Texts as bytes, two for each UTF-16 code unit, since there is no TextEncoder.
const encode = (value) => new Uint8Array(Uint16Array.from(JSON.stringify(value), (c) => c.charCodeAt(0)).buffer);
const decode = (bytes) => JSON.parse(Array.from(new Uint16Array(Uint8Array.from(bytes).buffer), (unit) => String.fromCharCode(unit)).join(""));

export const searcher = {
  open: explained((config, space, seed) => {
    const { rounds = 3 } = JSON.parse(config || "{}");
    const parsed = JSON.parse(space);
    for (const [name, values] of Object.entries(parsed)) {
      if (!Array.isArray(values) || !values.length) throw refusal(`\`${name}\` has no list of values`, 'write {"states": [8, 16]}');
    }
    return encode({ space: parsed, random: Number(BigInt.asUintN(32, BigInt(seed))), round: 0, rounds, best: null });
  }),

  // The same state gives the same trials.
  propose: explained((saved, results, count) => {
    const state = decode(saved);
    for (const { params, value } of results) {
      if (value !== null && value !== undefined && (!state.best || value < state.best.value)) state.best = { value, params: JSON.parse(params) };
    }
    const draw = (bound) => {
      // Numerical Recipes' generator.
      state.random = (Math.imul(state.random, 1664525) + 1013904223) >>> 0;
      return (state.random >>> 8) % bound;
    };
    const params = [];
    for (let trial = 0; trial < count; trial++) {
      const random = Object.entries(state.space).map(([name, values]) => [name, values[draw(values.length)]]);
      const changed = random[draw(random.length)];
      params.push(JSON.stringify(state.best ? { ...state.best.params, [changed[0]]: changed[1] } : Object.fromEntries(random)));
    }
    state.round += 1;
    return { state: encode(state), params, finished: state.round >= state.rounds };
  }),
};
