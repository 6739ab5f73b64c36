// A step for Assay: counts the words of its input `data` and writes them to its output `counts`, the most frequent first.
import artifacts from "assay:plugin/artifacts@0.1.0";

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
    const schema = { type: "object", properties: { most: { type: "integer", minimum: 1, default: 100 } } };
    return {
      name: "words",
      version: "1.0.0",
      description: "Counts the words of a text.",
      configSchema: JSON.stringify(schema),
    };
  },
};

// How much is read at once.
const PART = 1 << 16;

export const step = {
  run: explained((config, replicate) => {
    const { most = 100 } = JSON.parse(config || "{}");
    const size = Number(artifacts.size("data"));
    const counts = new Map();
    let word = "", words = 0;
    const finish = () => {
      if (word) counts.set(word, (counts.get(word) ?? 0) + 1), words++;
      word = "";
    };
    for (let at = 0; at < size; at += PART) {
      for (const byte of artifacts.read("data", at, PART)) {
        if (byte <= 32) finish();
        else word += String.fromCharCode(byte);
      }
    }
    finish();
    const sorted = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, most);
    const text = sorted.map(([word, count]) => `${word}\t${count}\n`).join("");
    artifacts.write("counts", Uint8Array.from(text, (c) => c.charCodeAt(0)));
    artifacts.metrics(0, [{ name: "distinct", value: counts.size }]);
    return JSON.stringify({ words });
  }),
};
