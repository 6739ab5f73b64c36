// Dyck words: is a string of brackets balanced? (Chomsky and Schuetzenberger 1963; recognition as in Suzgun et al. 2019)
//
// Half of the sequences are uniformly random Dyck words (Arnold and Sleep 1980) with random kinds of brackets; in the others one
// bracket was replaced by another, which always unbalances them. A sequence depends on seed, split and its number alone.
#define ASSAY_DATASET
#include "assay_plugin.h"

static u32 kinds, least, most;

About describe(void) {
    return (About){
        string("dyck"), string("1.0.0"),
        string("Strings of brackets; the label is 1 if they are balanced, and 0 if one bracket was replaced."),
        string("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
               "\"kinds\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":8,\"default\":2},"
               "\"min_pairs\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":4096,\"default\":2},"
               "\"max_pairs\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":4096,\"default\":16}}}")};
}

OpenResult open(String config) {
    static const char *brackets[] = {"(", ")", "[", "]", "{", "}", "<", ">", "(2", ")2", "[2", "]2", "{2", "}2", "<2", ">2"};
    double wanted = option(config, "kinds", 2), low = option(config, "min_pairs", 2), high = option(config, "max_pairs", 16);
    if (!(wanted >= 1 && wanted <= 8)) fail("kinds is outside 1..=8", "there are eight kinds of brackets", "/kinds");
    if (!(low >= 1 && low <= 4096)) fail("min_pairs is outside 1..=4096", 0, "/min_pairs");
    if (!(high >= low && high <= 4096)) fail("max_pairs is outside min_pairs..=4096", 0, "/max_pairs");
    kinds = (u32)wanted, least = (u32)low, most = (u32)high;
    OpenResult result = {.facts = {allocate(2 * kinds * sizeof(String)), 2 * kinds, 2, 2 * most}};
    for (u32 token = 0; token < 2 * kinds; token++) result.facts.vocabulary[token] = string(brackets[token]);
    return result;
}

// splitmix64 (Steele et al. 2014)
static u64 random_bits(u64 *state) {
    u64 z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static u32 random_below(u64 *state, u32 bound) { return (u32)((random_bits(state) >> 32) * bound >> 32); }

// Writes 2 * pairs tokens: 2 k opens a bracket of kind k, and 2 k + 1 closes it.
static void write_word(u64 *state, u32 *tokens, u32 pairs) {
    static u32 open_kinds[4096];
    u32 opening = pairs, closing = pairs, height = 0;
    for (u32 at = 0; at < 2 * pairs; at++) {
        u32 draw = random_below(state, (opening + closing) * (height + 1));
        if (draw < opening * (height + 2)) {
            open_kinds[height] = random_below(state, kinds);
            tokens[at] = 2 * open_kinds[height++];
            opening--;
        } else {
            tokens[at] = 2 * open_kinds[--height] + 1;
            closing--;
        }
    }
}

BatchResult batch(u64 seed, u32 split, u64 first, u32 count) {
    BatchResult result = {.is_problem = 0};
    Numbers offsets = {allocate((count + 1) * 4), count + 1}, labels = {allocate(count * 4), count};
    Numbers tokens = {allocate(count * 8 * most), 0};
    offsets.items[0] = 0;
    for (u32 index = 0; index < count; index++) {
        u64 state = seed ^ (u64)(split + 1) << 61;
        state = random_bits(&state) ^ (first + index);
        u32 pairs = least + random_below(&state, most - least + 1);
        u32 *word = tokens.items + tokens.length;
        write_word(&state, word, pairs);
        labels.items[index] = random_bits(&state) >> 63;
        if (!labels.items[index]) {
            u32 at = random_below(&state, 2 * pairs);
            word[at] = (word[at] + 1 + random_below(&state, 2 * kinds - 1)) % (2 * kinds);
        }
        tokens.length += 2 * pairs;
        offsets.items[index + 1] = tokens.length;
    }
    result.sequences = (Sequences){tokens, offsets, labels};
    return result;
}
