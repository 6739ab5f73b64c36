// A metric for Assay: the share of predictions whose target is among the k largest scores.

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
    const schema = { type: "object", properties: { k: { type: "integer", minimum: 1, default: 5 } } };
    return {
      name: "top-k",
      version: "1.0.0",
      description: "The share of targets among the k largest scores.",
      configSchema: JSON.stringify(schema),
    };
  },
};

// One instance serves one config, so that its sums are kept here.
const state = { k: 5, count: 0, right: 0 };

export const metric = {
  open: explained((config) => {
    state.k = JSON.parse(config || "{}").k ?? 5;
    if (!(state.k >= 1)) throw refusal("k is less than 1", "5 is usual", "/k");
  }),

  add: explained(({ targets, scores, classes }) => {
    for (let index = 0; index < targets.length; index++) {
      const first = index * classes, target = scores[first + targets[index]];
      let larger = 0;
      for (let at = first; at < first + classes; at++) larger += scores[at] > target;
      state.right += larger < state.k;
      state.count += 1;
    }
  }),

  save() {
    return new Uint8Array(new Float64Array([state.count, state.right]).buffer);
  },

  merge: explained((saved) => {
    const [count, right] = new Float64Array(Uint8Array.from(saved).buffer);
    state.count += count;
    state.right += right;
  }),

  values: explained(() => [{ name: "top_k", value: state.right / Math.max(state.count, 1) }]),
};
